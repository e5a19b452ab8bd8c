"""Quick decisions are those of the tests themselves, on the same draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.audits.stats import permutation
from fedassay.audits.stats.best_bound import log_chance_of_groups, log_chance_of_pairs
from fedassay.audits.stats.chernoff import log_chance
from fedassay.audits.stats.decisions import GapDecision, PairedDecision
from fedassay.audits.stats.paired import paired_test
from fedassay.audits.stats.permutation import gap
from fedassay.support.seeds import Seeds

Floats = NDArray[np.float64]


@pytest.fixture(autouse=True)
def _drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit asks of the first draws alone; a single test draws more where p lies near the level."""
    monkeypatch.setattr(permutation, "_NEAR", 1)


@pytest.mark.long
@pytest.mark.parametrize(("n", "top"), [(6, 6), (10, 10), (12, 4), (40, 40), (60, 20), (200, 20)])
@pytest.mark.parametrize("tests", [1, 6, 40])
def test_of_pairs(n: int, top: int, tests: int) -> None:
    """Around the level, where a wrong rule would show; both answers occur."""
    rng = np.random.default_rng(n * tests)
    decide = PairedDecision(n, top, tests)
    answers = []
    for shift in np.repeat([0.0, 0.2, 0.4, 0.6, 1.0, 3.0], 6):
        first, second = rng.normal(size=n) + shift, rng.normal(size=n)
        if shift == 0.6:
            first, second = np.round(first), np.round(second)  # ties
        whole = paired_test(first, second, Seeds(0).numpy("arrangements"), top=top, tests=tests)
        assert decide.rejects(first, second) == (whole.p <= 0.05 / tests)
        answers.append(decide.rejects(first, second))
    assert not all(answers)
    assert any(answers) or 2.0**-n > 0.05 / tests


@pytest.mark.long
@pytest.mark.parametrize(("n", "m", "share"), [(30, 30, 1.0), (50, 80, 0.2), (200, 40, 0.1), (20, 300, 0.05)])
@pytest.mark.parametrize("tests", [1, 6, 40])
def test_of_two_groups(n: int, m: int, share: float, tests: int) -> None:
    rng = np.random.default_rng(n * tests)
    decide = GapDecision(n, m, share, tests)
    answers = []
    for shift in np.repeat([0.0, 0.3, 0.6, 1.0, 5.0], 5):
        first, second = rng.normal(size=n) + shift, rng.normal(size=m)
        whole = gap(first, second, Seeds(0).numpy("arrangements"), share=share, tests=tests)
        assert decide.rejects(first, second) == (whole.p <= 0.05 / tests)
        answers.append(decide.rejects(first, second))
    assert any(answers)
    assert not all(answers)


def test_of_two_groups_whose_arrangements_are_nearly_all_below_nothing() -> None:
    """One score far out is in the smaller group in 10 of 310 arrangements: only these have a gap above 0."""
    rng, answers = np.random.default_rng(3), []
    decide = GapDecision(10, 300, 0.1, 1)
    for outer in (False, True):
        first, second = rng.normal(size=10) - 2, rng.normal(size=300)
        (first if outer else second)[0] = 1e6
        whole = gap(first, second, Seeds(0).numpy("arrangements"), share=0.1, tests=1)
        assert decide.rejects(first, second) == (whole.p <= 0.05)
        answers.append(decide.rejects(first, second))
    assert answers == [False, True]


@pytest.mark.parametrize("seed", [3, 9, 17])
def test_arrangements_that_meet_the_bar_are_counted_at_any_scale(seed: int) -> None:
    """Six values far from 0, of which many arrangements give both groups the same sum, against a plain count."""
    both = np.random.default_rng(seed).integers(0, 6, 80) * 1e6 / 3 + 1e7
    decide, bar, plain = GapDecision(40, 40, 0.5, 1), -1e-6, 0
    for inside in np.concatenate([block.chosen for block in decide._blocks], axis=1).T:
        first, second = (np.sort(side)[-20:] for side in (both[inside], both[~inside]))
        plain += first.mean() - second.mean() >= bar
    assert sum(decide._reached(both, block, bar) for block in decide._blocks) == plain


