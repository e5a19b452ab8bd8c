"""Confidence intervals: bootstrap for means and paired differences, exact and score for proportions."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr, ndtri

Floats = NDArray[np.float64]
Side = Literal["two", "lower", "upper"]

_BLOCK = 4_000_000  # resampled indices held at once


class Interval(NamedTuple):
    """Ends of a confidence interval, scalars or arrays of one shape."""

    low: Floats
    high: Floats


def bootstrap_mean(
    values: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 4000,
    method: Literal["percentile", "bca"] = "bca",
) -> Interval:
    """Two-sided bootstrap interval of the mean of independent values.

    Efron and Tibshirani, "An Introduction to the Bootstrap" (1993): percentile interval, section 13.3;
    bias-corrected and accelerated (BCa), section 14.3, with the jackknife acceleration, which for a mean is
    in closed form.

    Args:
        values: (n,) for one mean, or (n, k) for k means at once, whose rows are resampled together.
        rng: drives the resampling.
        confidence: in (0, 1).
        resamples: bootstrap resamples.
        method: which interval.

    Returns:
        Ends of shape () or (k,). Equal values give an interval of width 0.

    Raises:
        ValueError: if there are fewer than two values or any is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in {1, 2} or len(array) < 2 or not np.isfinite(array).all():
        raise ValueError(f"at least two finite values are needed, in shape (n,) or (n, k); got {array.shape}")
    _check_confidence(confidence)
    columns = array.reshape(len(array), -1)
    means = _resampled_means(columns, rng, resamples)
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    if method == "percentile":
        ends = np.quantile(means, tails, axis=0)
    else:
        levels = _bca_levels(columns, means, tails)
        ends = np.stack([np.quantile(means[:, j], levels[:, j]) for j in range(columns.shape[1])], axis=1)
    shape = array.shape[1:]
    return Interval(ends[0].reshape(shape), ends[1].reshape(shape))


def clopper_pearson(
    successes: ArrayLike, trials: ArrayLike, *, confidence: float = 0.95, side: Side = "two"
) -> Interval:
    """Exact binomial interval: coverage at least `confidence` for every true proportion.

    Clopper and Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of the
    Binomial" (1934).

    Args:
        successes: any shape, broadcast with `trials`.
        trials: at least 1 each.
        confidence: in (0, 1).
        side: "two" splits 1 - confidence over both ends; "lower" and "upper" put it all on that end
            and leave the other at 1 or 0.
    """
    k, n = _counts(successes, trials)
    _check_confidence(confidence)
    miss = (1 - confidence) / 2 if side == "two" else 1 - confidence
    low, high = np.zeros(k.shape), np.ones(k.shape)
    if side != "upper":
        some = k > 0
        low[some] = betaincinv(k[some], n[some] - k[some] + 1, miss)
    if side != "lower":
        some = k < n
        high[some] = betaincinv(k[some] + 1, n[some] - k[some], 1 - miss)
    return Interval(low, high)


def wilson(successes: ArrayLike, trials: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Two-sided score interval of a proportion: close to nominal coverage on average, not exact.

    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (1927).
    """
    k, n = _counts(successes, trials)
    _check_confidence(confidence)
    z = float(ndtri((1 + confidence) / 2))
    centre = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    # At the ends the algebra gives exactly 0 and 1; rounding must not.
    low = np.where(k == 0, 0.0, np.maximum(centre - half, 0.0))
    high = np.where(k == n, 1.0, np.minimum(centre + half, 1.0))
    return Interval(low, high)


def _resampled_means(columns: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    n = len(columns)
    means = np.empty((resamples, columns.shape[1]))
    block = max(1, _BLOCK // (n * columns.shape[1]))
    for start in range(0, resamples, block):
        stop = min(start + block, resamples)
        rows = rng.integers(0, n, size=(stop - start, n))
        means[start:stop] = columns[rows].mean(axis=1)
    return means


def _bca_levels(columns: Floats, means: Floats, tails: Floats) -> Floats:
    """Quantile levels (2, k) at which the BCa interval reads the bootstrap distribution."""
    centred = columns - columns.mean(axis=0)
    squares = np.sum(centred**2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        acceleration = np.nan_to_num(np.sum(centred**3, axis=0) / (6 * squares**1.5))
    # Ties (a constant column, few distinct values) count half, so that they show no bias.
    estimate = columns.mean(axis=0)
    below = np.mean(means < estimate, axis=0) + np.mean(means == estimate, axis=0) / 2
    bias = ndtri(np.clip(below, 1 / (2 * len(means)), 1 - 1 / (2 * len(means))))
    shifted = bias + ndtri(tails)[:, None]
    levels = ndtr(bias + shifted / (1 - acceleration * shifted))
    return cast(Floats, np.where(squares > 0, levels, tails[:, None]))


def _counts(successes: ArrayLike, trials: ArrayLike) -> tuple[Floats, Floats]:
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if not (np.all(n >= 1) and np.all(k >= 0) and np.all(k <= n)):
        raise ValueError("0 <= successes <= trials and trials >= 1 must hold everywhere")
    return k, n


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")
