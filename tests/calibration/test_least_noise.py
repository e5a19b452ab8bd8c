"""The test of declared noise: silent on noise over any values, and certain where there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import betainc

from fedassay.audits.stats.least_noise import log10_ps_of_noise, one_sided_levels, two_sided_levels


def log10_p_of_noise(levels: np.ndarray) -> float:
    return float(log10_ps_of_noise(levels[None])[0])


@pytest.mark.parametrize("n", [1, 2, 10, 33, 640])
def test_p_values_of_pure_noise_are_at_least_uniform(n: int) -> None:
    """Pure noise is the worst case: its levels are exactly uniform."""
    rng, runs = np.random.default_rng(n), 4000
    found = np.array([10 ** log10_p_of_noise(rng.random(n)) for _ in range(runs)])
    for level in (0.3, 0.05, 0.01, 0.002):
        assert np.mean(found <= level) <= level + 3 * math.sqrt(level / runs)


@pytest.mark.parametrize("n", [10, 100])
def test_the_correction_gives_little_away(n: int) -> None:
    """A nominal .05 is used to a tenth at least: the ranks that pay for one another overlap."""
    rng = np.random.default_rng(n)
    assert np.mean([log10_p_of_noise(rng.random(n)) <= math.log10(0.05) for _ in range(4000)]) >= 0.005


def test_levels_of_noise_over_any_value_dominate_uniform_ones() -> None:
    rng = np.random.default_rng(0)
    noise = 3.0 * rng.standard_normal(200_000)
    scales, steps = np.full(200_000, 3.0), np.zeros(200_000)
    for value in (0.0, 0.5, -4.0, 40.0):
        two = two_sided_levels(value + noise, scales, steps)
        one = one_sided_levels(abs(value) + noise, scales, steps)
        for share in (0.01, 0.1, 0.5, 0.9, 0.99):
            slack = 4 * math.sqrt(share * (1 - share) / 200_000)
            assert np.mean(two <= share) <= share + slack
            assert np.mean(one <= share) <= share + slack


def test_too_small_entries_are_certain_and_their_p_value_is_a_bound() -> None:
    """All of n levels at t: the chance is t^n, which the answer may exceed by the correction alone."""
    for n, t in ((64, 1e-3), (640, 0.1), (20_000, 0.02), (5, 0.0)):
        exact = n * math.log10(t) if t else -math.inf
        found = log10_p_of_noise(np.full(n, t))
        assert exact <= found <= exact + 2


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_part_without_noise_is_found_among_the_rest(share: float) -> None:
    rng = np.random.default_rng(1)
    levels = rng.random(1000)
    levels[: int(share * 1000)] *= 0.01
    assert log10_p_of_noise(levels) < -20


def test_the_bound_beyond_floats_joins_the_exact_one() -> None:
    """A part of levels at t: below the smallest float by Chernoff's exponent, continuing the beta function."""
    found = []
    for n in np.arange(2000, 12_000, 500):
        k = int(n) // 2
        found.append(log10_p_of_noise(np.concatenate([np.full(k, 0.2), np.ones(n - k)])))
    steps = np.diff(found)
    assert found[0] > -290 > found[-1]
    assert np.all(np.abs(steps / np.median(steps) - 1) < 0.25)
    exact = math.log10(betainc(1000, 1001, 0.2))
    assert exact <= found[0] <= 0.8 * exact


def test_few_entries_are_what_arithmetic_says_whatever_number_came_before() -> None:
    """P(Beta(1, 1) <= u) is u; of two, P(Beta(1, 2) <= a) is 1 - (1 - a)^2 and P(Beta(2, 1) <= b) is b^2."""
    for _ in range(2):
        assert log10_p_of_noise(np.array([0.03])) == pytest.approx(np.log10(0.03))
        assert log10_p_of_noise(np.array([0.2, 0.001])) == pytest.approx(np.log10(2 * (1 - 0.999**2)))
        assert log10_p_of_noise(np.array([0.01, 0.011])) == pytest.approx(np.log10(2 * 0.011**2))


@pytest.mark.parametrize("n", [31, 32])
def test_of_few_entries_every_rank_is_asked(n: int) -> None:
    """The first k entries at 1/100, the others at 1: the k-th is the one that shows it."""
    for k in range(1, n + 1):
        found = log10_p_of_noise(np.concatenate([np.full(k, 0.01), np.ones(n - k)]))
        assert found == pytest.approx(min(0.0, math.log10(n * betainc(k, n - k + 1, 0.01))))


def test_no_entries_say_nothing() -> None:
    assert log10_p_of_noise(np.zeros(0)) == 0.0
    assert log10_p_of_noise(np.ones(50)) == 0.0
