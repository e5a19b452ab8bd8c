"""Confidence intervals by the declared type of the data, never by a look at them.

| type | interval | holds |
|---|---|---|
| `Binary()`: 0 or 1 | Clopper-Pearson, of the share | exactly, at every n |
| `Bounded(lower, upper)`: a range known beforehand | betting, of the mean | at every n, any distribution |
| `Unbounded("median")` | order statistics, of the median | exactly, from 6 values at 95 % |
| `Unbounded("mean")` | BCa bootstrap, of the mean | approximately, from 100 values; below that there is none |

A method that was chosen by how the values look has no coverage that anybody knows, so the caller says what they
are. All of them take values that are independent and of one distribution. tests/calibration simulates each one's
coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr
from scipy.stats import bootstrap

from fedassay.audits.stats.betting import betting_interval
from fedassay.audits.stats.estimate import Estimate, check_level
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.support.seeds import Seeds
from fedassay.support.types import Matrix

BOOTSTRAP_FROM = 100
"""Fewer values of unknown range say too little of their tails for any interval of their mean."""


@dataclass(frozen=True)
class Binary:
    """Values that are 0 or 1."""


@dataclass(frozen=True)
class Bounded:
    """Values in a range that is known before they are seen, such as [-1, 1] for SSIM."""

    lower: float
    upper: float


@dataclass(frozen=True)
class Unbounded:
    """Values of no known range, such as PSNR in dB; the median has an exact interval, the mean does not."""

    of: Literal["mean", "median"] = "median"


DataType = Binary | Bounded | Unbounded


def interval(values: ArrayLike, kind: DataType, *, level: float = 0.95) -> Estimate:
    """Two-sided confidence interval of the share, mean or median of independent values.

    Args:
        values: Shape (n,), n at least 1, finite.
        kind: Kind of the values.
        level: Coverage, in (0, 1).

    Returns:
        The estimate; without ends, and saying why, where no interval of this type holds at this n.

    Raises:
        ValueError: No values, values that are not finite or not of the type, or a level outside (0, 1).
    """
    array = np.asarray(values, dtype=np.float64)
    check_level(level)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise ValueError(f"one axis of at least one finite value is needed, got shape {array.shape}")
    if isinstance(kind, Binary):
        return _of_share(array, level)
    if isinstance(kind, Bounded):
        low, high = betting_interval(array, kind.lower, kind.upper, level=level)
        return Estimate(float(array.mean()), low, high, len(array), "betting")
    return _of_median(array, level) if kind.of == "median" else _of_mean(array, level)


def mean_within(values: Matrix, low: float | None, high: float | None) -> Estimate:
    """Interval of the mean of values of a range known beforehand, or of none; rounding beyond it is cut."""
    if low is None or high is None:
        return interval(values, Unbounded("mean"))
    return interval(values.clip(low, high), Bounded(low, high))


def mean_of_top(values: ArrayLike, ranks: ArrayLike, top: int, kind: DataType, *, level: float = 0.95) -> Estimate:
    """Mean (or median) of the values of the `top` highest-ranked records, with its interval.

    Given the rank of the next record below, the records above it are independent draws of all that rank higher
    than it does; so an interval of the data's type holds for these: "of records that rank above the k+1-th". It
    says nothing of the best share of a population, since its threshold is unknown; the bootstrap for that share
    (selecting anew in each resample) covers .84 to .92 where it says .95. Where records are ranked by the values
    themselves, the next one's bounds them from below, and the interval is one of that range.

    Args:
        values: Shape (n,).
        ranks: Selection keys of the records, higher first, shape (n,); it may be `values` itself.
        top: Number that are selected, 1 to n.
        kind: Data type of the values.
        level: Coverage, in (0, 1).

    Returns:
        The estimate; without ends where ranks tie across the selection's edge, or the type has no interval.
    """
    array, order = np.asarray(values, dtype=np.float64), np.asarray(ranks, dtype=np.float64)
    if array.shape != order.shape or not 1 <= top <= len(array):
        raise ValueError(
            f"top must lie in 1 to {len(array)} and ranks have shape {array.shape}, got {top}, {order.shape}"
        )
    if top == len(array):
        return interval(array, kind, level=level)
    best = np.argsort(-order, kind="stable")
    if order[best[top - 1]] == order[best[top]]:
        value = float(array[best[:top]].mean())
        return Estimate(value, None, None, top, reason="ranks tie at the edge of the selection")
    if isinstance(kind, Bounded) and np.array_equal(array, order.clip(kind.lower, kind.upper)):
        # Selected by their own values, none of them lies below the next one's.
        kind = Bounded(float(array[best[top]]), kind.upper)
    found = interval(array[best[:top]], kind, level=level)
    method = found.method and f"{found.method}, of records that rank above the next one"
    return Estimate(found.value, found.low, found.high, top, method, found.reason)


def _of_share(array: Matrix, level: float) -> Estimate:
    if not np.isin(array, (0.0, 1.0)).all():
        raise ValueError("values declared binary must be 0 or 1")
    ends = clopper_pearson(array.sum(), len(array), confidence=level)
    return Estimate(float(array.mean()), float(ends.low), float(ends.high), len(array), "Clopper-Pearson")


def _of_median(array: Matrix, level: float) -> Estimate:
    """Order statistics k and n + 1 - k, the largest k with P(Bin(n, 1/2) < k) <= (1 - level) / 2.

    David and Nagaraja, "Order Statistics" (2003), section 7.1.
    """
    n, miss, value = len(array), (1 - level) / 2, float(np.median(array))
    below = bdtr(np.arange((n + 1) // 2), n, 0.5)
    k = int(np.count_nonzero(below <= miss))
    if k == 0:
        needed = math.ceil(1 - math.log2(1 - level))
        reason = f"{n} values have no {level:.0%} interval of their median; {needed} have"
        return Estimate(value, None, None, n, reason=reason)
    ordered = np.sort(array)
    return Estimate(value, float(ordered[k - 1]), float(ordered[n - k]), n, "median, order statistics")


def _of_mean(array: Matrix, level: float) -> Estimate:
    n, value = len(array), float(array.mean())
    if n < BOOTSTRAP_FROM:
        reason = (
            f"{n} values of no known range have no interval of their mean that holds (from {BOOTSTRAP_FROM} on an "
            "approximate one is given)"
        )
        return Estimate(value, None, None, n, reason=reason)
    if array.min() == array.max():
        return Estimate(value, value, value, n, "bootstrap (approximate)")
    ends = bootstrap(
        (array,), np.mean, n_resamples=4000, batch=500, confidence_level=level, rng=Seeds(0).numpy("bootstrap", n)
    ).confidence_interval
    return Estimate(value, float(ends.low), float(ends.high), n, "bootstrap (approximate)")
