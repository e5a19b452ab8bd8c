"""Leaks at the limit of detection are found as often as it says, and leaks at a third of it clearly less often."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.audits.stats.detection import (
    Floats64,
    detection_limit,
    fewest_draws,
    smallest_shift,
    upper_percentile,
)
from fedassay.support.types import Ints

_PLACES, _CRITICAL = 100, 2.6


def _beats(trials: Floats64) -> bool:
    return bool(trials.mean() * np.sqrt(len(trials)) > _CRITICAL)


@pytest.mark.parametrize("strength", [1.0, 3.0])
def test_planted_leaks_at_the_limit_are_found(strength: float) -> None:
    rng = np.random.default_rng(1)
    silent, leaking = rng.normal(size=2000), rng.normal(strength, 1, size=2000)

    def finds(negative: Ints, positive: Ints, leaks: int) -> bool:
        return _beats(np.where(np.arange(_PLACES) < leaks, leaking[positive], silent[negative]))

    limit = detection_limit(_PLACES, 2000, 2000, finds, rng)
    assert limit.share is not None
    assert limit.found == limit.draws == 200

    def rate(share: float) -> float:
        leaks = round(share * _PLACES)
        runs = rng.normal(size=(200, _PLACES))
        runs[:, :leaks] += strength
        return float(np.mean([_beats(run) for run in runs]))

    assert rate(limit.share) >= 0.9
    assert rate(limit.share / 3) < 0.6


def test_a_test_that_finds_nothing_has_no_limit() -> None:
    limit = detection_limit(10, 5, 5, lambda _s, _t, _k: False, np.random.default_rng(0))
    assert (limit.share, limit.found) == (None, 0)


def test_a_shift_at_the_limit_is_found() -> None:
    rng = np.random.default_rng(2)
    shifts = np.linspace(0, 1, 41)
    shift = smallest_shift(shifts, lambda by, run: _beats(run.normal(by, 1, _PLACES)), rng, draws=200)
    assert shift is not None
    found = np.mean([_beats(rng.normal(shift, 1, _PLACES)) for _ in range(200)])
    third = np.mean([_beats(rng.normal(shift / 3, 1, _PLACES)) for _ in range(200)])
    assert found >= 0.9
    assert third < 0.5


def test_the_bound_of_a_percentile_covers() -> None:
    rng = np.random.default_rng(3)
    bounds = [upper_percentile(rng.uniform(size=200)) for _ in range(2000)]
    assert np.mean(np.array(bounds) >= 0.95) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 2000)
    with pytest.raises(ValueError, match=str(fewest_draws())):
        upper_percentile(np.zeros(fewest_draws() - 1))


def test_nothing_to_draw_from_is_refused() -> None:
    with pytest.raises(ValueError, match="0 and 3 trials"):
        detection_limit(10, 0, 3, lambda _s, _t, _k: True, np.random.default_rng(0))
