"""FedLog's head: the most likely parameters of an exponential family, given summed statistics.

The model (Yu et al. 2026, equations 4, 11 and 14): features phi of a record of class y have density proportional
to exp(eta_y . phi - |phi|^2); the first feature is the constant 1. Its sufficient statistic is phi kron e_y. With
the conjugate prior (chi, nu), the log-posterior of eta, shape (C, m), given the summed statistics T of n records
is, up to a constant,

    eta . (chi + T) - (nu + n) log sum_y exp(|eta_y|^2 / 4).

Divided by nu + n > 0, with g = (chi + T) / (nu + n), minus that is the strictly convex

    F(eta) = log sum_y exp(|eta_y|^2 / 4) - eta . g.

Only |eta_y| enters the first term, so the minimiser's eta_y points along g_y. With a_y = |g_y| there remains the
minimisation over C radii of log sum_y exp(r_y^2 / 4) - a . r, which is convex too and takes a damped Newton method
a handful of steps (Boyd and Vandenberghe, "Convex Optimization", section 9.5). At the minimum eta_y = 2 g_y / p_y
with p = softmax(r^2 / 4): about twice the class mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.support.errors import DataError

TOLERANCE = 1e-9
"""Default bound on the gradient's norm, relative to 1 + |g|."""

_STEPS = 200
_ARMIJO = 0.25
_SHORTEST = 1e-12


@dataclass(frozen=True, eq=False)
class MapHead:
    """A head, and how well it was solved for.

    Attributes:
        eta: Shape (C, m), finite always.
        gradient: Norm of the gradient of F at `eta` over 1 + |g|.
        tolerance: The requested tolerance.
        steps: Newton steps taken.
    """

    eta: NDArray[np.float64]
    gradient: float
    tolerance: float
    steps: int

    @property
    def converged(self) -> bool:
        """Whether the gradient is within the tolerance."""
        return self.gradient <= self.tolerance


def objective(eta: NDArray[np.float64], g: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """F and its gradient at eta (C, m), for g = (chi + T) / (nu + n) (C, m)."""
    exponents = np.sum(eta**2, axis=1) / 4
    log_sum, p = _log_sum_exp(exponents)
    return log_sum - float(np.sum(eta * g)), p[:, None] * eta / 2 - g


def map_head(
    statistics: NDArray[np.float64],
    records: float,
    *,
    nu: float = 1.0,
    tolerance: float = TOLERANCE,
    steps: int = _STEPS,
) -> MapHead:
    """Solve for the most likely head (equation 14, chi = 0).

    Args:
        statistics: T, shape (C, m), C >= 1.
        records: n; may be a noised count.
        nu: Weight of the prior, in records: 1 in the paper, 0 in the authors' released code.
        tolerance: Bound on the gradient's norm, relative to 1 + |g|.
        steps: Largest number of Newton steps.

    Returns:
        A finite head. Whether it meets the tolerance is for the caller to look at (`converged`):
        rounding ends the descent where the tolerance is out of reach, at about 1e-16 times the square of
        the summed |g_y|. A class without statistics
        (T_y = 0) has eta_y = 0.

    Raises:
        DataError: T is not finite.
        ValueError: T is no matrix, or nu + records <= 0, where the posterior has no maximum: clamp first.
    """
    if statistics.ndim != 2 or statistics.size == 0:
        raise ValueError(f"statistics must have shape (C, m), given {statistics.shape}")
    weight = nu + records
    if not (weight > 0 and math.isfinite(weight)):
        raise ValueError(f"nu + records = {weight:g}: without weight above 0 the posterior has no maximum")
    g = np.asarray(statistics, dtype=np.float64) / weight
    if not np.isfinite(g).all():
        raise DataError("head: the summed statistics hold NaN or infinite values; there is no head for them")
    lengths = np.linalg.norm(g, axis=1)
    radii, taken = _radii(lengths, tolerance, steps)
    scales = np.divide(radii, lengths, out=np.zeros_like(radii), where=lengths > 0)
    eta = scales[:, None] * g
    _, slope = objective(eta, g)
    return MapHead(eta, float(np.linalg.norm(slope)) / (1 + float(np.linalg.norm(g))), tolerance, taken)


def _radii(a: NDArray[np.float64], tolerance: float, most: int) -> tuple[NDArray[np.float64], int]:
    """Minimise log sum_y exp(r_y^2 / 4) - a . r by Newton's method with backtracking."""
    bound = tolerance * (1 + float(np.linalg.norm(a)))
    # p_y r_y = 2 a_y at the minimum: exact for one class, and close where radii are large and similar.
    radii = np.where(a > 0, 2 * a.sum(), 0.0)
    value, slope, p = _reduced(radii, a)
    for taken in range(most):
        if float(np.linalg.norm(slope)) <= bound:
            return radii, taken
        weighted = p * radii / 2
        curvature = np.diag(p / 2 + weighted * radii / 2) - np.outer(weighted, weighted)
        direction = _newton(curvature, slope)
        descent = float(slope @ direction)
        length = 1.0
        while True:
            trial = radii + length * direction
            new_value, new_slope, new_p = _reduced(trial, a)
            if new_value <= value + _ARMIJO * length * descent:
                break
            # At the level of rounding the value stands still while the gradient still falls.
            if abs(new_value - value) <= 1e-15 * (1 + abs(value)) and np.linalg.norm(new_slope) < np.linalg.norm(
                slope
            ):
                break
            length /= 2
            if length < _SHORTEST:
                return radii, taken
        radii, value, slope, p = trial, new_value, new_slope, new_p
    return radii, most


def _reduced(
    radii: NDArray[np.float64], a: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Value, gradient and p of the problem in the radii."""
    log_sum, p = _log_sum_exp(radii**2 / 4)
    return log_sum - float(a @ radii), p * radii / 2 - a, p


def _newton(curvature: NDArray[np.float64], slope: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Newton direction, or the steepest one where rounding leaves no positive-definite curvature."""
    try:
        factor = np.linalg.cholesky(curvature)
    except np.linalg.LinAlgError:
        return -slope
    return np.asarray(-np.linalg.solve(factor.T, np.linalg.solve(factor, slope)), dtype=np.float64)


def _log_sum_exp(exponents: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Logarithm of the sum of exponentials, and their shares."""
    top = float(exponents.max())
    shares = np.exp(exponents - top)
    total = float(shares.sum())
    return top + math.log(total), shares / total
