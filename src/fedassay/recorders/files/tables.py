"""Statistics in a table: rows of clients, rounds or classes, and columns of numbers.

A column with the name of a client, a round or a class gives that of each row. Other columns that differ in a
number at their end are one array (`mean_0` to `mean_31`), the rest are arrays of their own. Where the first column
names features (`feature`, `variable`), every other column is a vector over them. A table of numbers alone is a
matrix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from fedassay.data.table_file import Table, read_table
from fedassay.exchange.kinds import called
from fedassay.recorders.files.names import CLIENT_WORDS, ROUND_WORDS, whose
from fedassay.support.errors import DataError
from fedassay.support.text import shown

_CLASSES = ("class", "label", "target", "classes", "class_id", "y")
_FEATURES = ("feature", "features", "variable", "name", "column", "attribute", "")
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_NUMBERED = re.compile(r"(.*?)[\[_. :(-]*(\d+)[\])]?$")

Named = tuple[tuple[str, ...], NDArray[Any]]


def arrays_of_table(path: Path) -> Iterator[Named]:
    """Yield the arrays of a table, each with its keys: the client, the round, and its own name.

    Raises:
        DataError: The file is no table, or a value is no number.
    """
    table = read_table(path)
    if all(_NUMBER.fullmatch(name) for name in table.first):
        table = table.headless()
        _check_marks(table)
        yield (), _numbers(table.frame, table)
        return
    frame = table.frame
    _check_marks(table)
    keys = {word: _called(frame, words) for word, words in (("client", CLIENT_WORDS), ("round", ROUND_WORDS))}
    held = [name for name in keys.values() if name is not None]
    plain = [word for word, name in keys.items() if name is not None]
    if not held:
        yield from _arrays((), frame, table)
        return
    for values, rows in frame.groupby(held, sort=False):
        where = tuple(f"{word}_{value}" for word, value in zip(plain, values, strict=True))
        yield from _arrays(where, rows.drop(columns=held), table)


def _called(frame: pandas.DataFrame, words: tuple[str, ...]) -> str | None:
    """Return the column with one of these names, alone or with `id`, `name` or `number`; None: there is none.

    Where no column is named so, it is one whose values all name clients.
    """
    for name in map(str, frame.columns):
        if re.sub(r"[_\W]*(id|name|number|no)?$", "", name.strip().casefold()) in words:
            return name
    if words is CLIENT_WORDS:
        for name in frame.columns:
            if all(whose((str(value),), last=False).client is not None for value in frame[name]):
                return str(name)
    return None


def _arrays(where: tuple[str, ...], frame: pandas.DataFrame, table: Table) -> Iterator[Named]:
    """Yield the arrays of the rows of one client and round."""
    classes = next((str(name) for name in frame.columns if str(name).strip().casefold() in _CLASSES), None)
    if classes is not None:
        whole = all(value.isdigit() for value in frame[classes])
        once = frame[classes].nunique() == len(frame)
        if once:
            frame = frame.sort_values(classes, key=lambda column: column.map(int) if whole else column)
        values = frame[classes]
        if whole:
            yield (*where, "class_ids"), np.array([int(value) for value in values])
        elif once:
            yield (*where, "class_names"), values.to_numpy(str)
        else:
            # Each row is a record.
            yield (*where, "class_ids"), np.unique(values.to_numpy(str), return_inverse=True)[1]
        frame = frame.drop(columns=[classes])
    first = str(frame.columns[0])
    by_feature = first.strip().casefold() in _FEATURES and not any(map(_NUMBER.fullmatch, frame[first]))
    if by_feature or (first == "column 1" and not table.first[0]):
        frame = frame.drop(columns=[first])
    numbers = _numbers(frame, table)
    one = len(frame) == 1 and classes is None
    _check_single(frame, () if by_feature or classes is not None else where, table)
    for name, places in _joined([str(column) for column in frame.columns]).items():
        if len(places) > 1 and name.casefold() in CLIENT_WORDS:
            two = ", ".join(frame.columns[place] for place in places[:2])
            raise DataError(
                f"{table.name}: its columns {two} are named like clients; allowed: a row for each client, or for "
                "each of its classes"
            )
        values = numbers[:, places] if len(places) > 1 else numbers[:, places[0]]
        if np.array_equal(values, np.rint(values)) and np.abs(values).max(initial=0) < 2**53 and len(places) == 1:
            values = values.astype(np.int64)
        yield (*where, name), values[0] if one else values


def _check_single(frame: pandas.DataFrame, where: tuple[str, ...], table: Table) -> None:
    """Refuse several counts of one client, of which nothing says the class.

    Raises:
        DataError: There are such.
    """
    counts = [str(name) for name in frame.columns if "class_counts" in called(str(name))]
    if where and counts and len(frame) > 1:
        raise DataError(
            f"{table.name}: has {len(frame)} rows of {where[0]} with {counts[0]}, and no column of their classes; "
            "allowed: a row for each client, or a column class"
        )


def _joined(columns: list[str]) -> dict[str, list[int]]:
    """Return the columns of each array: those that differ in a number at their end, in its order, or one alone."""
    numbered: dict[str, list[tuple[int, int]]] = {}
    for place, name in enumerate(columns):
        found = _NUMBERED.fullmatch(name)
        if found:
            numbered.setdefault(found[1] or "features", []).append((int(found[2]), place))
    several = {name: [place for _, place in sorted(rows)] for name, rows in numbered.items() if len(rows) > 1}
    used = {place for places in several.values() for place in places}
    return several | {name: [place] for place, name in enumerate(columns) if place not in used}


def _check_marks(table: Table) -> None:
    """Refuse commas that may part thousands: beside points, or where none of them shows a decimal.

    Raises:
        DataError: There are such.
    """
    cells = {str(value) for name in table.frame.columns for value in table.frame[name].unique()}
    numbers = [value for value in cells if _NUMBER.fullmatch(value)]
    commas = sorted(value for value in numbers if "," in value)
    if commas and (any("." in value for value in numbers) or all(map(_THOUSANDS.fullmatch, commas))):
        raise DataError(
            f"{table.name}: {commas[0]} can be a decimal or thousands; allowed: numbers with one mark, "
            "that of their decimals"
        )


def _numbers(frame: pandas.DataFrame, table: Table) -> NDArray[np.float64]:
    """Return the values of a table, shape (rows, columns)."""
    rows = []
    for line, row in zip(frame.index, frame.to_numpy(dtype=object), strict=True):
        for name, value in zip(frame.columns, row, strict=True):
            if not _NUMBER.fullmatch(str(value)):
                raise DataError(f"{table.name}, line {line}, {name}: {shown(value)} is no number")
        rows.append([float(str(value).replace(",", ".")) for value in row])
    found = np.array(rows, np.float64)
    if not np.isfinite(found).all():
        raise DataError(f"{table.name}: holds a number that is too large")
    return found
