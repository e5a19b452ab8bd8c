"""Arrangements that can change nothing any more are not drawn."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import hypergeom

from fedassay.audits.stats.chernoff import log_chance
from fedassay.audits.stats.paired import paired_test
from fedassay.audits.stats.permutation import HIGHER, Draws, PermutationTest, gap
from fedassay.audits.stats.stratified import stratified_gap
from fedassay.support.types import Matrix

_SIZE = Draws.of_run(tests=400, first=2000)


@pytest.mark.parametrize(("gain", "expected"), [(0.0, 2000), (0.45, _SIZE.near), (3.0, 2000)])
def test_of_a_permutation_test(gain: float, expected: int) -> None:
    """A bound settles a large gain, what is higher a small one; near the level ten times as many are drawn."""
    rng, drawn = np.random.default_rng(1), []
    gains = rng.normal(size=60) + gain

    def draw(count: int) -> Matrix:
        drawn.append(count)
        return np.asarray(rng.choice([-1.0, 1.0], (count, 60)) @ gains / 60)

    def bound(bar: float) -> float:
        return log_chance(-gains * (2 / 60), bar - float(gains.mean()), 0.5)

    value = float(gains.mean())
    plain = PermutationTest.of_some(value, draw, _SIZE, 0.0, (60, 60), 1.0)
    drawn.clear()
    quick = PermutationTest.of_some(value, draw, _SIZE, 0.0, (60, 60), 1.0, log_chance_of_one=bound)
    assert sum(drawn) == expected
    assert (quick.p <= 1e-4) == (plain.p <= 1e-4)
    if gain == 3.0:
        assert quick.p == plain.p == 1 / (1 + _SIZE.all)


def test_within_strata() -> None:
    """Scores that are no higher are settled by the first permutations."""
    rng = np.random.default_rng(2)
    first, second, strata = rng.normal(size=40), rng.normal(size=40), np.arange(40) // 10
    found = stratified_gap(first, second, (strata, strata), rng, tests=400, draws=2000)
    assert 1 / found.p < 2001
    assert (found.p * 2001) == pytest.approx(round(found.p * 2001))


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_of_the_best_of_a_side(share: float) -> None:
    """A gap of the best that no arrangement comes near draws the first ones alone; p is that of all draws."""
    rng, drawn = np.random.default_rng(4), []
    permuted = np.random.Generator.permuted

    class Counting(np.random.Generator):
        def permuted(self, x: Matrix, **given: int) -> Matrix:  # type: ignore[override]
            drawn.append(len(x))
            return np.asarray(permuted(self, x, **given))

    first, second = rng.normal(size=100) + 5, rng.normal(size=100)
    found = gap(first, second, Counting(np.random.PCG64(1)), share=share, tests=400)
    assert sum(drawn) == _SIZE.first
    assert found.p == 1 / (1 + _SIZE.all)
    top = round(share * 100)
    pairs = paired_test(first, second, rng, top=top, tests=400)
    assert pairs.p == 1 / (1 + _SIZE.all)


@pytest.mark.parametrize(("first", "near"), [((60, 120), 900), ((60, 60), 600), ((30, 200), 1000), ((80, 90), 90)])
def test_a_p_value_is_at_most_a_level_as_often_as_that(first: tuple[int, int], near: int) -> None:
    """Exactly, over all that may come out where every rank is as likely; near the level nothing is lost."""
    size, chances = Draws(*first, near), defaultdict[float, float](float)
    looks = size.first < size.all
    for number in range(HIGHER, size.first + 1 if looks else 0):
        chances[size.p(number, size.first)] += 1 / (size.first + 1)
    for total in range(near + 1):
        numbers = np.arange(min(total, size.all) + 1)
        goes_on = hypergeom.cdf(HIGHER - 1, size.all, numbers, size.first) if looks else np.ones(len(numbers))
        each = hypergeom.pmf(numbers, near, total, size.all) * goes_on / (near + 1)
        for found in np.flatnonzero(each):
            number = int(found)
            ends = size.settle(number, size.all)
            chances[size.p(number, size.all) if ends else size.p(total, near)] += float(each[number])
    levels = np.array(sorted(chances))
    reached = np.cumsum([chances[level] for level in levels])
    assert reached[-1] == pytest.approx(1)
    assert (reached <= levels * (1 + 1e-9)).all()
    exact = levels < HIGHER / (1 + size.all) / 4
    assert exact.any()
    assert reached[exact] == pytest.approx(levels[exact], rel=1e-2)


def test_seeds_agree_where_p_lies_near_the_level() -> None:
    """At half the level three in four decisions were what they should be; at twice it, seeds agree as well."""
    tests = 200
    for share, rejects in ((0.5, True), (2.0, False)):
        chance, decided = share * 0.05 / tests, []
        for seed in range(200):
            rng = np.random.default_rng(seed)

            def draw(count: int, rng: np.random.Generator = rng, chance: float = chance) -> Matrix:
                return np.asarray(rng.random(count) < chance, np.float64)

            found = PermutationTest.of_some(1.0, draw, Draws.of_run(tests, 2000), 0.0, (60, 60), 1.0)
            decided.append(found.p <= 0.05 / tests)
        assert np.mean(np.array(decided) == rejects) > 0.97
