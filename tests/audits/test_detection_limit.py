"""A limit of detection is of what the source can cause: no silence without power."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.audits.detection_limit import limit_of
from fedassay.audits.stats.detection import ControlTrials
from fedassay.records.record import Limit
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints


class Runs:
    """Places of which at least so many have to leak to be found; a shift of all is found from .1 on."""

    def __init__(self, least: int) -> None:
        self.least = least

    @property
    def sizes(self) -> tuple[int, ControlTrials, ControlTrials]:
        return 100, 50, 50

    def finds(self, silent: Ints, leaking: Ints, count: int) -> bool:
        return count >= self.least

    def finds_shift(self, shift: float, rng: np.random.Generator) -> bool:
        return shift >= 0.1


def limit(least: int, reach: int) -> Limit | str:
    shifts = np.array([0.05, 0.1, 0.2])
    return limit_of(Runs(least), Seeds(0), shifts=shifts, unit="SSIM", of="record", planted="test", reach=reach)()


def test_a_shift_of_everybody_is_no_limit_where_no_share_is_found() -> None:
    """Where a total leak is missed, a shift that nothing causes said `no_leak_found`."""
    found = limit(least=101, reach=100)
    assert isinstance(found, str)
    assert "cannot tell" in found


@pytest.mark.parametrize(("least", "reach"), [(60, 40), (100, 100)])
def test_what_is_found_only_beyond_the_reach_of_the_source_is_no_limit(least: int, reach: int) -> None:
    assert isinstance(limit(least, reach), str)


def test_a_share_within_reach_is_a_limit_that_says_of_what_it_is() -> None:
    found = limit(least=20, reach=40)
    assert isinstance(found, Limit)
    assert (found.metric, found.value, found.of, found.scope, found.planted) == (
        "share",
        0.2,
        "record",
        "run",
        "test",
    )
    assert (found.shift, found.shift_metric) == (0.1, "SSIM")
