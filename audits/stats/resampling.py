"""Bootstrap intervals of paired means, and the levels of the tests of a run.

Percentile intervals (Efron and Tibshirani 1993, chapter 13). What pairs rows with a baseline is tested by
`audits.stats.paired`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Statistic = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""Maps row indices of shape (draws, n) to one value a draw, shape (draws,)."""

ALONE = 0.01
"""Level of a test that is looked at by itself, whatever else is tested in the run."""

ERROR = 0.05
"""Error of all tests of a run together."""

_BLOCK = 2_000_000


def level_of(tests: int) -> float:
    """Level of one test in a run of so many, which together err with `ERROR` (Bonferroni)."""
    return ERROR / tests


@dataclass(frozen=True)
class Interval:
    """An estimate with a two-sided percentile interval.

    Attributes:
        value: The statistic on the sample itself.
        low: Lower end at 95 %.
        high: Upper end at 95 %.
        n: Sample size.
    """

    value: float
    low: float
    high: float
    n: int


def resampled(n: int, statistic: Statistic, rng: np.random.Generator, *, draws: int = 2000) -> Interval:
    """Bootstrap a statistic of n independent rows.

    Args:
        n: Number of rows; at least 2.
        statistic: See `Statistic`.
        rng: Source of the resamples.
        draws: Bootstrap resamples.

    Raises:
        ValueError: Fewer than 2 rows.
    """
    if n < 2:
        raise ValueError(f"a bootstrap needs at least 2 rows, given {n}")
    value = float(statistic(np.arange(n)[None])[0])
    block = max(1, _BLOCK // n)
    values = np.concatenate(
        [statistic(rng.integers(0, n, size=(min(block, draws - start), n))) for start in range(0, draws, block)]
    )
    low, high = np.percentile(values, [2.5, 97.5])
    return Interval(value, float(low), float(high), n)


def mean_of(values: NDArray[np.float64]) -> Statistic:
    """The mean of `values` (shape (n,)) over the resampled rows."""
    return lambda rows: np.asarray(values[rows].mean(axis=1))


def difference(first: Statistic, second: Statistic) -> Statistic:
    """`first` minus `second` on the same resamples: a paired difference."""
    return lambda rows: first(rows) - second(rows)
