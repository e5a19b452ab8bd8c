"""How much is drawn where counts are noised: as many as they say, within a public limit, in their proportions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.exchange.counts import draws, thinned, whole
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import MessageField


def _sent(values: list[float], scale: float | None = None) -> MessageField:
    release = exact("labels")
    if scale is not None:
        release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(scale,), sensitivity=(1.0,))
    return MessageField(np.array(values, np.float32), "class_counts", release)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.integers(1, 10**6))
def test_thinned_counts_keep_their_proportions(given_counts: list[int], most: int) -> None:
    counts = np.array(given_counts, np.int64)
    found = thinned(counts, most)
    if counts.sum() <= most:
        np.testing.assert_array_equal(found, counts)
        return
    assert found.sum() == most
    assert (found >= 0).all()
    assert np.abs(found - counts * (most / counts.sum())).max() <= 1 + 1e-6


def test_a_count_may_be_any_number() -> None:
    found = whole(np.array([-1e30, -0.4, 0.6, 17.4, 3e38, np.inf], np.float32))
    np.testing.assert_array_equal(found, [0, 0, 1, 17, 10**12, 10**12])


def test_only_noised_counts_are_thinned() -> None:
    plain = draws([_sent([300.0, 0.0]), _sent([100.0])], 40, "images")
    assert [own.tolist() for own in plain.counts] == [[300, 0], [100]]
    assert plain.notes == ()
    noised = draws([_sent([300.0, -5.0], 1.0), _sent([100.0], 1.0)], 40, "images")
    assert [own.tolist() for own in noised.counts] == [[30, 0], [10]]
    (note,) = noised.notes
    assert note == "noised counts ask for 400 images; 40 are drawn, in the same proportions"
    few = draws([_sent([3.4, 19.0], 1.0)], 40, "images")
    assert few.counts[0].tolist() == [3, 19]
    assert few.notes == ()


@pytest.mark.parametrize(("above", "expected"), [(0.0, [11, 9]), (2.0, [11, 0])])
def test_counts_that_may_be_noise_are_left_out(above: float, expected: list[int]) -> None:
    assert draws([_sent([11.0, 9.0], 5.0)], 100, "features", above=above).counts[0].tolist() == expected
