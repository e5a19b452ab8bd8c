"""One-run bounds: valid on simulated mechanisms whose epsilon is known, and reasonably close to it."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from fedassay.audits.stats.epsilon_bound import checked_scores
from fedassay.audits.stats.one_run import guess_counts, one_run_bound, p_value
from fedassay.audits.stats.one_run_fdp import approximate_inverse, gaussian_inverse, one_run_fdp_bound, rejects
from fedassay.privacy.gaussian import delta_of, epsilon_of, mu_of

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


ESTIMATORS = {
    "one run": lambda *a, **k: one_run_bound(*a, delta=DELTA, **k),
    "f-DP gaussian": lambda *a, **k: one_run_fdp_bound(*a, delta=DELTA, **k),
    "f-DP approximate": lambda *a, **k: one_run_fdp_bound(*a, delta=DELTA, family="approximate", **k),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_silent_on_noise(name):
    claims = [ESTIMATORS[name](*gaussian_canaries(0.0, 300, seed)).epsilon > 0 for seed in range(TRIALS)]
    assert np.mean(claims) <= ALLOWED


@pytest.mark.parametrize("name", ESTIMATORS)
def test_below_the_truth_for_gaussian_canaries(name):
    truth = epsilon_of(1.0, DELTA)
    found = [ESTIMATORS[name](*gaussian_canaries(1.0, 300, seed)).epsilon for seed in range(60)]
    assert np.mean(np.array(found) > truth) <= 0.05
    assert np.median(found) > 0.8


@pytest.mark.parametrize("name", ["one run", "f-DP approximate"])
def test_nominal_and_close_for_randomised_response(name):
    """The mechanism that attains the binomial bound: the miss rate may come near nominal, not above."""
    epsilon = 1.0
    found = np.array(
        [
            ESTIMATORS[name](*randomised_response(epsilon, 1000, seed), guesses=[1000]).epsilon
            for seed in range(200)
        ]
    )
    assert np.mean(found > epsilon) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 150)
    assert np.median(found) >= 0.75 * epsilon


def test_f_dp_refinement_is_tighter_for_gaussian_canaries():
    scores, included = gaussian_canaries(1.0, 4000, 0)
    plain = one_run_bound(scores, included, delta=DELTA).epsilon
    refined = one_run_fdp_bound(scores, included, delta=DELTA)
    assert plain < refined.epsilon < epsilon_of(1.0, DELTA)
    assert refined.mu == pytest.approx(mu_of(refined.epsilon, DELTA), rel=1e-6)


def test_p_value_against_a_direct_sum():
    m, r, v, epsilon, delta = 50, 40, 30, 0.7, 1e-3
    q = 1 / (1 + math.exp(-epsilon))
    tail = [binom.sf(k - 1, r, q) for k in range(r + 2)]
    alpha = max((tail[v - i] - tail[v]) / i for i in range(1, v + 1))
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(tail[v] + 2 * m * delta * alpha, rel=1e-10)
    assert p_value(m, r, v, epsilon, 0.0) == pytest.approx(tail[v], rel=1e-10)
    assert p_value(m, r, 0, epsilon, delta) == 1.0


def test_p_values_are_valid_for_a_mechanism_that_uses_its_delta():
    """With probability delta a canary is published outright, else randomised response: the worst case."""
    m, epsilon, delta = 60, 0.5, 0.02
    accuracy = delta + (1 - delta) / (1 + math.exp(-epsilon))
    counts = np.random.default_rng(0).binomial(m, accuracy, size=20_000)
    values = np.array([p_value(m, m, int(v), epsilon, delta) for v in range(m + 1)])[counts]
    for level in (0.01, 0.05, 0.2):
        assert np.mean(values <= level) <= level + 3 * math.sqrt(level / 20_000)


def test_f_dp_rejections_are_valid_for_its_own_mechanisms():
    """Exact laws: guessing all canaries of a mu-GDP sum, and randomised response, are rejected too rarely."""
    m = 80
    accuracy = float(np.mean(np.random.default_rng(0).standard_normal(10**6) + 0.5 > 0))  # Phi(mu/2), mu = 1
    for level in (0.01, 0.05, 0.3):
        smallest = next(v for v in range(m + 2) if v > m or rejects(gaussian_inverse(1.0), m, m, v, level))
        assert binom.sf(smallest - 1, m, accuracy) <= level
        q = 1 / (1 + math.exp(-1.0))
        smallest = next(v for v in range(m + 2) if v > m or rejects(approximate_inverse(1.0, 0.0), m, m, v, level))
        assert binom.sf(smallest - 1, m, q) <= level


def test_trade_off_inverses():
    x = np.linspace(0, 1, 101)
    for inverse in (gaussian_inverse(1.3), approximate_inverse(1.0, 1e-3), approximate_inverse(0.0, 0.0)):
        y = np.array([inverse(float(value)) for value in x])
        assert y[0] == 0
        assert np.all(np.diff(y) >= -1e-15)
        assert np.all(np.diff(y, 2) >= -1e-12)  # convex
        assert np.all(y <= x + 1e-15)
    # mu-GDP is (epsilon, delta(epsilon))-DP, so its inverse lies above that of each such pair.
    for epsilon in (0.1, 1.0, 3.0):
        weaker = approximate_inverse(epsilon, delta_of(1.3, epsilon))
        assert all(gaussian_inverse(1.3)(float(v)) >= weaker(float(v)) - 1e-12 for v in x[1:-1])


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
        lambda: p_value(5, 6, 3, 1.0, 0.0),
        lambda: rejects(gaussian_inverse(1.0), 5, 4, 5, 0.05),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=0.0),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=-0.1),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=1.0, family="approximate"),
        lambda: checked_scores([[1.0, 2.0]], "scores"),
        lambda: checked_scores([1.0], "scores"),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=0.1, confidence=1.0),
        lambda: one_run_fdp_bound([1.0, 2.0], [True, False], delta=0.1, confidence=0.0),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
