"""Tests of the messages of a black box: a bound on epsilon, a difference between two kinds of runs, fixed bits.

The bound is that of distinguishing two data sets (Kairouz, Oh and Viswanath 2015, theorem 2.1; Clopper and Pearson
1934). The test for a difference between runs finds a direction that separates one half of them, and tests the
other half along it (Kolmogorov and Smirnov). It holds its level for every direction. Low-order bits that stay
constant while the number changes were not drawn with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import stats

from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.support.types import Matrix

_LEVEL = 0.05
"""Probability that the bound on epsilon of an honest mechanism is too large."""

_RUNS = 40
"""Least number of runs that make a constant bit significant."""


def epsilon_bound(one: Matrix, other: Matrix, delta: float) -> float:
    """Lower bound on epsilon from runs on both sides: direction and threshold by one half, error by the other.

    Args:
        one: Shape (n, numbers), runs on one data set.
        other: The same on its neighbour.
        delta: Delta of the claim.
    """
    half = len(one) // 2
    pairs = [(found(one), found(other)) for found in _statistics(one[:half], other[:half])]
    ways = [way for left, right in pairs for way in ((left, right), (right, left))]
    cuts = [np.quantile(np.concatenate([a[:half], b[:half]]), np.linspace(0.02, 0.98, 49)) for a, b in ways]
    guesses = [
        (_epsilon(a[:half], b[:half], cut, sign, delta), cut, sign, way)
        for way, (a, b) in enumerate(ways)
        for cut in cuts[way]
        for sign in (1, -1)
    ]
    _, cut, sign, way = max(guesses, key=lambda each: each[0])
    a, b = ways[way]
    return _epsilon(a[half:], b[half:], cut, sign, delta)


def _statistics(one: Matrix, other: Matrix) -> list[Callable[[Matrix], Matrix]]:
    """Return statistics of a run: its position along the difference of both sides, its distance to each mean."""
    direction, scale = _direction(one, other), _scale(one, other)
    centres = (one.mean(axis=0), other.mean(axis=0))
    return [
        lambda rows: np.asarray(rows @ direction, dtype=np.float64),
        *(partial(_distance, centre=centre, scale=scale) for centre in centres),
    ]


def _distance(rows: Matrix, centre: Matrix, scale: Matrix) -> Matrix:
    return np.asarray(np.linalg.norm((rows - centre) / scale, axis=1), dtype=np.float64)


def _direction(one: Matrix, other: Matrix) -> Matrix:
    # A constant number has no difference of means either.
    change = other.mean(axis=0) - one.mean(axis=0)
    return np.asarray(change / _scale(one, other) ** 2, dtype=np.float64)


def _scale(one: Matrix, other: Matrix) -> Matrix:
    """Standard deviation of every number, 1 where it never changes, shape (numbers,)."""
    spread = np.concatenate([one, other]).std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def _epsilon(a: Matrix, b: Matrix, cut: float, sign: int, delta: float) -> float:
    """log((P_b - delta) / P_a) of an event, each probability at its worse end of an interval."""
    hits, seen = int((sign * a > sign * cut).sum()), int((sign * b > sign * cut).sum())
    each = 1 - _LEVEL / 2
    most = float(clopper_pearson(hits, len(a), confidence=each, side="upper").high)
    least = float(clopper_pearson(seen, len(b), confidence=each, side="lower").low)
    return max(0.0, math.log((least - delta) / most)) if least > delta else 0.0


def differs(one: Matrix, other: Matrix) -> float:
    """Return the p-value that two kinds of runs are equal, by their means along a direction and their scatter.

    Args:
        one: Shape (n, numbers).
        other: Shape (m, numbers).
    """
    if np.array_equal(np.unique(one, axis=0), np.unique(other, axis=0)):
        return 1.0
    middle, half = len(one) // 2, len(other) // 2
    direction = _direction(one[:middle], other[:half])
    scale = _scale(one, other)
    centre = np.concatenate([one[:middle], other[:half]]).mean(axis=0)
    ways = [(one[middle:] @ direction, other[half:] @ direction)]
    ways.append((_distance(one[middle:], centre, scale), _distance(other[half:], centre, scale)))
    return min(1.0, len(ways) * min(float(stats.ks_2samp(*way).pvalue) for way in ways))


def fixed_bits(rows: Matrix) -> int:
    """Low-order bits that are 1 in every run, of numbers that are another one in each.

    Noise on a number changes its last bits from run to run; a bit that is 1 in all of n runs has a probability of
    2^-n to 0.75^n (where rounding favours even numbers). Bits above a hundredth of a number's spread are left out,
    and so are those below the last bit that any number in any run uses: a coarser type, or a grid.

    Args:
        rows: Shape (n, numbers), runs on the same records; fewer than 40 say nothing.

    Returns:
        How many such bits there are.
    """
    if len(rows) < _RUNS:
        return 0
    changing = np.array([len(np.unique(column)) > 0.9 * len(column) for column in rows.T], dtype=np.bool_)
    held = np.ascontiguousarray(rows[:, changing])
    if not held.size:
        return 0
    bits = held.view(np.uint64)
    used = int(np.bitwise_or.reduce(bits.ravel()))
    lowest = (used & -used).bit_length() - 1
    # The last bit of a number below 2^e weighs 2^(e - 53).
    heights = np.frexp(np.abs(held).max(axis=0))[1] - 53
    tops = np.floor(np.log2(held.std(axis=0) / 100)).astype(np.int64) - heights
    same = np.bitwise_and.reduce(bits, axis=0)
    found = (
        int(value) >> lowest & (1 << max(0, min(int(top), 52) - lowest)) - 1
        for value, top in zip(same, tops, strict=True)
    )
    return sum(value.bit_count() for value in found)
