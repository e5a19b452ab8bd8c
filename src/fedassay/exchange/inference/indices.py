"""Rows of whole numbers beside a table: classes, labels, counts of records and of mixture components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedassay.exchange.inference.reading import Readings, sure, unsure
from fedassay.exchange.inference.sheets import Sheet
from fedassay.support.types import Matrix


@dataclass(frozen=True)
class Indices:
    """Readings of the rows of whole numbers beside a table.

    Attributes:
        readings: Readings by field.
        labels: The labels of its rows, or None.
        counts: Records of the class of each row, or None.
        components: Mixture components of each class, or None.
        ids: The class of each row, or None.
    """

    readings: Readings = field(default_factory=dict)
    labels: Sequence[Matrix] | None = None
    counts: Sequence[Matrix] | None = None
    components: Sequence[Matrix] | None = None
    ids: Sequence[Matrix] | None = None


def read_indices(
    whole: Mapping[str, Sheet], tables: Sequence[Matrix], classes: int, *, summed: bool = False
) -> Indices:
    """Read the rows of whole numbers that are as long as a table of features, or of one row a class.

    Args:
        whole: Rows of whole numbers by name.
        tables: The table in each message.
        classes: C.
        summed: Whether the rows are known to be of classes, so that no labels stand beside them.
    """
    lengths = [len(table) for table in tables]
    fitting = {name: sheet.arrays for name, sheet in whole.items() if sheet.has_lengths(lengths)}
    rest: Readings = {
        name: unsure("other", why="whole numbers, not one for each row") for name in whole if name not in fitting
    }
    if len(fitting) == 1:
        (name, values) = next(iter(fitting.items()))
        if summed and all(length == classes for length in lengths) and not _are_ids(values, classes):
            return Indices(rest | {name: sure("class_counts", "whole numbers, one a class")}, counts=values)
        return _one(name, values, tables, classes, rest)
    if len(fitting) == 2:
        ids = [name for name, values in fitting.items() if _are_ids(values, classes)]
        if len(ids) == 1:
            other = next(name for name in fitting if name != ids[0])
            found = {ids[0]: _IDS, other: sure("class_counts", "whole numbers beside the classes")}
            return Indices(rest | found, counts=fitting[other], ids=fitting[ids[0]])
        why = "two rows of whole numbers, and both or neither rise as classes do"
        return Indices(rest | {name: unsure("class_ids", "class_counts", why=why) for name in fitting})
    return Indices(rest | {name: unsure(why="several rows of whole numbers") for name in fitting})


_IDS = sure("class_ids", "rising whole numbers below the number of classes, each once")


def _are_ids(values: Sequence[Matrix], classes: int) -> bool:
    return all((np.diff(a) > 0).all() and (a < classes).all() for a in values)


def _one(name: str, values: Sequence[Matrix], tables: Sequence[Matrix], classes: int, rest: Readings) -> Indices:
    every = all(len(a) == classes for a in values)
    inside = all((a < classes).all() for a in values)
    if _are_ids(values, classes) and sum(map(len, values)) > 2:
        return Indices(rest | {name: _IDS})
    if inside and not every:
        repeated = any(len(np.unique(a)) < len(a) for a in values)
        if repeated or sum(map(len, values)) > 2:
            return Indices(
                rest | {name: sure("labels", "whole numbers below the number of classes")}, labels=values
            )
        return Indices(rest | {name: unsure("labels", "class_ids", why="too few numbers to tell")})
    if not every:
        return Indices(rest | {name: unsure("class_counts", why="counts of unnamed classes")})
    empty = [(a == 0) == ~table.any(axis=1) for a, table in zip(values, tables, strict=True)]
    if not inside or (all(map(np.all, empty)) and any((a == 0).any() for a in values)):
        words = "whole numbers, one a class" + ("" if not inside else ", 0 where the class's row is")
        return Indices(rest | {name: sure("class_counts", words)}, counts=values)
    if not all(map(np.all, empty)):
        # A row that is no class's sum or mean may be a record, or a row of weights beside counts.
        why = "as many whole numbers as classes, 0 for rows that are not: labels, or counts beside other rows"
        return Indices(rest | {name: unsure("labels", "class_counts", why=why)})
    why = "as many whole numbers as classes, all below their number: counts, or labels of as many records"
    return Indices(rest | {name: unsure("class_counts", "labels", why=why)})


def read_groups(whole: Mapping[str, Sheet], components: Sequence[int], classes: int) -> Indices:
    """Read classes, counts of records and of components beside a mixture.

    Args:
        whole: Rows of whole numbers by name.
        components: Components in all, in each message.
        classes: C.
    """
    groups = {tuple(sheet.lengths()) for sheet in whole.values()}
    if len(groups) != 1:
        return Indices()
    held = {name: sheet.arrays for name, sheet in whole.items()}
    ids = _rows_of_ids(held, components, classes)
    if len(ids) > 1 or (not ids and any(length != classes for length in next(iter(groups)))):
        return Indices(
            {name: unsure("class_ids", "class_counts", why="several rows may be classes") for name in held}
        )
    rest = {name: values for name, values in held.items() if name not in ids}
    parts = _rows_of_components(rest, components)
    counts = [name for name in rest if name not in parts]
    if len(parts) > 1 or len(counts) > 1 or not rest:
        return Indices(
            {name: unsure("class_counts", "component_counts", why="not distinguished") for name in held}
        )
    sizes = rest[counts[0]] if counts else None
    if parts and sizes and any((a > b).any() for a, b in zip(rest[parts[0]], sizes, strict=True)):
        return Indices({name: unsure(why="more components than records") for name in held})
    readings: Readings = {name: _IDS for name in ids}
    for name in counts:
        readings[name] = sure("class_counts", "whole numbers, one a mixture")
    for name in parts:
        readings[name] = sure("component_counts", "whole numbers that add up to the number of components")
    return Indices(readings, counts=sizes, components=rest[parts[0]] if parts else None)


def _rows_of_ids(held: Mapping[str, Sequence[Matrix]], components: Sequence[int], classes: int) -> list[str]:
    """Return the rows that may hold classes; of several, only those that cannot be numbers of components."""
    ids = [name for name, values in held.items() if _are_ids(values, classes)]
    return ids if len(ids) < 2 else [name for name in ids if not _add_up(held[name], components)]


def _rows_of_components(held: Mapping[str, Sequence[Matrix]], components: Sequence[int]) -> list[str]:
    """Return the rows that add up to the components; of two, the smaller one if the other exceeds it somewhere."""
    parts = [name for name, values in held.items() if _add_up(values, components)]
    if len(parts) != 2:
        return parts
    low, high = sorted(parts, key=lambda name: float(sum(a.sum() for a in held[name])))
    return [low] if any((a < b).any() for a, b in zip(held[low], held[high], strict=True)) else []


def _add_up(values: Sequence[Matrix], components: Sequence[int]) -> bool:
    return all(a.sum() == total and (a >= 1).all() for a, total in zip(values, components, strict=True))
