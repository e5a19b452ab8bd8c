"""Recognise raw records in files: images, or a row of one array for each label of another, and no statistics.

An array is labels beside a table of as many rows where its whole numbers occur more than once and it is called
labels, or where they are the classes 0 to C - 1 of at least twice as many rows. Counts of records differ:
a class with the count 0 has a row of zeros. A table of 0 and 1 holds labels if each row has one 1, or if its name
says so. Images without labels are bytes or numbers from 0 to 1: their name says images, or neighbours are alike
and the numbers are few levels, which means of images are not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from fedassay.exchange.kinds import FieldKind
from fedassay.recorders.files.grouping import SERVER, SUMMED, Array, Arrays

_LABELS = frozenset(["y", "label", "labels", "target", "targets", "class", "classes", "diagnosis", "outcome"])
_TABLES = frozenset(
    ["x", "f", "features", "feature", "data", "image", "images", "img", "pixels", "inputs", "embeddings"]
)
_STATISTICS = frozenset(
    ["n", "num", "count", "counts", "size", "sizes", "sum", "sums", "mean", "means", "weight", "weights", "bias"]
)
_IMAGES = frozenset(["image", "images", "img", "imgs", "pixels", "picture", "pictures", "photo", "photos"])
_SIDE = 8
"""Least height and width of images: filters of networks are smaller."""
_ALIKE = 0.6
"""Largest difference of neighbouring pixels of images, over that of pixels half an image apart."""
_LEVELS = 256
"""Largest number of levels of images' pixels."""
_OFF = 0.07
"""Largest distance of a number from a level, in levels: half precision is that coarse."""
_LOOKED = 64
"""Images that are looked at."""
_MOST = 40
"""Largest number of labels in a table that may give a row several."""

KINDS: dict[str, FieldKind] = {"features": "features", "labels": "labels"}
"""Names and kinds of the arrays of records after reading; images may have no labels."""


def records_of(sent: Mapping[tuple[int, str], Arrays]) -> tuple[dict[tuple[int, str], Arrays], str] | None:
    """Convert messages of records to features and labels, with a sentence; None where one holds anything else.

    Args:
        sent: The messages by round and sender.
    """
    if any(who in {SERVER, SUMMED} for _, who in sent):
        return None
    images = {key: [name for name, array in arrays.items() if array.size > 1] for key, arrays in sent.items()}
    if images and all(names and all(_are_images(n, sent[key][n]) for n in names) for key, names in images.items()):
        return _read(sent, {key: [([name], "") for name in names] for key, names in images.items()})
    found = {key: _pairs(arrays) for key, arrays in sent.items()}
    return _read(sent, found) if found and all(found.values()) else None


def _read(
    sent: Mapping[tuple[int, str], Arrays], found: Mapping[tuple[int, str], list[tuple[list[str], str]]]
) -> tuple[dict[tuple[int, str], Arrays], str] | None:
    """Return records with their labels, where there are any, and a sentence; None where they differ in width."""
    rows = {key: [_rows(sent[key], xs) for xs, _ in pairs] for key, pairs in found.items()}
    if len({each.shape[1] for own in rows.values() for each in own}) > 1:
        return None
    read: dict[tuple[int, str], Arrays] = {key: {"features": np.concatenate(own)} for key, own in rows.items()}
    total = sum(len(own["features"]) for own in read.values())
    xs, y = next(iter(found.values()))[0]
    if y:
        labels = {key: np.concatenate([_codes(sent[key][y]) for _, y in pairs]) for key, pairs in found.items()}
        known = np.unique(np.concatenate(list(labels.values())))
        read = {key: own | {"labels": np.searchsorted(known, labels[key])} for key, own in read.items()}
    told = f"has a row for each label of {y}" if y else "holds images"
    return read, (
        f"{xs[0]} {told}: these are {total:,} records as they are, and no message that was made of them. If "
        "clients keep them, audit what clients send."
    )


