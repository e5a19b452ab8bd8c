"""The analytic Gaussian mechanism: against closed forms, mpmath-free identities, and published numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.privacy.gaussian import (
    calibrate_sigma,
    compose_mu,
    delta_of,
    epsilon_of,
    log_delta_of,
    mu_of,
    reconstruction_ceiling,
    tpr_bound,
    tpr_bound_approx_dp,
)
from fedassay.privacy.paper_formulas import (
    classical_sigma,
    fedlog_released_code_sigma,
    fedlog_theorem_4_sigma,
    fedpft_lemma_b2_sigma,
    fedpft_remark_b3_sensitivity,
    fedpft_remark_b3_sigma,
    fedpft_theorem_4_1_sensitivity,
    fedpft_theorem_4_1_sigma,
)


def profile_by_quadrature(mu: float, epsilon: float) -> float:
    """E max(0, 1 - exp(epsilon - L)), L ~ N(mu^2/2, mu^2): an independent road to delta."""
    start = max(epsilon, mu * mu / 2 - 40 * mu)  # the integrand is 0 below epsilon
    z_low, z_high = (start - mu * mu / 2) / mu, max((start - mu * mu / 2) / mu, 0) + 12
    nodes, weights = np.polynomial.legendre.leggauss(400)
    z = z_low + (z_high - z_low) * (nodes + 1) / 2
    values = -np.expm1(epsilon - (mu * mu / 2 + mu * z)) * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return float((z_high - z_low) / 2 * np.sum(weights * np.maximum(values, 0)))


@pytest.mark.parametrize(
    ("mu", "epsilon"),
    [(1, 1), (1, 4.377), (0.01, 0), (0.01, 0.02), (0.3, 1.5), (0.499, 0.1), (0.501, 0.1), (5, 3), (30, 700)],
)
def test_profile_agrees_with_numerical_integration(mu, epsilon):
    assert delta_of(mu, epsilon) == pytest.approx(profile_by_quadrature(mu, epsilon), rel=1e-9)


def test_profile_is_continuous_where_the_formula_switches():
    for epsilon in (1e-6, 0.01, 1.0, 10.0):
        assert log_delta_of(0.5 - 1e-12, epsilon) == pytest.approx(log_delta_of(0.5 + 1e-12, epsilon), rel=1e-9)
    for mu in (1e-6, 0.01, 0.4):  # the Mills ratio's slope turns to its asymptotic series at x = 50
        low, high = log_delta_of(mu, 50 * mu * (1 - 1e-9)), log_delta_of(mu, 50 * mu * (1 + 1e-9))
        assert low == pytest.approx(high, abs=1e-5)
    assert log_delta_of(0.01, 1e4) == pytest.approx(-0.5e12, rel=1e-6)
    mu = 40.0
    epsilon = mu * (mu / 2 - 5)
    assert delta_of(mu, epsilon * (1 - 1e-13)) == pytest.approx(delta_of(mu, epsilon * (1 + 1e-13)), rel=1e-10)


@settings(max_examples=200, deadline=None)
@given(
    log_epsilon=st.floats(math.log(1e-4), math.log(1e4)),
    log_delta=st.floats(math.log(1e-300), math.log(0.5)),
)
def test_inverse_holds_over_the_whole_range(log_epsilon, log_delta):
    epsilon, delta = math.exp(log_epsilon), math.exp(log_delta)
    mu = mu_of(epsilon, delta)
    assert log_delta_of(mu, epsilon) == pytest.approx(math.log(delta), rel=1e-7, abs=1e-7)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6)
    assert log_delta_of(mu * (1 + 1e-4), epsilon) > log_delta_of(mu, epsilon)


def test_small_epsilon_limit_is_the_total_variation_distance():
    assert delta_of(1.0, 0.0) == pytest.approx(math.erf(1 / (2 * math.sqrt(2))), rel=1e-14)
    assert mu_of(0.0, delta_of(1e-9, 0.0)) == pytest.approx(1e-9, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 1 - 1e-12])
def test_numbers_whose_squares_overflow_are_answered(delta):
    for mu in (9e4, 1.1e5, 1e8, 1e19, 1e100, 1e153):
        assert epsilon_of(mu, delta) == pytest.approx(mu * mu / 2, rel=max(100 / mu, 2e-9))
        assert mu_of(epsilon_of(mu, delta), delta) == pytest.approx(mu, rel=1e-8)
    assert epsilon_of(1e308, delta) == math.inf
    assert 0 < calibrate_sigma(1.7e308, delta) < 1e-150


def test_edges():
    assert delta_of(0.0, 1.0) == 0.0
    assert delta_of(math.inf, 1.0) == 1.0
    assert epsilon_of(0.0, 1e-5) == 0.0
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert epsilon_of(1e-9, 1e-5) == 0.0  # (0, delta)-DP already
    assert mu_of(math.inf, 1e-5) == math.inf
    assert calibrate_sigma(math.inf, 1e-5) == 0.0
    assert compose_mu([]) == 0.0
    assert compose_mu([3.0, 4.0]) == 5.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_calibration_refuses_epsilon(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        calibrate_sigma(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_delta_is_refused_outside_its_range(delta):
    for call in (lambda: epsilon_of(1.0, delta), lambda: mu_of(1.0, delta), lambda: calibrate_sigma(1.0, delta)):
        with pytest.raises(ValueError, match="delta"):
            call()


def test_agrees_with_dp_accounting():
    gaussian = pytest.importorskip("dp_accounting.gaussian_mechanism")
    for sigma, delta in [(1.0, 1e-5), (0.2, 1e-5), (8.0, 1e-9), (0.05, 1e-3)]:
        assert epsilon_of(1 / sigma, delta) == pytest.approx(gaussian.get_epsilon_gaussian(sigma, delta), rel=1e-6)


def test_trade_off_curves():
    fpr = np.linspace(0, 1, 101)
    curve = tpr_bound(1.0, fpr)
    assert curve[0] == 0
    assert curve[-1] == 1
    assert np.all(np.diff(curve) >= 0)
    # mu-GDP is (epsilon, delta(epsilon))-DP for every epsilon, and exactly the envelope of those bounds.
    envelope = np.min(
        [tpr_bound_approx_dp(eps, delta_of(1.0, eps), fpr) for eps in np.linspace(0, 8, 4001)], axis=0
    )
    assert np.all(curve <= envelope + 1e-12)
    np.testing.assert_allclose(curve, envelope, atol=1e-4)
    assert tpr_bound_approx_dp(1e5, 0.0, [0.0, 0.1]).tolist() == [0.0, 1.0]
    assert tpr_bound(math.inf, [0.3])[0] == 1.0


def test_reconstruction_ceiling_without_a_release_is_the_blind_guess():
    np.testing.assert_allclose(reconstruction_ceiling([0.01, 0.3], 0.0), [0.01, 0.3])
    # The ceiling is attained by a Gaussian location test of that size.
    rng = np.random.default_rng(0)
    threshold = np.quantile(rng.standard_normal(400_000), 0.9)
    success = np.mean(rng.standard_normal(400_000) + 1.5 > threshold)
    assert success == pytest.approx(float(reconstruction_ceiling(0.1, 1.5)), abs=0.005)


def test_classical_formula_fails_beyond_one_as_measured():
    assert epsilon_of(1 / classical_sigma(10, 1e-5), 1e-5) == pytest.approx(10.39, abs=0.005)
    assert epsilon_of(1 / classical_sigma(50, 1e-5), 1e-5) == pytest.approx(96.4, abs=0.05)
    assert epsilon_of(1 / classical_sigma(0.9, 1e-5), 1e-5) < 0.9


def test_fedpft_lemma_b2_true_deltas():
    assert delta_of(1 / fedpft_lemma_b2_sigma(10, 1e-5), 10) == pytest.approx(1.36e-5, rel=5e-3)
    assert delta_of(1 / fedpft_lemma_b2_sigma(10, 1e-2), 10) == pytest.approx(2.45e-2, rel=5e-3)


def test_fedpft_theorem_4_1_is_lemma_b2_at_half_delta():
    for n in (1, 500):
        expected = fedpft_lemma_b2_sigma(3.0, 1e-5 / 2, fedpft_theorem_4_1_sensitivity(n))
        assert fedpft_theorem_4_1_sigma(3.0, 1e-5, n) == pytest.approx(expected, rel=1e-14)


def test_fedpft_theorem_4_1_true_guarantees_on_both_sensitivities():
    n = 10**6  # the exact sensitivity's limit, sqrt(20)/n
    exact = math.sqrt(4 + 16 * (n - 1) ** 2 / n**2) / n
    stated = fedpft_theorem_4_1_sensitivity(n)

    def truth(sensitivity: float, epsilon: float, delta: float) -> tuple[float, float]:
        mu = sensitivity / fedpft_theorem_4_1_sigma(epsilon, delta, n)
        return delta_of(mu, epsilon), epsilon_of(mu, delta)

    delta, _ = truth(stated, 10, 1e-2)
    assert delta == pytest.approx(1.16e-2, rel=5e-3)
    delta, epsilon = truth(exact, 10, 1e-2)
    assert delta == pytest.approx(1.7e-5, rel=3e-2)
    assert epsilon == pytest.approx(6.18, abs=5e-3)
    delta, epsilon = truth(stated, 50, 1e-5)
    assert delta == pytest.approx(0.40, abs=5e-3)
    assert epsilon == pytest.approx(89.6, abs=0.05)
    delta, epsilon = truth(exact, 50, 1e-5)
    assert delta == pytest.approx(6.8e-5, rel=1e-2)
    assert epsilon == pytest.approx(53.1, abs=0.05)
    delta, _ = truth(exact, 50, 1e-2)
    assert delta == pytest.approx(0.545, abs=5e-4)


def test_fedpft_remark_b3_formula():
    n, epsilon, delta = 200, 2.0, 1e-4
    expected = 2 * math.sqrt(2) / n * math.sqrt(2 * math.log(2 / delta)) / epsilon
    assert fedpft_remark_b3_sigma(epsilon, delta, n) == pytest.approx(expected, rel=1e-15)
    assert fedpft_remark_b3_sensitivity(n) == pytest.approx(2.8284271 / n)


def test_tight_needs_at_most_a_quarter_of_the_papers_noise():
    n = 500
    tight = calibrate_sigma(1.0, 1e-5, math.sqrt(4.5) / n)
    assert tight / fedpft_theorem_4_1_sigma(1.0, 1e-5, n) <= 0.26


def test_fedlog_nominal_against_true_epsilon():
    m, b, delta, releases = 50, 2.0, 0.01, 101
    sensitivity = math.sqrt(1 + (m - 1) * b**2)
    released = fedlog_released_code_sigma(0.5, delta, features=m, clip=b)
    assert epsilon_of(sensitivity / released * math.sqrt(releases), delta) == pytest.approx(4.46, abs=5e-3)
    paper = fedlog_theorem_4_sigma(0.5, delta, rounds=releases, features=m, clip=b)
    assert epsilon_of(sensitivity / paper * math.sqrt(releases), delta) == pytest.approx(0.076, abs=5e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: classical_sigma(0.0, 1e-5),
        lambda: classical_sigma(math.inf, 1e-5),
        lambda: fedpft_theorem_4_1_sigma(1.0, 0.0, 10),
        lambda: fedpft_theorem_4_1_sigma(1.0, 1e-5, 0),
        lambda: fedlog_theorem_4_sigma(1.0, 1e-5, rounds=0, features=2, clip=2.0),
        lambda: fedlog_released_code_sigma(1.0, 1e-5, features=0, clip=2.0),
        lambda: fedlog_released_code_sigma(1.0, 1e-5, features=2, clip=0.0),
        lambda: delta_of(-1.0, 1.0),
        lambda: delta_of(1.0, -1.0),
        lambda: calibrate_sigma(1.0, 1e-5, math.nan),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
