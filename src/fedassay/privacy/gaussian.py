"""The Gaussian mechanism, exactly: calibration, accounting, and the errors that it permits.

A Gaussian mechanism with L2 sensitivity D and noise standard deviation s is described by
one number, mu = D / s (it is mu-GDP, tightly: Dong, Roth and Su, "Gaussian Differential
Privacy", 2019, Theorem 1). Its privacy profile is (Balle and Wang, "Improving the Gaussian
Mechanism for Differential Privacy", 2018, Theorem 8)

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu),

and adaptive composition of Gaussian mechanisms is again Gaussian with mu^2 = sum mu_i^2
(Dong, Roth and Su, Corollary 2). Everything is computed in log space, so that epsilon from
1e-4 to 1e4 and delta down to 1e-300 come out right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, log_ndtr, ndtr, ndtri

# Gauss-Legendre nodes for the Mills-ratio difference below; 20 give full precision on [x, x + 0.5].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_SMALL_MU = 0.5
_HUGE_MU = 1e5  # beyond, the first term of the profile is all of it, and the second is lost to rounding


def _check(epsilon: float | None = None, delta: float | None = None, mu: float | None = None) -> None:
    if epsilon is not None and not epsilon >= 0:
        raise ValueError(f"epsilon must be at least 0, got {epsilon}")
    if delta is not None and not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")
    if mu is not None and not mu >= 0:
        raise ValueError(f"mu must be at least 0, got {mu}")


def _mills(x: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Mills ratio (1 - Phi(x)) / phi(x), stable for large positive x."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(np.asarray(x) / math.sqrt(2)), dtype=np.float64)


def _mills_slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minus the derivative of the Mills ratio, 1 - x R(x), without its cancellation for large x."""
    inverse = 1 / np.maximum(x, 1.0) ** 2
    series = inverse * (1 - inverse * (3 - inverse * (15 - inverse * (105 - inverse * 945))))
    return np.where(x > 50, series, 1 - x * _mills(x))


def log_delta_of(mu: float, epsilon: float) -> float:
    """Natural logarithm of `delta_of`; -inf where delta is 0.

    With phi(a) = exp(epsilon) phi(b) for a = mu/2 - epsilon/mu and b = a - mu, the profile is
    phi(a) (R(-a) - R(-b)), R the Mills ratio: no cancellation of exponentials. For small mu
    the difference itself cancels, and is integrated instead (R' = x R - 1).
    """
    _check(epsilon=epsilon, mu=mu)
    if mu == 0:
        return -math.inf
    if math.isinf(mu):
        return 0.0
    if math.isinf(epsilon):
        return -math.inf
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2  # -a and -b
    if mu < _SMALL_MU:
        x = low + mu * (_NODES + 1) / 2
        difference = float(mu / 2 * np.sum(_WEIGHTS * _mills_slope(x)))
        return _log_of(low, difference)
    if low > -5:
        return _log_of(low, float(_mills(low) - _mills(high)))
    # Far inside mu >> sqrt(2 epsilon): delta is close to 1, and 1 - delta must be precise.
    lost = float(ndtr(low)) + math.exp(epsilon + float(log_ndtr(-high)))
    return math.log1p(-min(lost, 1.0 - 1e-16))


def _log_of(low: float, difference: float) -> float:
    """Logarithm of phi(low) times a difference of Mills ratios; -inf where that is too small for a double."""
    if not difference > 0:
        return -math.inf
    return -0.5 * low * low - 0.5 * math.log(2 * math.pi) + math.log(difference)


def delta_of(mu: float, epsilon: float) -> float:
    """The smallest delta for which a mu-GDP (Gaussian) mechanism is (epsilon, delta)-DP.

    Balle and Wang (2018), Theorem 8.

    Args:
        mu: sensitivity over noise standard deviation, at least 0 (0: nothing is released; inf: no noise).
        epsilon: at least 0.

    Raises:
        ValueError: if mu or epsilon is negative or NaN.

    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    return math.exp(log_delta_of(mu, epsilon))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high, xtol=1e-300, rtol=8.9e-16, maxiter=500))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 for which a mu-GDP (Gaussian) mechanism is (epsilon, delta)-DP.

    Args:
        mu: sensitivity over noise standard deviation, at least 0; inf gives inf.
        delta: strictly between 0 and 1.

    Raises:
        ValueError: if mu is negative or NaN, or delta is outside (0, 1).

    >>> round(epsilon_of(1.0, 1e-5), 7)
    4.3771781
    """
    _check(delta=delta, mu=mu)
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    target = math.log(delta)
    if log_delta_of(mu, 0.0) <= target:
        return 0.0
    # delta(epsilon) <= Phi(mu/2 - epsilon/mu), which solves in closed form; the margin absorbs rounding.
    high = mu * (0.5 * mu - float(ndtri(delta))) * (1 + 1e-9) + 1e-300
    if mu > _HUGE_MU:
        return high  # off by 1e-9 of itself, which is the margin
    return _root(lambda epsilon: log_delta_of(mu, epsilon) - target, 0.0, high)


