"""Leaks at the limit of detection are found as often as it says, and leaks at a third of it clearly less often."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedassay.audits.stats.detection import DRAWS, _smallest, detection_limit, shift_of_all, smallest_shift
from fedassay.support.types import Ints, Matrix

_PLACES, _CRITICAL = 100, 2.6


def _beats(trials: Matrix) -> bool:
    return bool(trials.mean() * np.sqrt(len(trials)) > _CRITICAL)


@pytest.mark.parametrize("strength", [1.0, 3.0])
def test_planted_leaks_at_the_limit_are_found(strength: float) -> None:
    rng = np.random.default_rng(1)
    silent, leaking = rng.normal(size=2000), rng.normal(strength, 1, size=2000)

    def finds(negative: Ints, positive: Ints, leaks: int) -> bool:
        return _beats(np.where(np.arange(_PLACES) < leaks, leaking[positive], silent[negative]))

    limit = detection_limit(_PLACES, 2000, 2000, finds, rng)
    assert limit.share is not None
    assert limit.found == limit.draws == DRAWS

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


@pytest.mark.parametrize(("of", "draws"), [(smallest_shift, 200), (shift_of_all, 59)])
def test_a_shift_at_the_limit_is_found(of: Callable[..., float | None], draws: int) -> None:
    rng = np.random.default_rng(2)
    shifts = np.linspace(0, 1, 41)
    shift = of(shifts, lambda by, run: _beats(run.normal(by, 1, _PLACES)), rng, draws=draws)
    assert shift is not None
    found = np.mean([_beats(rng.normal(shift, 1, _PLACES)) for _ in range(200)])
    third = np.mean([_beats(rng.normal(shift / 3, 1, _PLACES)) for _ in range(200)])
    assert found >= 0.9
    assert third < 0.5


def test_nothing_to_draw_from_is_refused() -> None:
    with pytest.raises(ValueError, match="0 and 3 trials"):
        detection_limit(10, 0, 3, lambda _s, _t, _k: True, np.random.default_rng(0))


def _studentised(trials: Matrix) -> bool:
    return bool(trials.mean() * np.sqrt(len(trials)) > _CRITICAL * trials.std())


def _with_large(rng: np.random.Generator, count: int) -> Matrix:
    """Losses of which three in a hundred are large."""
    return np.asarray(rng.normal(size=count) - 12 * (rng.random(count) < 0.03), np.float64)


@pytest.mark.parametrize(("trials", "covers"), [(30, False), (400, True)])
def test_a_tail_that_few_control_trials_miss_is_said(trials: int, covers: bool) -> None:
    """A leak at the limit is found far less often than .95 of the time; the limit says of how rare losses."""
    rng, found, runs = np.random.default_rng(5), [], 25
    for _ in range(runs):
        silent, leaking = _with_large(rng, trials), 2 + _with_large(rng, trials)

        def finds(
            negative: Ints, positive: Ints, leaks: int, silent: Matrix = silent, leaking: Matrix = leaking
        ) -> bool:
            return _studentised(np.where(np.arange(_PLACES) < leaks, leaking[positive], silent[negative]))

        limit = detection_limit(_PLACES, trials, trials, finds, rng, draws=60)
        assert limit.unseen == pytest.approx(1 - 0.05 ** (1 / trials))
        if limit.share is not None:
            leaks = np.arange(_PLACES) < round(limit.share * _PLACES)
            found += [_studentised(_with_large(rng, _PLACES) + 2 * leaks) for _ in range(20)]
    # .67 with 30 trials, .98 with 400.
    assert (np.mean(found) >= 0.9) == covers
    assert (limit.unseen < 0.03) == covers
    assert f"{limit.unseen:.2g} of all trials" in limit.caveat
    assert len(limit.caveat.split()) <= 30


def test_the_units_of_a_control_say_what_it_may_not_have_shown() -> None:
    rng = np.random.default_rng(0)
    limit = detection_limit(10, np.repeat(np.arange(8), 50), 500, lambda _s, _t, k: k > 3, rng, draws=60)
    assert limit.unseen == pytest.approx(1 - 0.05 ** (1 / 8))


@pytest.mark.parametrize("low", [0, 1, 7])
@pytest.mark.parametrize("turns", [1, 8, 9, 30, 31])
def test_the_smallest_number_is_found_from_wherever_one_starts(low: int, turns: int) -> None:
    expected = max(turns, low + 1) if turns <= 30 else np.inf
    assert _smallest(low, 30, lambda k: k >= turns) == expected
    assert _smallest(30, 30, lambda k: True) == np.inf
