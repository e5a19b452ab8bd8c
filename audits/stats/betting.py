"""Confidence interval of the mean of bounded values by betting: valid at every n and for every distribution.

Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (2023, arXiv 2010.09686),
the hedged capital interval (Theorem 3) with predictable plug-in bets for a fixed sample size. For every candidate
mean m a gambler bets half of its money that values lie above m and half that they lie below. Where m is the mean,
neither half is expected to grow, so that (Ville's inequality) the larger half exceeds 1 / alpha at any time with
probability at most alpha. The interval holds the means against which the gambler has not become that rich.

What is assumed: values are independent draws of one distribution, inside a range that was fixed before they were
seen. Nothing else; no normality, no number of values from which it holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedassay.audits.stats.estimate import check_level
from fedassay.support.seeds import Seeds
from fedassay.support.types import Matrix

_TRUNCATION = 0.5
"""No bet risks more than this share of the money (the paper's truncation constant c)."""
_STEPS = 45
"""Bisections of [0, 1]: 3e-14 of the range."""


def betting_interval(values: ArrayLike, lower: float, upper: float, *, level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval of the mean of independent values in a known range.

    The values are put in a fixed random order first, since bets assume one that says nothing about them: sorted
    values would be no independent draws.

    Args:
        values: Shape (n,), n at least 1.
        lower: Least value that is possible.
        upper: Largest value that is possible.
        level: Coverage, in (0, 1).

    Raises:
        ValueError: No values, one outside the range or not finite, or a level outside (0, 1).
    """
    array = np.asarray(values, dtype=np.float64)
    check_level(level)
    if not lower < upper:
        raise ValueError(f"the range must have a lower end below its upper end, got [{lower}, {upper}]")
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise ValueError(f"one axis of at least one finite value is needed, got shape {array.shape}")
    if array.min() < lower or array.max() > upper:
        raise ValueError(f"values must lie in [{lower}, {upper}], got {array.min()} to {array.max()}")
    units = Seeds(0).numpy("betting", len(array)).permutation((array - lower) / (upper - lower))
    bets = _bets(units, 1 - level)
    threshold = np.log(2 / (1 - level))
    low = _first_not_refuted(units, bets, threshold)
    high = 1 - _first_not_refuted(1 - units, bets, threshold)
    return lower + (upper - lower) * low, lower + (upper - lower) * high


def _bets(units: Matrix, alpha: float) -> Matrix:
    """Stake of each bet per unit of distance, from the values before it alone, shape (n,).

    The paper's plug-in bets, with n in the place of t log(1 + t), as it proposes for a fixed sample size.
    """
    counts = np.arange(1, len(units) + 1)
    means = (0.5 + np.cumsum(units)) / (counts + 1)
    variances = (0.25 + np.cumsum((units - means) ** 2)) / (counts + 1)
    before = np.concatenate([[0.25], variances[:-1]])
    return np.asarray(np.sqrt(2 * np.log(2 / alpha) / (len(units) * before)))


def _first_not_refuted(units: Matrix, bets: Matrix, threshold: float) -> float:
    """The smallest mean that bets on larger values do not refute; smaller ones all are."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        shares = np.minimum(bets, _TRUNCATION / middle)
        wealth = np.cumsum(np.log1p(shares * (units - middle)))
        if wealth.max() >= threshold:
            low = middle
        else:
            high = middle
    return low
