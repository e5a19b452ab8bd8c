"""Stratified draws: whole records per class in the proportions asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.groups import typical
from fedassay.support.errors import DataError


def apportion(sizes: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Divide each class among parts, in whole records as near the shares as they can be.

    Each class is divided by largest remainders. The rounding error of a part is carried over to the next class, so
    that the parts' totals are near their shares as well (with 40 classes of 9 records, a share of 0.05 gets 18
    records, neither 0 nor 40).

    Args:
        sizes: (C,) records per class.
        shares: (R,) non-negative, summing to 1.

    Returns:
        (C, R) counts; rows sum to `sizes`, no count is off its own quota by 1 or more.
    """
    counts = np.zeros((len(sizes), len(shares)), dtype=np.int64)
    owed = np.zeros(len(shares))
    for row, size in enumerate(sizes):
        # Rounding keeps 0.29 * 100 = 28.999999999999996 a whole 29.
        quota = np.round(shares * size, 9)
        counts[row] = np.floor(quota)
        left = int(size - counts[row].sum())
        fraction = quota - counts[row]
        # Only parts with a fraction of their own may be rounded up: a part without a share stays empty.
        order = np.lexsort((-np.round(owed + fraction, 9), fraction <= 0))
        counts[row, order[:left]] += 1
        owed += quota - counts[row]
    return counts


def stratified_sample(labels: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `size` records without replacement, each class in its own proportion.

    Args:
        labels: (n,) class of each record.
        size: Number of records to draw; all of them if there are no more.
        rng: Source of randomness.

    Returns:
        (min(size, n),) positions, ascending.
    """
    if size >= len(labels):
        return np.arange(len(labels))
    groups = by_class(labels, rng)
    sizes = np.array([len(group) for group in groups], dtype=np.int64)
    share = size / len(labels)
    counts = apportion(sizes, np.array([share, 1 - share]))[:, 0]
    _mend_total(counts, sizes, size)
    return np.sort(np.concatenate([group[:count] for group, count in zip(groups, counts, strict=True)]))


def whole_persons(
    labels: NDArray[np.int64], groups: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw persons with all of their records, each class in its own proportion, as many as `size` has room for.

    The persons of each class are put into random order. All are then merged into one order, by the share of their
    class that has gone before. Each is taken if there is room left for its records.

    Args:
        labels: (n,) class of each record; a person is of the class that most of its records are of.
        groups: (n,) person of each record.
        size: Records at most.
        rng: Source of randomness.

    Returns:
        Positions, ascending.

    Raises:
        DataError: No person has so few records.
    """
    _, person, counts = np.unique(groups, return_inverse=True, return_counts=True)
    place = np.empty(len(counts))
    for rows in by_class(typical(labels, groups), rng):
        gone = np.cumsum(counts[rows])
        place[rows] = (gone - counts[rows] / 2) / gone[-1]
    taken, left = np.zeros(len(counts), np.bool_), size
    for row in np.argsort(place, kind="stable"):
        if counts[row] <= left:
            taken[row] = True
            left -= int(counts[row])
    if not taken.any():
        raise DataError(f"data.limit: {size} given, but no person has fewer than {counts.min()} records")
    return np.flatnonzero(taken[person])


def by_class(labels: NDArray[Any], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Positions of each class's records in random order, classes in ascending order."""
    return [rng.permutation(np.flatnonzero(labels == value)) for value in np.unique(labels)]


def _mend_total(counts: NDArray[np.int64], sizes: NDArray[np.int64], total: int) -> None:
    """Move a count that rounding left one off, in the largest class where there is room."""
    while (off := total - int(counts.sum())) != 0:
        room = sizes - counts if off > 0 else counts
        counts[np.argmax(room)] += np.sign(off)
