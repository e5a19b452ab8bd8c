"""A CSV of labels beside images: which file is of which class, and of which person."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

from fedassay.data.groups import is_obvious
from fedassay.support import limits
from fedassay.support.errors import DataError, UnrelatedTableError
from fedassay.support.reading import regular_size

_LABEL_COLUMNS = ("label", "class", "target", "diagnosis", "category", "y")
"""Names that are taken for the column of labels where a table has several others, the first of them."""


@dataclass(frozen=True)
class Columns:
    """What a plan says of a table; None: the table itself must tell.

    Attributes:
        file: Name of the column of file names.
        label: Name of the column of labels.
        person: Name of the column of persons; None: the table is not asked for them.
    """

    file: str | None
    label: str | int | None
    person: str | None = None


class Row(NamedTuple):
    """What a table says of a file: its class, and its person where that was asked for."""

    label: str
    person: str


def read_labels(table: Path, files: Iterable[str], columns: Columns) -> dict[str, Row]:
    """The label of each file, and its person.

    The table has a line of column names; commas, semicolons or tabs part the columns. A row names its file by
    path below the folder, by name, or by name without its ending.

    Args:
        table: The CSV.
        files: Paths of the images below their folder, with `/`.
        columns: Which columns are meant.

    Returns:
        The row of every file; persons are empty where no column was named.

    Raises:
        DataError: No sound table, a column that is not there or not to be told, a row without a file, a file
            without a row or with two.
    """
    whole = list(files)
    # A row more than there are images is enough to say what is wrong with all the others.
    names, rows = _rows(table, len(whole) + 1)
    paths = _paths(whole)
    file_column = _file_column(names, rows, paths, columns.file, table.name)
    label_column = _label_column(names, file_column, columns.label, table.name)
    person_column = None if columns.person is None else _named(names, columns.person, "data.groups", table.name)
    found: dict[str, Row] = {}
    for number, row in rows:
        given, label = row[file_column].strip(), row[label_column].strip()
        person = "" if person_column is None else row[person_column].strip()
        at = f"{table.name}, line {number}"
        if (path := paths.get(given)) is None:
            why = "is not in the folder" if given not in paths else "stands for several files of the folder"
            raise DataError(f"{at}: {given!r} {why}; allowed: one image a row, by path or by name")
        if path in found:
            raise DataError(f"{at}: {path} has a row already; allowed: one row an image")
        if not label:
            raise DataError(f"{at}: {path} has no label in column {names[label_column]}")
        if person_column is not None and not person:
            raise DataError(f"{at}: {path} has nobody in column {names[person_column]}, which data.groups names")
        found[path] = Row(label, person)
    if missing := sorted({path for path in paths.values() if path is not None} - found.keys()):
        raise DataError(
            f"{table.name}: {len(missing)} of {len(found) + len(missing)} images have no row: {missing[0]}; "
            "allowed: one row an image"
        )
    return found


def column_names(table: Path) -> list[str]:
    """Names of the columns of a table.

    Raises:
        DataError: No sound table.
    """
    return _rows(table, 1)[0]


def _rows(table: Path, most: int) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the first rows that are not empty with their lines."""
    regular_size(table, limits.TABLE_BYTES)
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:
            head = stream.readline(limits.TABLE_LINE)
            stream.seek(0)
            delimiter = max(",;\t", key=head.count)
            reader = csv.reader(_lines(stream), delimiter=delimiter, strict=True)
            names = [name.strip() for name in next(reader, [])]
            if len(names) > limits.TABLE_COLUMNS:
                raise csv.Error(f"{len(names):,} columns; allowed: {limits.TABLE_COLUMNS:,}")
            full = ((reader.line_num, row) for row in reader if any(cell.strip() for cell in row))
            rows = [*itertools.islice(full, most)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table.name}: is no CSV in UTF-8 ({error})") from None
    if len(names) < 2 or len(set(names)) < len(names):
        raise DataError(
            f"{table.name}: its first line names the columns {', '.join(names) or '(none)'}; allowed: two "
            "columns or more, each of its own name, for files and labels"
        )
    for number, row in rows:
        if len(row) != len(names):
            raise DataError(f"{table.name}, line {number}: has {len(row)} columns; allowed: {len(names)}")
    if not rows:
        raise DataError(f"{table.name}: has no rows")
    return names, rows


def _lines(stream: TextIO) -> Iterator[str]:
    """The lines of a table, none of them longer than a table's are; few that hold nothing."""
    empty = 0
    while line := stream.readline(limits.TABLE_LINE):
        if len(line) == limits.TABLE_LINE:
            raise csv.Error(f"a line of {limits.TABLE_LINE:,} characters or more")
        empty += not line.strip(" ,;\t\r\n")
        if empty > limits.TABLE_EMPTY:
            raise csv.Error(f"more than {limits.TABLE_EMPTY:,} empty lines")
        yield line


def _paths(files: Sequence[str]) -> dict[str, str | None]:
    """What a row may call a file: path, name, either without its ending; None where that is several files."""
    found: dict[str, str | None] = {}
    for path in files:
        name = path.rpartition("/")[2]
        for short in {name, name.rpartition(".")[0], path.rpartition(".")[0]} - {path}:
            found[short] = None if short in found else path
    return found | {path: path for path in files}


def _file_column(
    names: Sequence[str],
    rows: Sequence[tuple[int, list[str]]],
    paths: dict[str, str | None],
    asked: str | None,
    where: str,
) -> int:
    if asked is not None:
        return _named(names, asked, "data.file_column", where)
    hits = [sum(row[column].strip() in paths for _, row in rows) for column in range(len(names))]
    if max(hits) == 0:
        known = [name for name in names if name.lower() in _LABEL_COLUMNS or is_obvious(name)]
        raise (DataError if known else UnrelatedTableError)(
            f"{where}: no column names files of the folder ({', '.join(names)}; the first row is "
            f"{', '.join(rows[0][1])}); allowed: paths below the folder or names of files"
        )
    return hits.index(max(hits))


def _label_column(names: Sequence[str], file_column: int, asked: str | int | None, where: str) -> int:
    if asked is not None:
        return _named(names, str(asked), "data.label_column", where)
    others = [name for column, name in enumerate(names) if column != file_column]
    known = [name for wanted in _LABEL_COLUMNS for name in others if name.lower() == wanted]
    if len(others) == 1 or known:
        return names.index(known[0] if known else others[0])
    raise DataError(
        f"{where}: which column holds the labels is not to be told; data.label_column allows {', '.join(others)}"
    )


def _named(names: Sequence[str], asked: str, key: str, where: str) -> int:
    if asked not in names:
        raise DataError(f"{key}: {asked} given; {where} has {', '.join(names)}")
    return names.index(asked)
