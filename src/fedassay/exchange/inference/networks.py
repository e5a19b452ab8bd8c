"""Read messages of networks, heads, images or features, more by their shapes than by algebra."""

from __future__ import annotations

import numpy as np

from fedassay.exchange.inference.grams import matrices_of
from fedassay.exchange.inference.layouts import is_matrix
from fedassay.exchange.inference.reading import Reading, Readings, sure, unsure
from fedassay.exchange.inference.sheets import Sheet

Sheets = dict[str, Sheet]

_LEAST = 64
"""Length above which a row, if above 2 C as well, is the parameters of a network and not one number a class."""


def read_networks(sheets: Sheets, classes: int) -> Readings:
    """Read a form of message that holds no statistics of features; empty where it may hold some."""
    rows = {name: sheet for name, sheet in sheets.items() if sheet.sides == 1 and not sheet.whole}
    whole = {name: sheet for name, sheet in sheets.items() if sheet.whole}
    tables = {name: sheet for name, sheet in sheets.items() if sheet.sides == 2}
    high = {name: sheet for name, sheet in sheets.items() if sheet.sides > 2}
    if tables:
        return _read_head(tables, rows, whole, classes) if not high else {}
    if any(sheet.sides == 3 and all(is_matrix(a, sheet.unit) for a in sheet.arrays) for sheet in high.values()):
        return {}
    found: Readings = {}
    for name, sheet in high.items():
        found[name] = _read_high(sheet)
    for name, sheet in rows.items():
        if sheet.arrays and matrices_of(sheet):
            return {}
        if min(item.size for item in sheet.items) > max(_LEAST, 2 * classes):
            found[name] = sure("parameters", "a long row of numbers that is no packed symmetric matrix")
    if not found:
        return {}
    lengths = [sheet.lengths() for sheet in high.values() if sheet.items[0].dtype.kind == "u"]
    for name, sheet in whole.items():
        found[name] = _read_whole(sheet, lengths, classes)
    return found


def _read_high(sheet: Sheet) -> Reading:
    """Read arrays of three sides or more: images, Fourier magnitudes or weights."""
    if sheet.items[0].dtype.kind == "u":
        return sure("other", "images: bytes of three sides or more")
    if sheet.sides == 3 and sheet.arrays and all(map(_is_magnitude, sheet.arrays)):
        return sure("magnitude_mean", "not negative, and the same at opposite frequencies: Fourier magnitudes")
    if sheet.sides == 4:
        return sure("parameters", "four sides: kernels of convolutions")
    return unsure(why="three sides, and neither symmetric nor Fourier magnitudes")


def _is_magnitude(values: np.ndarray) -> bool:
    """Whether |F(k)| = |F(-k)| along the first two sides."""
    opposite = np.roll(values[::-1, ::-1], (1, 1), axis=(0, 1))
    scale = float(np.abs(values).max(initial=0.0))
    return bool(scale > 0 and (values >= 0).all() and np.abs(values - opposite).max() <= 1e-3 * scale)


def _read_whole(sheet: Sheet, lengths: list[tuple[int, ...]], classes: int) -> Reading:
    """Read whole numbers beside a network, or beside images."""
    if sheet.lengths() in lengths and all((a < classes).all() for a in sheet.arrays):
        return sure("labels", "as many as there are images, each below the number of classes")
    if sheet.has_lengths([classes] * len(sheet.items)) and classes > 1:
        return sure("class_counts", "whole numbers, one a class")
    return unsure("other", why="whole numbers, neither one a class nor one an image")


def _read_head(tables: Sheets, rows: Sheets, whole: Sheets, classes: int) -> Readings:
    """Read a head: one table and one row of offsets, of both signs, and no number a class beside them."""
    if len(tables) != 1 or len(rows) != 1:
        return {}
    (table_name, table), (row_name, row) = *tables.items(), *rows.items()
    if not table.arrays or not row.arrays or not row.has_lengths(table.lengths()):
        return {}
    if any(sheet.has_lengths(table.lengths()) for sheet in whole.values()) or max(table.lengths()) > classes:
        return {}
    if all((a >= 0).all() for a in row.arrays) or all((a >= 0).all() for a in table.arrays):
        return {}
    words = "a table and a row of offsets, one a class, both of both signs: a linear classifier"
    found = {table_name: sure("head", words), row_name: sure("head", words)}
    for name in whole:
        found[name] = unsure("other", why="whole numbers that are not one a class")
    return found
