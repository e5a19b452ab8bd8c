"""One-run bounds of weighted guesses: above the worst mechanism there is, and tighter than what they replace."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog

from fedassay.audits.stats.one_run_fdp import one_run_fdp_bound
from fedassay.audits.stats.one_run_weighted import (
    _influence,
    weighted_bound,
    weighted_p_value,
    weighted_right,
)
from fedassay.privacy.gaussian import epsilon_of

DELTA = 1e-5


def _worst(canaries: int, weights: tuple[int, ...], epsilon: float, delta: float) -> dict[int, float]:
    """The largest chance of so much right weight over every (epsilon, delta)-DP mechanism: a linear programme.

    Its outputs are what an auditor may make of them: which canaries are guessed, how, and with which weight.
    """
    coins = list(itertools.product((0, 1), repeat=canaries))
    padded = weights + (0,) * (canaries - len(weights))
    outputs = list(itertools.product(sorted(set(itertools.permutations(padded))), coins))
    size, pairs = len(outputs), []
    for first, second in itertools.permutations(range(len(coins)), 2):
        if sum(a != b for a, b in zip(coins[first], coins[second], strict=True)) == 1:
            pairs.append((first, second))
    shown, whole = len(coins) * size, (len(coins) + len(pairs)) * size
    above, sums = np.zeros((len(pairs) * size, whole)), np.zeros((len(pairs), whole))
    for number, (first, second) in enumerate(pairs):
        for y in range(size):
            row = number * size + y
            above[row, first * size + y] = 1
            above[row, second * size + y] = -math.exp(epsilon)
            above[row, shown + row] = -1
        sums[number, shown + number * size : shown + (number + 1) * size] = 1
    law = np.zeros((len(coins), whole))
    for number in range(len(coins)):
        law[number, number * size : (number + 1) * size] = 1
    right = np.array(
        [
            sum(w for w, guess, coin in zip(*output, true, strict=True) if guess == coin)
            for true in coins
            for output in outputs
        ]
    )
    found = {}
    for least in range(1, sum(weights) + 1):
        aim = np.concatenate([-1.0 * (right >= least) / len(coins), np.zeros(whole - shown)])
        solved = linprog(
            aim,
            A_ub=np.concatenate([above, sums]),
            b_ub=np.concatenate([np.zeros(len(above)), np.full(len(sums), delta)]),
            A_eq=law,
            b_eq=np.ones(len(law)),
        )
        found[least] = -solved.fun
    return found


@pytest.mark.parametrize("weights", [(1,), (1, 1), (1, 2), (1, 3)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (0.5, 0.0), (1.0, 0.02), (1.0, 0.2), (2.5, 0.05)])
def test_no_mechanism_is_above_the_p_value(weights: tuple[int, ...], epsilon: float, delta: float) -> None:
    """Of two canaries; without delta, randomised response attains it."""
    counts = [weights.count(weight) for weight in range(1, max(weights) + 1)]
    for right, worst in _worst(2, weights, epsilon, delta).items():
        allowed = weighted_p_value(counts, right, 2, epsilon, delta)
        assert worst <= allowed + 1e-7, right
        if delta == 0:
            assert worst == pytest.approx(allowed, abs=1e-7)


def test_what_a_guess_decides_is_at_most_what_is_said() -> None:
    """In the mean over orders of exchange, for any right and wrong guesses among the others."""
    rng, counts = np.random.default_rng(0), np.array([6, 4, 2])
    weights = np.repeat([1, 2, 3], counts)
    for wrong in (0.5, 0.2, 0.03):
        stated = _influence(counts, wrong)
        for _ in range(30):
            own = int(rng.integers(len(weights)))
            others = np.delete(weights, own)
            right = rng.random(len(others)) < rng.random()
            threshold = int(rng.integers(1, weights.sum() + 1))
            decides = []
            for share in (np.arange(100) + 0.5) / 100:
                law = np.ones(1)
                for weight, is_right in zip(others, right, strict=True):
                    chance = (1 - share) * is_right + share * (1 - wrong)
                    law = np.convolve(law, [1 - chance, *[0] * (weight - 1), chance])
                decides.append(law[max(0, threshold - weights[own]) : threshold].sum())
            assert np.mean(decides) <= stated + 1e-9


@pytest.mark.parametrize("counts", [(3, 2), (40, 25, 12)])
def test_what_a_guess_decides_is_the_mean_over_all_angles(counts: tuple[int, ...]) -> None:
    """By quadrature, at the left end of each of the 24 intervals of the share."""
    ends = (np.arange(25) / 24) ** 2

    def chance(share: float) -> float:
        variance = 4 * share * (1 - share)

        def at(angle: float) -> float:
            terms = [
                (1 - variance * math.sin(weight * angle / 2) ** 2) ** ((count - 1) / 2)
                for weight, count in enumerate(counts, 1)
            ]
            return math.prod(terms) * abs(math.sin(len(counts) * angle / 2) / math.sin(angle / 2))

        return min(1.0, float(quad(at, 0, math.pi, limit=400)[0]) / math.pi)

    expected = sum(chance(0.4 * left) * (right - left) for left, right in itertools.pairwise(ends))
    assert _influence(np.array(counts), 0.4) == pytest.approx(expected, rel=1e-5)


def _gaussian(mu: float, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    included = rng.random(count) < 0.5
    return included * mu + rng.standard_normal(count), included


PAIRS = (40, 25, 12, 6)


def _bound(mu: float, count: int, seed: int, pairs: tuple[int, ...] = PAIRS, confidence: float = 0.95) -> float:
    scores, included = _gaussian(mu, count, seed)
    right = weighted_right(scores, included, pairs)
    return weighted_bound([2 * pair for pair in pairs], right, count, DELTA, 1 - confidence)


@pytest.mark.long
def test_silent_on_noise_and_below_the_truth() -> None:
    silent = np.array([_bound(0.0, 400, seed) for seed in range(150)])
    assert np.mean(silent > 0) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 150)
    found = np.array([_bound(1.0, 400, seed) for seed in range(30)])
    assert np.mean(found > epsilon_of(1.0, DELTA)) <= 0.05
    assert np.median(found) > 1


def test_nominal_for_a_mechanism_that_uses_all_of_it() -> None:
    """Randomised response that publishes a canary outright with probability delta: never above nominal."""
    epsilon, delta, count = 1.0, 1e-3, 500
    counts, rng = 2 * np.array(PAIRS), np.random.default_rng(0)
    weights = np.repeat([1, 2, 3, 4], counts)
    accuracy = delta + (1 - delta) / (1 + math.exp(-epsilon))
    rights = (rng.random((4000, len(weights))) < accuracy) @ weights
    values = {
        int(right): weighted_p_value(counts, int(right), count, epsilon, delta) for right in np.unique(rights)
    }
    found = np.array([values[int(right)] for right in rights])
    for level in (0.01, 0.05, 0.2):
        assert np.mean(found <= level) <= level + 3 * math.sqrt(level / 4000)
    assert np.mean(found <= 0.2) > 0.1


@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_tighter_than_guesses_of_equal_weight(confidence: float) -> None:
    """By Mahloujifar et al. 2024, on a Gaussian mechanism's scores."""
    equal, weighted = [], []
    for seed in range(5):
        scores, included = _gaussian(1.5, 4000, seed)
        bound = one_run_fdp_bound(scores, included, delta=DELTA, confidence=confidence, guesses=[200])
        equal.append(bound.epsilon or 0.0)
        weighted.append(_bound(1.5, 4000, seed, (60, 45, 30, 20), confidence))
    assert np.mean(weighted) > (1.02 if confidence == 0.95 else 1.0) * np.mean(equal)