@pytest.mark.parametrize("n", [20, 150])
@pytest.mark.parametrize("chosen", [None, 3, 10])
def test_no_sum_reaches_a_bar_more_often_than_is_said(n: int, chosen: int | None) -> None:
    """Against 100,000 choices; the bound is within a factor of what the tail of a normal is worth."""
    rng = np.random.default_rng(n)
    weights, share = rng.exponential(size=n), 0.5 if chosen is None else chosen / n
    rows = rng.random((100_000, n))
    if chosen is None:
        sums = (rows < share) @ weights
    else:
        sums = weights[np.argpartition(rows, chosen, axis=1)[:, :chosen]].sum(axis=1)
    for level in (0.5, 0.1, 0.01, 0.001):
        bar = float(np.quantile(sums, 1 - level))
        seen = float((sums >= bar).mean())
        bound = np.exp(log_chance(weights, bar, share, chosen=chosen))
        assert seen <= bound + 4 * np.sqrt(bound / len(sums))
        assert bound <= min(1, 80 * level)
    assert log_chance(weights, float(weights.sum()) * 1.01, share, chosen=chosen) == -np.inf
    assert log_chance(weights, 0.0, share, chosen=chosen) == 0


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("top", [5, 15])
def test_no_gap_of_the_best_reaches_a_bar_more_often_than_is_said(top: int, shift: float) -> None:
    """Against 40,000 arrangements, at bars that one in two to one in a thousand of them reaches."""
    rng = np.random.default_rng(top)
    two = GapDecision(60, 80, top / 60, 6)
    first, second, third = rng.normal(size=60) + shift, rng.normal(size=60), rng.normal(size=80)
    exchanged = rng.random((40_000, 60)) < 0.5
    both = np.concatenate([first, third])
    dealt = rng.permuted(np.broadcast_to(both, (40_000, 140)), axis=1)

    def best(sides: Floats, count: int) -> Floats:
        return np.asarray(np.sort(sides, axis=1)[:, -count:].mean(axis=1))

    swapped = [np.where(side, second, first) for side in (exchanged, ~exchanged)]
    pairs = best(swapped[0], top) - best(swapped[1], top)
    gaps = best(dealt[:, :60], two._counts[0]) - best(dealt[:, 60:], two._counts[1])
    for level in (0.5, 0.1, 0.01, 0.001):
        bar, other = float(np.quantile(pairs, 1 - level)), float(np.quantile(gaps, 1 - level))
        of_pairs = log_chance_of_pairs(first, second, top, bar)
        of_gaps = log_chance_of_groups(both, two._counts, 60, other)
        for seen, log in ((float((pairs >= bar).mean()), of_pairs), (float((gaps >= other).mean()), of_gaps)):
            said = min(1.0, float(np.exp(log)))
            assert seen <= said + 4 * np.sqrt(said / 40_000)
    # Of a bar far above all of these it says that hardly any reaches it.
    assert log_chance_of_pairs(first, second, top, 3 * float(pairs.max())) < -10


@pytest.mark.parametrize("top", [300, 20])
def test_what_rejects_for_certain_draws_no_more(top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer stands after the first arrangements where the bound decides, and is that of all of them."""
    rng = np.random.default_rng(8)
    for decide in (PairedDecision(300, top, 50), GapDecision(300, 300, top / 300, 50)):
        first, second = rng.normal(size=300) + 6, rng.normal(size=300)
        quick = decide.rejects(first, second)
        with monkeypatch.context() as patched:
            for name in ("log_chance_of_pairs", "log_chance_of_groups"):
                patched.setattr(f"fedassay.audits.stats.decisions.{name}", lambda *_, **__: 0.0)
            assert decide.rejects(first, second) == quick
        assert quick
        looks = 0

        def looked(*_: object, **__: object) -> int:
            nonlocal looks
            looks += 1
            return 0

        with monkeypatch.context() as patched:
            for name in ("_sums_reach", "_gaps_reach"):
                patched.setattr(f"fedassay.audits.stats.decisions.{name}", looked)
            assert decide.rejects(first, second)
        assert looks == 0