def _are_images(name: str, array: Array) -> bool:
    """Whether an array holds several images, shape (n, h, w[, c]) or (n, c, h, w)."""
    if array.ndim not in {3, 4} or len(array) < 2 or _words(name) & _STATISTICS:
        return False
    if array.ndim == 4 and array.shape[3] not in {1, 3, 4}:
        array = np.moveaxis(array, 1, 3)
    if min(array.shape[1:3]) < _SIDE or (array.ndim == 4 and array.shape[3] not in {1, 3, 4}):
        return False
    if array.dtype != np.uint8 and (array.dtype.kind != "f" or array.min() < 0 or not 0 < array.max() <= 1):
        return False
    if _words(name) & _IMAGES:
        return True
    values = np.asarray(array[:_LOOKED], np.float64)
    far = np.abs(values - np.roll(values, (values.shape[1] // 2, values.shape[2] // 2), (1, 2))).mean()
    near = max(np.abs(np.diff(values, axis=side)).mean() for side in (1, 2))
    return bool(near <= _ALIKE * far) and (bool(_words(name) & _TABLES) or _has_levels(values))


def _has_levels(values: Array) -> bool:
    """Whether numbers from 0 are few multiples of one number, and not of two values alone, as masks are."""
    for unit in (1.0 if values.max() > 1 else 1 / 255, values[values > 0].min()):
        levels = values / unit
        if levels.max() <= _LEVELS and bool((np.abs(levels - np.rint(levels)) < _OFF).all()):
            return len(np.unique(np.rint(levels))) > 2
    return False


def _pairs(arrays: Arrays) -> list[tuple[list[str], str]]:
    """Pair tables, or columns, with the labels of their rows; empty where an array is neither."""
    held = {name: array for name, array in arrays.items() if array.size > 1}
    labels = [
        name for name, array in held.items() if _is_row(array) or _is_one_hot(array) or _is_several(name, array)
    ]
    labels.sort(key=lambda name: not _words(name) & _LABELS)
    used: set[str] = set()
    pairs = []
    for y in labels:
        tables = [x for x in held if x not in used and x != y and len(held[x]) == len(held[y])]
        tables = [x for x in tables if held[x].ndim > 1 and not (_words(x) & _LABELS)] or tables
        if y not in used and tables and _are_labels(y, tables, held):
            # Each of several tables of one length has labels of its own; columns of a table share them.
            taken = tables[:1] if held[tables[0]].ndim > 1 else tables
            pairs.append((taken, y))
            used |= {y, *taken}
    return pairs if used == set(held) else []


def _are_labels(y: str, tables: list[str], held: Arrays) -> bool:
    values, table = _codes(held[y]), held[tables[0]]
    if _words(y) & _STATISTICS or any(_words(x) & _STATISTICS for x in tables):
        return False
    distinct = len(np.unique(values))
    if distinct == len(values) or table.ndim < 2:
        return distinct < len(values) and bool(_words(y) & _LABELS)
    if _words(y) & _LABELS and (distinct > 1 or _words(tables[0]) & _TABLES):
        return True
    if table.shape[0] == table.shape[1] or not 1 < distinct <= len(values) // 2:
        return False
    empty = np.logical_not(np.asarray(table, bool).reshape(len(table), -1).any(axis=1))
    return bool((np.unique(values) == np.arange(distinct)).all()) and not np.logical_and(empty, values == 0).any()


def _words(name: str) -> set[str]:
    return set(re.findall("[a-z]+", name.rpartition("/")[2].casefold()))


def _is_row(array: Array) -> bool:
    """Whether an array has one whole number a row."""
    return array.size == len(array) and bool((array == np.rint(array)).all())


def _is_one_hot(array: Array) -> bool:
    return array.ndim == 2 and bool(np.isin(array, (0, 1)).all() and (array.sum(axis=1) == 1).all())


def _is_several(name: str, array: Array) -> bool:
    """Whether an array holds several labels a row, each as 0 or 1, and its name says labels."""
    several = array.ndim == 2 and array.shape[1] <= _MOST and bool(np.isin(array, (0, 1)).all())
    return several and bool(_words(name) & _LABELS)


def _codes(array: Array) -> Array:
    """Return one class number a row, shape (n,); rows with several labels get one number for each set of them."""
    if array.size == len(array):
        return np.asarray(np.rint(array.ravel()), np.int64)
    if _is_one_hot(array):
        return np.asarray(array.argmax(axis=1), np.int64)
    return np.asarray(array, np.int64) @ (1 << np.arange(array.shape[1], dtype=np.int64))


def _rows(arrays: Arrays, names: list[str]) -> Array:
    """Return one vector a record, shape (n, d)."""
    columns = [np.asarray(arrays[name]).reshape(len(arrays[name]), -1) for name in names]
    values = np.concatenate(columns, axis=1)
    return values if values.dtype.kind == "f" else values.astype(np.float32)
