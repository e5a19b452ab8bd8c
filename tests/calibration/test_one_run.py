"""One-run bounds: valid on simulated mechanisms whose epsilon is known, and reasonably close to it."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from fedassay.audits.stats.epsilon_bound import checked_scores
from fedassay.audits.stats.one_run_fdp import approximate_inverse, guess_counts, one_run_fdp_bound, rejects
from fedassay.privacy.gaussian import epsilon_of

DELTA = 1e-5
TRIALS, ALLOWED = 400, 0.075


def gaussian_canaries(mu, m, seed):
    """Each canary moves its own coordinate of a noised sum by mu: exactly mu-GDP under add_remove."""
    rng = np.random.default_rng(seed)
    included = rng.random(m) < 0.5
    return included * mu + rng.standard_normal(m), included


def randomised_response(epsilon, m, seed):
    rng = np.random.default_rng(seed)
    included = rng.random(m) < 0.5
    honest = rng.random(m) < 1 / (1 + math.exp(-epsilon))
    return np.where(honest, included, ~included).astype(float), included


def bound(scores, included, confidence=0.95, **guesses):
    return one_run_fdp_bound(scores, included, delta=DELTA, confidence=confidence, **guesses).epsilon


def test_silent_on_noise():
    claims = [bound(*gaussian_canaries(0.0, 300, seed)) > 0 for seed in range(TRIALS)]
    assert np.mean(claims) <= ALLOWED


def test_below_the_truth_for_gaussian_canaries():
    truth = epsilon_of(1.0, DELTA)
    found = [bound(*gaussian_canaries(1.0, 300, seed)) for seed in range(60)]
    assert np.mean(np.array(found) > truth) <= 0.05
    assert np.median(found) > 0.8


def test_nominal_and_close_for_randomised_response():
    """The mechanism that attains the binomial bound: the miss rate may come near nominal, not above."""
    epsilon = 1.0
    found = np.array([bound(*randomised_response(epsilon, 1000, seed), guesses=[1000]) for seed in range(200)])
    assert np.mean(found > epsilon) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 150)
    assert np.median(found) >= 0.75 * epsilon


def test_rejections_are_valid_for_randomised_response():
    """Its exact law: so many right guesses of all canaries are rejected too rarely."""
    m, q = 80, 1 / (1 + math.exp(-1.0))
    for level in (0.01, 0.05, 0.3):
        smallest = next(v for v in range(m + 2) if v > m or rejects(approximate_inverse(1.0, 0.0), m, m, v, level))
        assert binom.sf(smallest - 1, m, q) <= level


def test_trade_off_inverses():
    x = np.linspace(0, 1, 101)
    for inverse in (approximate_inverse(1.0, 1e-3), approximate_inverse(0.0, 0.0)):
        y = np.array([inverse(float(value)) for value in x])
        assert y[0] == 0
        assert np.all(np.diff(y) >= -1e-15)
        assert np.all(np.diff(y, 2) >= -1e-12)  # convex
        assert np.all(y <= x + 1e-15)


def test_guesses_are_made_at_both_ends():
    scores = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 0.0])
    included = np.array([True, False, False, True, True, False])
    assert guess_counts(scores, included, [2, 4, 6]) == [(2, 2), (4, 4), (6, 4)]
    assert guess_counts(scores, ~included, [4]) == [(4, 0)]


def test_scores_of_any_type_are_doubles_and_may_be_infinite():
    found = checked_scores(np.array([math.inf, 0.1], np.float16), "scores")
    assert found.dtype == np.float64
    assert found.tolist() == [math.inf, float(np.float16(0.1))]


@pytest.mark.parametrize(
    "call",
    [
        lambda: guess_counts([1.0, 2.0], [True, False], [3]),
        lambda: guess_counts([1.0, 2.0], [True, False], []),
        lambda: guess_counts([1.0, 2.0], [1, 0], None),
        lambda: guess_counts([1.0, math.nan], [True, False], None),
        lambda: rejects(approximate_inverse(1.0, 0.0), 5, 4, 5, 0.05),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=-0.1, confidence=0.95),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=1.0, confidence=0.95),
        lambda: checked_scores([[1.0, 2.0]], "scores"),
        lambda: checked_scores([1.0], "scores"),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=0.1, confidence=1.0),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=0.1, confidence=0.0),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
