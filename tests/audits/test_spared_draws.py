"""Arrangements that can change nothing any more are not drawn."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.audits.stats.chernoff import log_chance
from fedassay.audits.stats.paired import paired_test
from fedassay.audits.stats.permutation import Draws, PermutationTest, gap
from fedassay.audits.stats.stratified import stratified_gap
from fedassay.support.types import Matrix

_SIZE = Draws.of_run(tests=400, first=2000)


@pytest.mark.parametrize(("gain", "expected"), [(0.0, 2000), (0.45, _SIZE.all), (3.0, 2000)])
def test_of_a_permutation_test(gain: float, expected: int) -> None:
    """A large gain is settled by a bound, a small one by what is higher; between them all are drawn."""
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
