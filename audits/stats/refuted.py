"""The smallest epsilon that so many releases of two neighbours would have refuted: a claim's limit of detection.

A Gaussian mechanism of true parameter mu, scored by its likelihood ratio, has scores N(0, 1) and N(mu, 1). The
limit is the smallest mu, as an epsilon at the claim's delta, with a lower bound above the claim with probability
0.95:

- by the Gaussian-DP estimate (`gdp_bound`), from the noncentral t law that it inverts;
- by the assumption-free threshold bound (`threshold_bound`), at the threshold that serves it best: with
  probability 0.95 both counts are no worse than their 2.5 % quantiles. The bound assumes nothing of the scores;
  the limit is its value for a Gaussian mechanism.

Neither looks at the audited scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import minimum_filter1d
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from fedassay.audits.stats.detection import POWER
from fedassay.audits.stats.gdp_bound import LEAST
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.privacy.gaussian import epsilon_of, mu_of

_LARGEST = 60.0
_THRESHOLDS = np.linspace(-6.0, 6.0, 121)
_NEIGHBOURS = 7


@dataclass(frozen=True)
class Refuted:
    """The smallest true epsilon at which a claim would have been refuted; None where none would have been.

    Attributes:
        gaussian: By the Gaussian-DP estimate.
        free: By the assumption-free threshold bound.
        n: Releases a side.
        confidence: Of both bounds.
    """

    gaussian: float | None
    free: float | None
    n: int
    confidence: float

    @property
    def smallest(self) -> float | None:
        """The smaller epsilon of both estimators; None where neither refutes any."""
        return min((each for each in (self.gaussian, self.free) if each is not None), default=None)

    @property
    def words(self) -> str:
        """Both limits in one clause."""
        parts = [
            f"epsilon {value:.3g} by {name}" if value is not None else f"nothing by {name}"
            for name, value in (
                ("the Gaussian-DP estimate", self.gaussian),
                ("the assumption-free threshold bound", self.free),
            )
        ]
        return (
            f"{self.n} releases a side at confidence {self.confidence:.6g} would have refuted {', '.join(parts)}"
        )


def refuted_epsilon(claimed: float, *, delta: float, n: int, confidence: float, gaussian: bool = True) -> Refuted:
    """Return the smallest epsilon that so many releases would have refuted.

    Args:
        claimed: Epsilon, greater than 0.
        delta: In (0, 1).
        n: Releases a side, at least 4.
        confidence: Of the bounds, one-sided.
        gaussian: Whether the Gaussian-DP estimate was asked; it is not below `LEAST` releases a side.
    """
    start = mu_of(claimed, delta)
    found = _gaussian_mu(start, n, confidence) if gaussian and n >= LEAST else None
    free = _least(start, lambda mu: _threshold_sees(mu, claimed, delta, n // 2, confidence))
    return Refuted(
        None if found is None else epsilon_of(found, delta),
        None if free is None else epsilon_of(free, delta),
        n,
        confidence,
    )


def _gaussian_mu(claimed: float, n: int, confidence: float) -> float:
    """Abramowitz and Stegun (1964), 26.7.10, as `gdp_bound` inverts it; claimed and found are Gaussian mu."""
    root, freedom = math.sqrt(n / 2), 2 * n - 2
    quantile, power = float(ndtri(confidence)), float(ndtri(POWER))

    def spread(t: float) -> float:
        return math.sqrt(1 + t * t / (2 * freedom))

    # The t statistic from which the bound is above the claim.
    t = claimed * root
    for _ in range(50):
        t = (claimed * root + quantile * spread(t)) / (1 - 1 / (4 * freedom))
    return claimed + (quantile + power) * spread(t) / root


def _threshold_sees(mu: float, claimed: float, delta: float, tested: int, confidence: float) -> bool:
    """Whether a threshold on so many scores a side refutes the claim with the power that is asked for."""
    thresholds: NDArray[np.float64] = _THRESHOLDS + mu / 2
    miss = (1 - POWER) / 2
    hits = binom.ppf(miss, tested, ndtr(mu - thresholds))
    false = binom.ppf(1 - miss, tested, ndtr(-thresholds))
    level = (1 + confidence) / 2
    low = clopper_pearson(hits, tested, confidence=level, side="lower").low
    high = clopper_pearson(false, tested, confidence=level, side="upper").high
    bounds = np.log(np.maximum(low - delta, 1e-300) / high)
    # The threshold is chosen on the other half of the scores, which finds the neighbourhood of the best one.
    return bool(minimum_filter1d(bounds, _NEIGHBOURS, mode="nearest").max() > claimed)


def _least(start: float, sees: Callable[[float], bool]) -> float | None:
    """The smallest mu above `start` that is seen, to a thousandth; None where not even `_LARGEST` is."""
    low, high = start, max(_LARGEST, 2 * start)
    if not sees(high):
        return None
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if sees(middle) else (middle, high)
    return high
