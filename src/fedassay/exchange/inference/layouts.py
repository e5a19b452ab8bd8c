"""Possible layouts of arrays before they were sent: transposed, flattened, packed, stacked or joined.

A sender may flatten a matrix, send its other triangle, put counts into a column of a table, or everything into one
row. An adversary cuts such an array where its algebra says so: a block that is symmetric and bounded by its
diagonal, a column of whole numbers among others, an end with columns that add up to 0. Each way to cut a field is
one `Cut`. A cut is right only if the readers identify every part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.inference.sheets import Sheet
from fedassay.mixtures.packed import side_of_triangle, unpack_lower

Array = NDArray[Any]
Order = Literal["rows", "columns", "upper", "labels"]


@dataclass(frozen=True)
class Piece:
    """One part of an array.

    Attributes:
        axis: Axis along which the array is cut; None: along all entries in one row.
        start: Index of its first entry.
        stop: Index after its last entry; None: the end of the array.
        shape: Shape after the cut, -1 for one side that follows from the others; None: unchanged.
        order: `rows`: as it lies. `columns`: the last axis becomes the first. `upper`: upper triangles along the
            last axis become lower ones. `labels`: the place of the largest entry of each row.
        dropped: Axes of one entry that are left out first.
    """

    axis: int | None = 0
    start: int = 0
    stop: int | None = None
    shape: tuple[int, ...] | None = None
    order: Order = "rows"
    dropped: tuple[int, ...] = ()

    def of(self, values: Array) -> Array:
        """Return this part of an array.

        Raises:
            ValueError: The array has another shape than the piece is for.
        """
        values = np.squeeze(values, axis=self.dropped) if self.dropped else values
        values = values.ravel() if self.axis is None else values
        if values.ndim <= (self.axis or 0):
            raise ValueError(f"an array of {values.ndim} sides has no axis {self.axis}")
        taken = values[(*(slice(None),) * (self.axis or 0), slice(self.start, self.stop))]
        taken = taken if self.shape is None else taken.reshape(self.shape)
        if self.order == "columns":
            return np.ascontiguousarray(np.moveaxis(taken, -1, 0))
        if self.order == "labels":
            return np.asarray(taken.argmax(axis=1), dtype=np.int64)
        return lower_of_upper(taken) if self.order == "upper" else taken


@dataclass(frozen=True)
class Cut:
    """A way to read a field as other arrays.

    Attributes:
        words: Contents of the field, as the text after "holds".
        pieces: The arrays, one or more.
        doubtful: Whether the numbers of a table leave it open if it lies by rows or by columns.
    """

    words: str
    pieces: tuple[Piece, ...]
    doubtful: bool = False

    def names(self, field: str) -> tuple[str, ...]:
        """Names of the parts of a field; its own name where it is one part."""
        many = len(self.pieces) > 1
        return tuple(f"{field}:{place}" if many else field for place in range(1, len(self.pieces) + 1))

    def parts(self, sheet: Sheet) -> dict[str, Sheet]:
        """Return a field's parts over all messages, by name."""
        return {
            name: Sheet(name, tuple(replace(item, sent=piece.of(item.values)) for item in sheet.items))
            for name, piece in zip(self.names(sheet.name), self.pieces, strict=True)
        }


def lower_of_upper(packed: Array) -> Array:
    """Convert upper triangles, packed row by row along the last axis, to lower triangles packed row by row."""
    width = side_of_triangle(packed.shape[-1])
    if not width:
        raise ValueError(f"{packed.shape[-1]} entries are no triangle")
    places = np.zeros((width, width), dtype=np.int64)
    places[np.triu_indices(width)] = np.arange(packed.shape[-1])
    return packed[..., (places + np.triu(places, 1).T)[np.tril_indices(width)]]


def turned(sheet: Sheet) -> Iterator[Cut]:
    """Yield the cut of a table, or a stack of matrices, sent with its rows as columns."""
    if sheet.sides == 2:
        yield Cut("a table with its rows as columns", (Piece(order="columns"),))
    if sheet.sides == 3 and all(is_matrix(np.moveaxis(a, -1, 0), sheet.unit) for a in sheet.arrays):
        yield Cut("symmetric matrices, the last axis theirs", (Piece(order="columns"),))


def flattened(sheet: Sheet, classes: int) -> Iterator[Cut]:
    """Yield the cuts of a row of numbers into one table with a row a class."""
    lengths = set(sheet.lengths())
    if sheet.sides == 1 and len(lengths) == 1 and (length := lengths.pop()) % classes == 0 and length > classes:
        width = length // classes
        for order, doubtful in orders(sheet.arrays, classes):
            yield Cut(
                f"a table of {classes} x {width} in one row, by {order}",
                (table_piece(0, length, classes, width, order),),
                doubtful,
            )


def table_piece(start: int, stop: int, classes: int, width: int, order: Order) -> Piece:
    """Return the piece for a table (C, d) in one row of numbers, by rows or by columns."""
    shape = (classes, width) if order == "rows" else (width, classes)
    return Piece(None, start, stop, shape, order)


