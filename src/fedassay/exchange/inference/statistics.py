"""Read messages of features and their statistics by the relations between their arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedassay.exchange.inference.grams import WIDEST, bounded, matrices_of, read_gram, rounding
from fedassay.exchange.inference.indices import Indices, read_indices
from fedassay.exchange.inference.layouts import is_matrix
from fedassay.exchange.inference.mixtures import read_mixture
from fedassay.exchange.inference.pairs import read_pair
from fedassay.exchange.inference.reading import Reading, Readings, sure, unsure
from fedassay.exchange.inference.sheets import Sheet
from fedassay.exchange.inference.tables import (
    MEANS,
    SUMS,
    moments_by_rank,
    moments_or_covariances,
    squares_of,
    sums_or_means,
    which_is_first,
)
from fedassay.mixtures.packed import side_of_triangle, unpack_lower
from fedassay.support.types import Matrix

Sheets = dict[str, Sheet]


@dataclass(frozen=True)
class Parts:
    """The fields of a form by their shapes.

    Attributes:
        whole: Rows of whole numbers.
        rows: Other rows.
        grams: Symmetric matrices.
        tables: Tables.
        stacks: Symmetric matrices, one a row of a table.
    """

    whole: Sheets
    rows: Sheets
    grams: Sheets
    tables: Sheets
    stacks: Sheets


def read_statistics(sheets: Sheets, classes: int) -> Readings:
    """Read a form of message that holds features, sums, means, moments or mixtures."""
    parts = _sorted(sheets)
    if parts.rows and parts.tables:
        return read_mixture(parts.tables, parts.rows, parts.stacks, parts.whole, classes)
    if not parts.tables:
        return _without_tables(parts, classes)
    if len(parts.grams) > 1 or len(parts.stacks) > 1 or len(parts.tables) > 2:
        return {}
    if len(parts.tables) == 2:
        return _two_tables(parts, classes)
    (name, table) = next(iter(parts.tables.items()))
    if parts.grams:
        return _beside_gram(name, table, parts, classes)
    found = read_indices(parts.whole, table.arrays, classes)
    readings = dict(found.readings)
    if found.labels is not None:
        readings[name] = sure("features", "as many rows as there are labels, and some of these occur twice")
        return readings
    counts = found.counts
    if counts is None:
        return readings | _without_counts(name, table, found, parts, classes)
    readings[name] = sums_or_means(table.arrays, counts, found.ids)
    for other, stack in parts.stacks.items():
        kind = readings[name].kind
        if not stack.has_lengths(table.lengths()):
            readings[other] = unsure(why="not one matrix for each row of the table beside it")
            continue
        whole = _unpacked(stack)
        readings[other] = (
            unsure(
                "class_second_moments", "class_covariances", why="sums are not distinguished from means beside it"
            )
            if kind is None
            else moments_or_covariances(whole, table.arrays, counts, kind, max(stack.unit, table.unit))
        )
    return readings


def _sorted(sheets: Sheets) -> Parts:
    whole = {name: sheet for name, sheet in sheets.items() if sheet.whole}
    rest = {name: sheet for name, sheet in sheets.items() if name not in whole and sheet.arrays}
    grams = {name: sheet for name, sheet in rest.items() if _is_gram(sheet, rest)}
    rest = {name: sheet for name, sheet in rest.items() if name not in grams}
    # A row with a length of its own, such as one loss, is no part of these statistics.
    heights = {sheet.lengths() for sheet in rest.values() if sheet.sides > 1}
    rows = {name: sheet for name, sheet in rest.items() if sheet.sides == 1 and sheet.lengths() in heights}
    widths = {sheet.arrays[0].shape[1] for sheet in rest.values() if sheet.sides == 2}
    stacks = {name: sheet for name, sheet in rest.items() if _is_stack(sheet, widths)}
    tables = {name: sheet for name, sheet in rest.items() if sheet.sides == 2 and name not in stacks}
    return Parts(whole, rows, grams, tables, stacks)


def _is_gram(sheet: Sheet, rest: Sheets) -> bool:
    """Whether a field is symmetric matrices; a row may be as long as a triangle by chance, beside tables."""
    if not matrices_of(sheet):
        return False
    sides = {side for other in rest.values() if other.sides == 2 for side in other.items[0].shape}
    return sheet.sides == 2 or not sides or side_of_triangle(sheet.arrays[0].size) in sides


def _is_stack(sheet: Sheet, widths: set[int]) -> bool:
    """Whether every row is a symmetric matrix, whole or packed, as wide as a table beside it."""
    if sheet.sides == 3:
        return all(
            a.shape[1] == a.shape[2] and (not widths or a.shape[2] in widths) and is_matrix(a, sheet.unit)
            for a in sheet.arrays
        )
    if sheet.sides != 2 or side_of_triangle(sheet.arrays[0].shape[1]) not in widths - {0, 1}:
        return False
    return all(bounded(unpack_lower(row), max(sheet.unit, 1e-7)) for array in sheet.arrays for row in array)


def _unpacked(stack: Sheet) -> list[Matrix]:
    return [a if a.ndim == 3 else unpack_lower(a) for a in stack.arrays]


def _without_tables(parts: Parts, classes: int) -> Readings:
    """Read symmetric matrices, alone or one a class, and perhaps counts."""
    found = {name: _gram_alone(sheet) for name, sheet in parts.grams.items()}
    for name, sheet in parts.whole.items():
        if (parts.grams or parts.stacks) and sheet.has_lengths([classes] * len(sheet.items)):
            found[name] = _counts_or_labels(sheet.arrays, parts, classes)
    counts = next((parts.whole[name].arrays for name in parts.whole if _is(found.get(name), "class_counts")), None)
    for name, stack in parts.stacks.items():
        fits = counts is not None and stack.has_lengths([classes] * len(stack.items))
        found[name] = (
            unsure("class_second_moments", "class_covariances", why="no counts beside it")
            if counts is None or not fits
            else moments_by_rank(_unpacked(stack), counts, stack.unit)
        )
    return found


def _is(reading: Reading | None, kind: str) -> bool:
    return reading is not None and reading.kind == kind


def _counts_or_labels(values: tuple[Matrix, ...], parts: Parts, classes: int) -> Reading:
    """Read as many whole numbers as classes: counts if one is no class, or if they add up to a rank."""
    words = "whole numbers, one a class"
    if any((a >= classes).any() for a in values):
        return sure("class_counts", f"{words}, not all of them below the number of classes")
    if len(parts.grams) == 1:
        (sheet,) = parts.grams.values()
        ranks = [_rank(matrix, sheet.unit) for matrix in matrices_of(sheet)]
        if all(a.sum() == rank < len(m) for a, rank, m in zip(values, ranks, matrices_of(sheet), strict=True)):
            return sure("class_counts", f"{words}, which add up to the rank of the matrix")
    return unsure("class_counts", "labels", why=f"{words}, all below their number")


def _rank(matrix: Matrix, unit: float) -> int:
    if len(matrix) > WIDEST:
        return len(matrix)
    return int((np.linalg.eigvalsh(matrix) > rounding(matrix, unit)).sum())


def _gram_alone(sheet: Sheet) -> Reading:
    return read_gram(sheet, matrices_of(sheet))


def _beside_gram(name: str, table: Sheet, parts: Parts, classes: int) -> Readings:
    """Read one symmetric matrix, one table, and perhaps counts."""
    (other, gram), matrices = next(iter(parts.grams.items())), matrices_of(next(iter(parts.grams.values())))
    tables, turned = table.arrays, False
    widths = [len(matrix) for matrix in matrices]
    if [a.shape[1] for a in tables] != widths:
        tables, turned = tuple(a.T for a in tables), True
        if [a.shape[1] for a in tables] != widths:
            return {other: _gram_alone(gram)}
    if _gives(table.arrays, matrices, max(table.unit, gram.unit)):
        labels = read_indices(parts.whole, table.arrays, classes).readings
        words = "the rows' own products add up to the matrix beside them"
        return {**labels, name: sure("features", words), other: sure("second_moment", words)}
    if any(len(a) > classes for a in tables):
        return {other: _gram_alone(gram)}
    found = read_indices(parts.whole, tables, classes, summed=True)
    of_gram, of_table = read_pair(gram, matrices, table, tables, found.counts)
    of_table = replace(of_table, transposed=turned)
    return {**found.readings, other: of_gram, name: of_table}


def _gives(tables: tuple[Matrix, ...], matrices: tuple[Matrix, ...], unit: float) -> bool:
    """Whether matrices are F^T F of the tables beside them."""
    return all(
        f.shape[1] == len(g)
        and np.abs(f.T @ f - g).max() <= 64 * max(unit, 1e-12) * max(len(f), 1) ** 0.5 * np.abs(g).max()
        for f, g in zip(tables, matrices, strict=True)
    )


def _without_counts(name: str, table: Sheet, found: Indices, parts: Parts, classes: int) -> Readings:
    """Read a table without labels or counts."""
    lengths = table.lengths()
    if parts.stacks:
        readings: Readings = {other: unsure(why="no counts beside it") for other in parts.stacks}
        readings[name] = unsure(SUMS, MEANS, why="no counts beside it")
        return readings
    if not found.readings and len(set(lengths)) > 1:
        return {
            name: sure("features", "as many rows as a client has records: neither one a class nor a fixed number")
        }
    if not found.readings and max(lengths) > classes:
        return {name: unsure("features", "parameters", why="more rows than classes, and as many in every message")}
    if any(len(reading.kinds) > 1 for reading in found.readings.values()):
        return {
            name: unsure(
                "features", SUMS, MEANS, why="labels are not distinguished from counts or classes beside it"
            )
        }
    return {name: unsure("features", SUMS, MEANS, "ridge_weights", "head", why="one row a class, and no counts")}


def _two_tables(parts: Parts, classes: int) -> Readings:
    """Read sums and squares of every class, with counts, and perhaps with the Gram matrix of all records."""
    (one, first), (two, second) = parts.tables.items()
    found = read_indices(parts.whole, first.arrays, classes)
    shapes = [(a.shape, b.shape) for a, b in zip(first.arrays, second.arrays, strict=True)]
    if found.counts is None or any(a != b for a, b in shapes) or parts.stacks:
        return dict(found.readings)
    tables = (first.arrays, second.arrays)
    ways = [order for order in ((0, 1), (1, 0)) if squares_of(tables[order[0]], tables[order[1]], found.counts)]
    leading = which_is_first(*tables)
    if leading is not None:
        ways = [order for order in ways if order[0] == leading]
    for name, gram in parts.grams.items():
        found.readings[name] = _gram_alone(gram)
        # The squares of all classes add up to the diagonal of the Gram matrix of all records.
        ways = [order for order in ways if _diagonal_is(tables[order[1]], matrices_of(gram), gram.unit)] or ways
    if len(ways) != 1:
        why = "each table may be the squares of the other: features between 0 and 1"
        return {
            **found.readings,
            one: unsure(SUMS, "class_second_moments", why=why),
            two: unsure(SUMS, "class_second_moments", why=why),
        }
    names = (one, two)
    words = "squares are at least sums^2 / n, and equal where n is 1"
    readings: Readings = {
        **found.readings,
        names[ways[0][0]]: sure(SUMS, words),
        names[ways[0][1]]: sure("class_second_moments", words),
    }
    for name, gram in parts.grams.items():
        sums = (first, second)[ways[0][0]]
        if len(parts.grams) == 1 and all(
            len(m) == a.shape[1] for m, a in zip(matrices_of(gram), sums.arrays, strict=True)
        ):
            readings[name] = read_pair(gram, matrices_of(gram), sums, sums.arrays, found.counts)[0]
    return readings


def _diagonal_is(squares: tuple[Matrix, ...], matrices: tuple[Matrix, ...], unit: float) -> bool:
    """Whether the squares of all classes add up to the diagonal of a matrix."""
    near = 16 * max(unit, 1e-12) * max(map(len, squares))
    return all(
        len(m) == a.shape[1] and np.abs(a.sum(axis=0) - np.diagonal(m)).max() <= near * np.diagonal(m).max()
        for a, m in zip(squares, matrices, strict=True)
    )