def test_thousands_of_guesses_are_counted_one_by_one() -> None:
    """All 6,002 of weight 1 are right: one of them more or less moves the bound."""
    scores, included = np.arange(7000.0), np.arange(7000) >= 3500
    assert weighted_right(scores, included, [3001]) == 6002
    assert weighted_bound([6002], 6002, 7000, DELTA, 0.05) != weighted_bound([6000], 6000, 7000, DELTA, 0.05)


def test_a_bound_is_the_last_epsilon_that_is_rejected() -> None:
    for counts, right in (([824], 813), ([400, 200, 100], 1050), ([2000], 2000)):
        for level in (0.05, 0.001):
            found = weighted_bound(counts, right, 20_000, DELTA, level)
            assert weighted_p_value(counts, right, 20_000, found, DELTA) < level
            for more in (1.01, 1.5, 4):
                assert weighted_p_value(counts, right, 20_000, more * found, DELTA) >= level


@pytest.mark.parametrize(("counts", "right"), [([], 0), ([3], 4), ([0, 2], 5), ([-1, 2], 1), ([5, 6], 3)])
def test_nonsense_is_refused(counts: list[int], right: int) -> None:
    with pytest.raises(ValueError, match="counts must not be negative"):
        weighted_p_value(counts, right, 10, 1.0, 0.0)
