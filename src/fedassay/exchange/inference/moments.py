"""Read a vector and a matrix beside a count: sum or mean; second moment, its mean, scatter or covariance.

Of n vectors that are independent, n at most the width, with sum s and mean m:

| matrix M | rank | s' M^+ s | m' M^+ m |
|---|---|---|---|
| second moment | n | n | 1 / n |
| its mean | n | n^2 | 1 |
| scatter about the mean, or a covariance | n - 1, and the vector is outside its range | | |

Of features that are not negative a scatter's diagonal is at most n (n - 1) m_j^2, since it is largest where one
record has all of the sum: a covariance is at most n m_j^2. Where these bounds do not decide, several readings
remain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedassay.support.types import Bools, Matrix

Row = Literal["sum", "mean"]
Spread = Literal["second moment", "mean second moment", "scatter", "covariance"]

_NEAR = 1e-3
_WIDEST = 768
"""Width above which no matrix is decomposed here."""


@dataclass(frozen=True)
class Meaning:
    """Kinds of a vector and a matrix of one population.

    Attributes:
        row: Kind of the vector.
        matrix: Kind of the matrix.
        evidence: The reason, in a sentence.
    """

    row: Row
    matrix: Spread
    evidence: str


@dataclass(frozen=True)
class Block:
    """A count, a vector and a matrix of one population.

    Attributes:
        count: Number of records, n.
        row: Shape (d,).
        matrix: Shape (d, d), symmetric.
    """

    count: int
    row: Matrix
    matrix: Matrix


def meanings_of(blocks: Iterable[Block], unit: float) -> tuple[Meaning, ...]:
    """Return the readings of vectors and matrices that fit all blocks; empty where none fits.

    Args:
        blocks: Counts, vectors and matrices; those of fewer than two records, or with a vector of 0, are skipped.
        unit: Unit roundoff of the coarser type.
    """
    left: tuple[Meaning, ...] | None = None
    for block in blocks:
        if block.count < 2 or not block.row.any() or len(block.row) > _WIDEST:
            continue
        found = _of_block(block, unit)
        if left is None:
            left = found
        else:
            kinds = {(each.row, each.matrix) for each in found}
            left = tuple(each for each in left if (each.row, each.matrix) in kinds)
    return left or ()


def _of_block(block: Block, unit: float) -> tuple[Meaning, ...]:
    count, row = block.count, block.row
    live = np.diagonal(block.matrix) > 0
    values, vectors = np.linalg.eigh(block.matrix)
    # The floor covers the rounding of independent entries, and of sums of many of them, in eigenvalues.
    floor = 2 * unit * float(np.sqrt((block.matrix**2).sum(axis=1).max() / 3))
    floor = max(floor, len(values) * float(np.finfo(float).eps) * float(values[-1]))
    if float(values[0]) < -4 * floor or not live.any():
        return ()
    kept = values > max(floor, -1.5 * float(values[0]))
    rank = int(kept.sum())
    inside = vectors[:, kept].T @ row
    outside = 1 - float(inside @ inside) / float(row @ row)
    square = float((inside**2 / values[kept]).sum())
    near = max(_NEAR, 64 * unit)
    if rank == count <= live.sum() and outside < near:
        return _uncentred(count, square, near)
    if rank == count - 1 < live.sum() and outside > near:
        return _centred(block, live, near)
    return ()


def _uncentred(count: int, square: float, near: float) -> tuple[Meaning, ...]:
    ways: tuple[tuple[float, Row, Spread], ...] = (
        (count, "sum", "second moment"),
        (1 / count, "mean", "second moment"),
        (1.0, "mean", "mean second moment"),
        (count**2, "sum", "mean second moment"),
    )
    return tuple(
        Meaning(row, matrix, f"the matrix has the rank of {count} records, and v' M^+ v is {square:.4g}")
        for wanted, row, matrix in ways
        if abs(square / wanted - 1) < 0.5 * min(1.0, 100 * near)
    )


def _centred(block: Block, live: Bools, near: float) -> tuple[Meaning, ...]:
    """Readings of a matrix of rank n - 1, the likelier first."""
    count = block.count
    words = f"the matrix has the rank of {count} records less one, and the vector is outside of its range"
    with np.errstate(divide="ignore"):
        ratios = np.diagonal(block.matrix)[live] / block.row[live] ** 2
    largest = float(ratios.max()) * (1 - min(near, 0.1))
    if (block.row < 0).any():
        # Signed features obey no bound.
        return (Meaning("mean", "covariance", words), Meaning("sum", "scatter", words))
    ways: tuple[tuple[float, Row, Spread], ...] = (
        (count, "mean", "covariance"),
        ((count - 1) / count, "sum", "scatter"),
        (1 / count, "sum", "covariance"),
        (count * (count - 1), "mean", "scatter"),
    )
    fit = [Meaning(row, matrix, words) for bound, row, matrix in ways if largest <= bound]
    # Only its name distinguishes a scatter beside a mean from a covariance if it is as small as one.
    return tuple(fit)
