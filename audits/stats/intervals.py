"""Confidence intervals of proportions: exact, and by score."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from fedassay.support.types import Matrix

Side = Literal["two", "lower", "upper"]


class Interval(NamedTuple):
    """Ends of a confidence interval, scalars or arrays of one shape."""

    low: Matrix
    high: Matrix


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


def _counts(successes: ArrayLike, trials: ArrayLike) -> tuple[Matrix, Matrix]:
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if not (np.all(n >= 1) and np.all(k >= 0) and np.all(k <= n)):
        raise ValueError("0 <= successes <= trials and trials >= 1 must hold everywhere")
    return k, n


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")
