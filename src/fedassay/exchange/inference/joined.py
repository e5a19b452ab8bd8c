"""Several arrays that were joined into one: along rows or columns, one pair above the other, or all in one row.

Each part has a property by which it is found: counts are whole numbers among others that are not, a Gram matrix is
symmetric, and the last layer of a softmax classifier's gradient adds up to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from fedassay.exchange.inference.layouts import (
    Array,
    Cut,
    Piece,
    is_lower,
    is_matrix,
    is_upper,
    orders,
    table_piece,
)
from fedassay.exchange.inference.sheets import Sheet
from fedassay.exchange.kinds import called

_WIDEST = 1024
"""Width of features, or units of a layer, up to which a row of numbers is tried."""

_TRIED = 48
"""Bound on the orders of parts in one row of numbers: at most eight times as many are examined."""

Part = tuple[str, int]
"""Name of a part of a row, and its number of entries."""


def beside_matrix(sheet: Sheet) -> Iterator[Cut]:
    """Yield cuts into a symmetric matrix and further rows above or below it, or columns beside it."""
    if sheet.sides != 2:
        return
    for axis in (0, 1):
        width = sheet.arrays[0].shape[1 - axis]
        if width < 3 or any(a.shape[1 - axis] != width or a.shape[axis] <= width for a in sheet.arrays):
            continue
        order = "rows" if axis == 0 else "columns"
        if all(is_matrix(np.moveaxis(a, axis, 0)[:width], sheet.unit) for a in sheet.arrays):
            rest = Piece(axis, width, order="columns" if axis else "rows")
            yield Cut(f"a symmetric matrix, and {order} after it", (Piece(axis, 0, width), rest))
        if all(is_matrix(np.moveaxis(a, axis, 0)[-width:], sheet.unit) for a in sheet.arrays):
            rest = Piece(axis, 0, -width, order="columns" if axis else "rows")
            yield Cut(f"a symmetric matrix, and {order} before it", (rest, Piece(axis, -width)))


def halves(sheet: Sheet, classes: int) -> Iterator[Cut]:
    """Yield cuts into two tables of one shape, stacked or side by side."""
    shapes = {a.shape[1:] for a in sheet.arrays}
    if len(shapes) != 1 or sheet.sides not in (2, 3):
        return
    if sheet.sides == 3:
        for axis in (0, 1):
            if all(a.shape[axis] == 2 for a in sheet.arrays):
                width = sheet.arrays[0].shape[2]
                halves = (Piece(axis, 0, 1, (-1, width)), Piece(axis, 1, 2, (-1, width)))
                yield Cut("two tables, stacked", halves)
        return
    (width,) = shapes.pop()
    if all(len(a) == 2 * classes for a in sheet.arrays):
        yield Cut("two tables, one below the other", (Piece(0, 0, classes), Piece(0, classes)))
    # Any table of small numbers may be sums beside larger squares: the inequality shows little, and a name more.
    if width % 2 == 0 and width > 2 and "class_means" not in called(sheet.name):
        yield Cut("two tables, side by side", (Piece(1, 0, width // 2), Piece(1, width // 2)))


def with_whole_columns(sheet: Sheet) -> Iterator[Cut]:
    """Yield cuts of rows, one a class or record, that begin or end with a class number, a label or a count.

    The rest of each row is one row of a table, or a vector with a matrix or its squares.
    """
    if sheet.sides != 2 or len({a.shape[1] for a in sheet.arrays}) != 1 or sheet.arrays[0].shape[1] < 4:
        return
    width = sheet.arrays[0].shape[1]
    whole = np.logical_and.reduce([(a == np.rint(a)).all(axis=0) & (a >= 0).all(axis=0) for a in sheet.arrays])
    told = whole & np.any([np.ptp(a, axis=0) > 0 for a in sheet.arrays], axis=0)
    first = int(np.argmin(told)) if not told.all() else width
    last = int(np.argmin(told[::-1])) if not told.all() else width
    # Whole numbers are no evidence where the rows hold nothing else.
    if first > 2 or last > 2 or int(told.sum()) != first + last:
        first = last = 0
    columns = [*range(first), *range(width - last, width)]
    numbers = tuple(Piece(1, place, place + 1, (-1,)) for place in columns)
    words = "whole numbers in " + ("one column" if len(columns) == 1 else f"{len(columns)} columns")
    for parts, what in _vector_and_more(sheet, first, width - last, bool(numbers)):
        yield Cut(f"{words}, {what}" if numbers else what, (*numbers, *parts))
    if numbers:
        yield Cut(f"{words}, and a table", (*numbers, Piece(1, first, width - last)))


def _vector_and_more(
    sheet: Sheet, start: int, stop: int, counted: bool
) -> Iterator[tuple[tuple[Piece, ...], str]]:
    """Yield columns as a vector and a symmetric matrix in each row, or beside counts as two vectors."""
    size = stop - start
    for width in range(3, min(size, _WIDEST)):
        for block in (width * width, width * (width + 1) // 2):
            if width + block != size:
                continue
            for at in (start, start + width):
                shape = (-1, width, width) if block == width * width else None
                stack = Piece(1, at, at + block, shape)
                table = Piece(1, start + block if at == start else start, stop if at == start else start + width)
                arrays = [stack.of(a) for a in sheet.arrays]
                if shape and all(is_matrix(a, sheet.unit) for a in arrays):
                    yield (table, stack), f"a vector and a symmetric matrix {width} wide in each row"
                elif not shape and all(is_lower(a, sheet.unit) for a in arrays):
                    yield (table, stack), f"a vector and a triangle {width} wide in each row"
                elif not shape and all(is_upper(a, sheet.unit) for a in arrays):
                    upper = Piece(1, at, at + block, None, "upper")
                    yield (table, upper), f"a vector and an upper triangle {width} wide in each row"
    if counted and size % 2 == 0:
        middle = start + size // 2
        yield (Piece(1, start, middle), Piece(1, middle, stop)), "and two tables"


def in_one_row(sheet: Sheet, classes: int) -> Iterator[Cut]:
    """Yield cuts of one row of numbers into counts, tables and symmetric matrices, one after the other."""
    if sheet.sides != 1 or len(set(sheet.lengths())) != 1:
        return
    length, tried = sheet.lengths()[0], 0
    for parts in _divisions(length, classes):
        for order in dict.fromkeys(permutations(parts)):
            tried += 1
            if tried > _TRIED * 8:
                return
            if _fits(sheet, order):
                yield from _cuts(sheet, order, classes)


def _divisions(length: int, classes: int) -> Iterator[tuple[Part, ...]]:
    """Yield the sets of parts that add up to a row's length, unordered; those with one symmetric matrix first."""
    total, counts = ("total", 1), ("counts", classes)
    matrices: tuple[Callable[[int], Part], ...] = (
        lambda width: ("square", width * width),
        lambda width: ("triangle", width * (width + 1) // 2),
    )
    stacks: tuple[Callable[[int], Part], ...] = (
        lambda width: ("squares", classes * width * width),
        lambda width: ("triangles", classes * width * (width + 1) // 2),
    )
    for width in range(3, min(length // classes, _WIDEST) + 1):
        table = ("table", classes * width)
        for made in matrices:
            for more in ((), (counts,), (total,)):
                yield from _if_long((table, made(width), *more), length)
        for made in stacks:
            yield from _if_long((counts, table, made(width)), length)
        yield from _if_long((counts, table, table), length)
        yield from _if_long((counts, table), length)


def _if_long(parts: tuple[Part, ...], length: int) -> Iterator[tuple[Part, ...]]:
    if sum(size for _, size in parts) == length:
        yield parts


def _places(order: Sequence[Part]) -> list[tuple[str, int, int]]:
    ends = np.cumsum([size for _, size in order])
    return [(what, int(end) - size, int(end)) for (what, size), end in zip(order, ends, strict=True)]


def _fits(sheet: Sheet, order: Sequence[Part]) -> bool:
    """Whether every block of a row can be the part that the order assigns to it.

    Blocks were rounded each in its own type before they were joined: where one fits in the coarsest, it has to fit
    in the type that holds it.
    """
    checks: dict[str, Callable[[Array, float], bool]] = {
        "counts": lambda a, _: _are_counts(a),
        "total": lambda a, _: _are_counts(a),
        "square": lambda a, unit: is_matrix(a.reshape(round(a.size**0.5), -1), unit),
        "triangle": lambda a, unit: is_lower(a, unit) or is_upper(a, unit),
    }
    for what, start, stop in _places(order):
        if what not in checks:
            continue
        blocks = [array[start:stop] for array in sheet.arrays]
        if not all(checks[what](block, _COARSEST) for block in blocks):
            return False
        own = Sheet(sheet.name, tuple(replace(item, sent=item.values[start:stop]) for item in sheet.items)).unit
        if own != _COARSEST and not all(checks[what](block, own) for block in blocks):
            return False
    return True


_COARSEST = float(np.finfo(np.float16).eps) / 2
"""Unit roundoff of the coarsest type that numbers are sent in."""


def _are_counts(values: Array) -> bool:
    return bool((values == np.rint(values)).all() and (values >= 0).all() and (values > 1).any())


def _cuts(sheet: Sheet, order: Sequence[Part], classes: int) -> Iterator[Cut]:
    """Yield the cuts of one order of parts: tables by rows, and by columns."""
    width = next(size for what, size in order if what == "table") // classes
    words = ", ".join(f"{_WORDS[what]} ({size})" for what, size in order)
    start, stop = next((start, stop) for what, start, stop in _places(order) if what == "table")
    for way, doubtful in orders([array[start:stop] for array in sheet.arrays], classes):
        pieces = []
        for what, start, stop in _places(order):
            block = [array[start:stop] for array in sheet.arrays]
            if what == "table":
                pieces.append(table_piece(start, stop, classes, width, way))
            elif what in ("square", "squares"):
                shape = (width, width) if what == "square" else (classes, width, width)
                pieces.append(Piece(None, start, stop, shape))
            elif what == "triangles":
                rows = [a.reshape(classes, -1) for a in block]
                upper = all(is_upper(a, sheet.unit) for a in rows)
                pieces.append(Piece(None, start, stop, (classes, -1), "upper" if upper else "rows"))
            else:
                upper = what == "triangle" and all(is_upper(a, sheet.unit) for a in block)
                pieces.append(Piece(None, start, stop, None, "upper" if upper else "rows"))
        yield Cut(f"in one row {words}, tables by {way}", tuple(pieces), doubtful)


_WORDS = {
    "counts": "counts",
    "total": "a number of records",
    "table": "a table",
    "square": "a symmetric matrix",
    "triangle": "a triangle",
    "squares": "symmetric matrices",
    "triangles": "triangles",
}


def with_offsets(axis: int) -> Cut:
    """Cut a layer's offsets off: the last column (axis 1), or the last row of a transposed table (axis 0)."""
    words = f"a layer, its offsets in the last {'column' if axis else 'row'}"
    return Cut(words, (Piece(axis, 0, -1, order="rows" if axis else "columns"), Piece(axis, -1, None, (-1,))))


def ends(sheet: Sheet, classes: int, axis: int) -> bool:
    """Whether a table with its offsets is the last layer of a softmax classifier's gradient."""
    tables = [a if axis else a.T for a in sheet.arrays]
    return classes > 1 and all(
        len(table) == classes and table.shape[1] > 1 and _adds_up(table, sheet.unit) for table in tables
    )


def flat_gradient(sheet: Sheet, classes: int) -> Iterator[Cut]:
    """Yield cuts of one row into the gradient of a softmax classifier, linear or behind a hidden layer.

    The last layer's offsets add up to 0 over the classes, and so does every column of its table: only
    the true number of hidden units gives such blocks. Offsets may stand after their table or before it, and tables
    by rows or by columns.
    """
    if sheet.sides != 1 or len(set(sheet.lengths())) != 1 or classes < 2:
        return
    length = sheet.lengths()[0]
    if all(_adds_up(array[-classes:, None], sheet.unit) for array in sheet.arrays):
        yield from _layers(sheet, classes, False)
    for units in range(2, min(length // classes, _WIDEST * 16)):
        at = length - classes * (units + 1)
        if at >= 0 and all(_adds_up(array[at : at + classes, None], sheet.unit) for array in sheet.arrays):
            yield from _layers(sheet, classes, True, (units,))


def _layers(sheet: Sheet, classes: int, offsets_first: bool, tried: Sequence[int] = ()) -> Iterator[Cut]:
    """Yield cuts of a row into layers by the number of units before the last one.

    Args:
        sheet: The row.
        classes: C.
        offsets_first: Whether the offsets of a layer stand before its table.
        tried: Numbers of units; empty: all.
    """
    length = sheet.lengths()[0]
    for turn in (False, True):
        # By columns each unit's numbers add up to 0 by themselves, so that fewer units seem to fit as well.
        for units in tried or range(min(length // classes, _WIDEST * 16), 1, -1):
            end = length - classes * (units + 1)
            width = max(end, 0) // units - 1
            if end < 0 or (end and (end % units or width < 1)):
                continue
            start = end + (classes if offsets_first else 0)
            shape = (units, classes) if turn else (classes, units)
            tables = [array[start : start + classes * units].reshape(shape) for array in sheet.arrays]
            if not all(_adds_up(table.T if turn else table, sheet.unit) for table in tables):
                continue
            layers = (*((((units, width), 0),) if end else ()), ((classes, units), end))
            pieces = [
                piece for (rows, columns), at in layers for piece in _layer(rows, columns, at, offsets_first, turn)
            ]
            sizes = " and ".join(f"{rows} x {columns}" for (rows, columns), _ in layers)
            yield Cut(f"in one row the layers {sizes}", tuple(pieces))
            break


def _layer(rows: int, columns: int, at: int, offsets_first: bool, turn: bool) -> tuple[Piece, Piece]:
    """Return the pieces of a layer's table and offsets in a row of numbers; the layer starts at `at`."""
    start = at + (rows if offsets_first else 0)
    shape = (columns, rows) if turn else (rows, columns)
    table = Piece(None, start, start + rows * columns, shape, "columns" if turn else "rows")
    first = at if offsets_first else at + rows * columns
    return table, Piece(None, first, first + rows)


def _adds_up(table: Array, unit: float) -> bool:
    """Whether columns add up to 0 to rounding, and are not 0."""
    sums, sizes = np.abs(table.sum(axis=0)), np.abs(table).sum(axis=0)
    return bool(sizes.any() and sums.max() <= 64 * max(unit, 1e-12) * sizes.max())
