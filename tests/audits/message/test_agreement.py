"""What is said of a factorization of captured messages: how many records it gives, and how sure these are."""

from __future__ import annotations

import numpy as np

from fedassay.audits.message.transcript_only import _follow
from fedassay.support.errors import Why


def test_an_agreement_is_of_those_counted_alone() -> None:
    """The median over all vectors, most of which came out wrong, says nothing of the few that are exact."""
    expected = np.array([1e-9, 4e-7, 3e-8, *np.linspace(0.2, 0.6, 30)])
    said = _follow(3, np.array([14.0, 14.0, 14.0]), expected, [Why(""), Why(""), Why("")])
    assert said == (
        "3 of 42 records' features follow from second moments: independent runs agree on each to a relative error "
        "of at most 4e-07"
    )