# A method asks for the same pair once for every class and client.
@lru_cache(maxsize=1024)
def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu for which a Gaussian mechanism is (epsilon, delta)-DP: the inverse of `epsilon_of`.

    Raises:
        ValueError: if epsilon is negative or NaN, or delta is outside (0, 1).

    >>> round(mu_of(4.3771781, 1e-5), 6)
    1.0
    """
    _check(epsilon=epsilon, delta=delta)
    if math.isinf(epsilon):
        return math.inf
    if epsilon == 0:
        return 2 * math.sqrt(2) * float(erfinv(delta))
    target = math.log(delta)
    quantile = -float(ndtri(delta))
    root = math.hypot(quantile, math.sqrt(2) * math.sqrt(epsilon))
    # The mu at which Phi(mu/2 - epsilon/mu) = delta, the profile's first term alone: never too large.
    low = (epsilon / ((quantile + root) / 2) if quantile > 0 else root - quantile) * (1 - 1e-9)
    if low > _HUGE_MU:
        return low
    # The mu of epsilon 0 is not too large either; it is the larger one where epsilon is nearly 0.
    low = max(low, 2 * math.sqrt(2) * float(erfinv(delta)) * (1 - 1e-9))
    if not log_delta_of(low, epsilon) < target:
        return low  # the last bits of the smallest numbers
    high = 2 * low
    while log_delta_of(high, epsilon) <= target:
        high *= 2
    return _root(lambda mu: log_delta_of(mu, epsilon) - target, low, high)


def calibrate_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest noise standard deviation for (epsilon, delta)-DP: the analytic Gaussian mechanism.

    Balle and Wang (2018), Algorithm 1; valid for every epsilon, unlike `classical_sigma`.

    Args:
        epsilon: greater than 0; inf gives 0.
        delta: strictly between 0 and 1.
        sensitivity: L2 sensitivity for the adjacency that the claim names, at least 0.

    Raises:
        ValueError: if an argument is outside its range.

    >>> round(calibrate_sigma(1.0, 1e-5, 1.0), 4)
    3.7306
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be greater than 0, got {epsilon}")
    if not (sensitivity >= 0 and math.isfinite(sensitivity)):
        raise ValueError(f"sensitivity must be finite and at least 0, got {sensitivity}")
    return sensitivity / mu_of(epsilon, delta)


def compose_mu(mus: Iterable[float]) -> float:
    """Return mu of the (adaptive) composition of Gaussian mechanisms: the square root of the sum of squares.

    Raises:
        ValueError: if one of them is negative or NaN.
    """
    mus = list(mus)
    for mu in mus:
        _check(mu=mu)
    return math.hypot(*mus)


def tpr_bound(mu: float, fpr: ArrayLike) -> NDArray[np.float64]:
    """Highest true-positive rate of any test between neighbours of a mu-GDP release.

    1 - T(N(0,1), N(mu,1)) at `fpr` = Phi(Phi^-1(fpr) + mu): Dong, Roth and Su (2019), eq. 6.

    Args:
        mu: at least 0.
        fpr: false-positive rates in [0, 1], any shape.

    Returns:
        Array of the shape of `fpr`.
    """
    _check(mu=mu)
    rates = np.asarray(fpr, dtype=np.float64)
    if math.isinf(mu):
        return np.ones_like(rates)
    return cast(NDArray[np.float64], np.asarray(ndtr(ndtri(rates) + mu), dtype=np.float64))


def mu_of_power(tpr: float, fpr: float) -> float:
    """The Gaussian-DP parameter at which the best test has this power: the inverse of `tpr_bound` in mu.

    Args:
        tpr: true-positive rate in (0, 1).
        fpr: false-positive rate in (0, 1).

    Returns:
        Phi^-1(tpr) - Phi^-1(fpr); negative where the test is worse than guessing.
    """
    return float(ndtri(tpr) - ndtri(fpr))


def tpr_bound_approx_dp(epsilon: float, delta: float, fpr: ArrayLike) -> NDArray[np.float64]:
    """Highest true-positive rate of any test between neighbours of an (epsilon, delta)-DP release.

    Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015), section 2:
    min(1, exp(epsilon) fpr + delta, 1 - exp(-epsilon) (1 - delta - fpr)).

    Args:
        epsilon: at least 0.
        delta: in [0, 1].
        fpr: false-positive rates in [0, 1], any shape.
    """
    _check(epsilon=epsilon)
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")
    rates = np.asarray(fpr, dtype=np.float64)
    if epsilon > 700:  # exp would overflow, and the bound is trivial except at fpr = 0
        return np.where(rates > 0, 1.0, delta)
    steep = math.exp(epsilon) * rates + delta
    flat = 1 - math.exp(-epsilon) * (1 - delta - rates)
    return np.minimum(1.0, np.minimum(steep, flat))


def reconstruction_ceiling(kappa: ArrayLike, mu: float) -> NDArray[np.float64]:
    """Highest probability of a reconstruction event under a mu-GDP release: Phi(Phi^-1(kappa) + mu).

    Reconstruction robustness (ReRo): Hayes, Mahloujifar and Balle, "Bounding Training Data
    Reconstruction in DP-SGD" (2023); Kaissis et al., "Bounding data reconstruction attacks with the
    hypothesis testing interpretation of differential privacy" (2023).

    Args:
        kappa: probability in [0, 1] that the best guess made WITHOUT the release succeeds at the very
            same event (same target, same success threshold, same number of attempts).
        mu: of the release, for the adjacency under which the target record is the one that differs.
    """
    return tpr_bound(mu, kappa)