def orders(rows: Sequence[Array], classes: int) -> tuple[tuple[Order, bool], ...]:
    """Return both orders in which rows of numbers may hold a table (C, d), likelier first, each with its doubt.

    The same features are large in all classes, so that a table in its right order is nearer to one of rank 1 than
    in another order. This does not hold for features of mean 0.
    """
    gains = [_first_share(row.reshape(classes, -1)) - _first_share(row.reshape(-1, classes)) for row in rows]
    decided = all(gain > _GAIN for gain in gains) or all(gain < -_GAIN for gain in gains)
    likely: tuple[Order, Order] = ("rows", "columns") if sum(gains) >= 0 else ("columns", "rows")
    return ((likely[0], not decided), (likely[1], True))


def _first_share(table: Array) -> float:
    """Share of the first singular value in the sum of squares of a table, after its mean is subtracted."""
    table = table - table.mean()
    total = float(np.square(table, dtype=np.float64).sum())
    small = table if table.shape[0] <= table.shape[1] else table.T
    return float(np.linalg.eigvalsh(small @ small.T)[-1]) / total if total else 0.0


_GAIN = 0.02
"""Least difference between the shares of the first singular value that decides the order of a table."""


def squares(sheet: Sheet) -> Iterator[Cut]:
    """Yield cuts into symmetric matrices: one row each, whole or as upper triangles, or one below the other."""
    if sheet.sides not in (1, 2) or not sheet.arrays:
        return
    length = sheet.arrays[0].shape[-1]
    if any(a.shape[-1] != length for a in sheet.arrays):
        return
    side, rows = round(length**0.5), sheet.sides == 2
    if side > 2 and side * side == length:
        shape = (-1, side, side) if rows else (side, side)
        if all(is_matrix(a.reshape(shape), sheet.unit) for a in sheet.arrays):
            what = "symmetric matrices, one a row" if rows else "a symmetric matrix in one row"
            yield Cut(f"{what}, {side} wide", (Piece(0 if rows else None, shape=shape),))
    if side_of_triangle(length) > 2 and all(is_upper(a, sheet.unit) for a in sheet.arrays):
        yield Cut("upper triangles of symmetric matrices", (Piece(order="upper"),))
    tall = rows and all(a.shape[0] % length == 0 and a.shape[0] > length > 2 for a in sheet.arrays)
    if tall and all(is_matrix(a.reshape(-1, length, length), sheet.unit) for a in sheet.arrays):
        yield Cut("symmetric matrices, one below the other", (Piece(shape=(-1, length, length)),))


def one_hot(sheet: Sheet, classes: int) -> Iterator[Cut]:
    """Yield the cut of one-hot labels, one row a record."""
    if sheet.sides == 2 and sheet.arrays and all(_is_one_hot(a, classes) for a in sheet.arrays):
        yield Cut("one label a row, as a 1 among 0", (Piece(order="labels"),))


def _is_one_hot(values: Array, classes: int) -> bool:
    return values.shape[1] == classes > 1 and bool(
        np.isin(values, (0, 1)).all() and (values.sum(axis=1) == 1).all()
    )


def is_matrix(values: Array, unit: float) -> bool:
    """Whether arrays (..., d, d) are symmetric to rounding, bounded by their diagonals, and not constant."""
    if values.ndim < 2 or values.shape[-1] != values.shape[-2] or not values.size or np.ptp(values) == 0:
        return False
    near = 16 * max(unit, 1e-15) * float(np.abs(values).max())
    if np.abs(values - np.swapaxes(values, -1, -2)).max() > near:
        return False
    diagonal = np.diagonal(values, axis1=-2, axis2=-1)
    if (diagonal < -near).any():
        return False
    least = np.sqrt(np.maximum(diagonal, 0))
    return bool((np.abs(values) <= least[..., :, None] * least[..., None, :] * (1 + 1e-6) + near).all())


def is_upper(values: Array, unit: float) -> bool:
    """Whether rows are upper triangles of matrices without a negative eigenvalue, and not the lower ones."""
    return not _semidefinite(values, unit) and _semidefinite(lower_of_upper(values), unit)


def _semidefinite(packed: Array, unit: float) -> bool:
    width = side_of_triangle(packed.shape[-1])
    if width > _WIDEST:
        return False
    whole = unpack_lower(packed)
    if not is_matrix(whole, unit):
        return False
    near = 16 * max(unit, 1e-7) * np.abs(whole).max(axis=(-1, -2))
    return bool((np.linalg.eigvalsh(whole)[..., 0] >= -near * width).all())


_WIDEST = 768
"""Width above which a matrix is not decomposed here."""


def is_lower(values: Array, unit: float) -> bool:
    """Whether rows are lower triangles of matrices without a negative eigenvalue."""
    return side_of_triangle(values.shape[-1]) > 2 and _semidefinite(values, unit)
