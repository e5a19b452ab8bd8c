"""Lists in text files, as published sets have them: an image in each row, and what is said of it.

No list is read as a table of labels. One may say in which folder images would lie that lie in none of a class, or
that words in names of files are classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedassay.data.layout import folders_of
from fedassay.data.named_files import NamedFiles
from fedassay.data.scanned import Scanned
from fedassay.data.spellings import partition
from fedassay.data.table_words import label_rank
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.reading import read_regular

_MOST = 50
"""Lists that are looked at."""
_NAMED = 0.5
"""Share of rows that name images, and of images that a list names which says that words are classes."""


class Column(NamedTuple):
    """Column of a list: values of images, by path, and whether its head says that it holds classes."""

    values: Mapping[str, str]
    is_class: bool


def lists_in(scan: Scanned) -> list[Path]:
    """The lists of a folder that are looked at, those in the fewest folders first."""
    names = scan.others.get("of ending .txt", ())
    return [scan.root / name for name in sorted(names, key=lambda name: (name.count("/"), name))[:_MOST]]


def columns_of_lists(scan: Scanned, paths: Sequence[str]) -> list[Column]:
    """Return all columns of all lists in a folder that describe its images."""
    lists = lists_in(scan)
    files = NamedFiles(paths if lists else ())
    found: list[Column] = []
    for path in lists:
        try:
            text = read_regular(path, limits.TABLE_BYTES).decode("utf-8", "replace")
        except DataError:
            continue
        lines = [line.split() for line in text.splitlines() if line.strip()]
        rows = [line for line in lines if not line[0].startswith("#")]
        if not rows or len(set(map(len, rows))) > 1:
            continue
        columns = [*zip(*rows, strict=True)]
        named = max((files.named(column) for column in columns), key=lambda each: each.hits)
        if named.hits >= max(2, _NAMED * len(rows)):
            for number, column in enumerate(columns):
                head = lines[0][number] if lines[0] not in rows and number < len(lines[0]) else ""
                values = {file: value for file, value in zip(named.files, column, strict=True) if file}
                found.append(Column(values, label_rank(head) is not None))
    return found


def as_filed(paths: Sequence[str], columns: Sequence[Column]) -> dict[str, str]:
    """Every image by its path if it lay in the folder that a list names beside it.

    That is the folder of other images, with one level more than these have: `val/images/1.png` of class `cat` is
    read as `val/cat/images/1.png` beside `train/cat/images/7.png`.
    """
    levels = {(name, path.count("/")): number for path in paths for number, name in enumerate(folders_of(path))}
    found = {path: path for path in paths}
    for column in columns:
        wanted = {path: (value, path.count("/") + 1) for path, value in column.values.items()}
        if set(wanted.values()) <= levels.keys():
            for path, key in wanted.items():
                parts = path.split("/")
                parts.insert(levels[key], key[0])
                found[path] = "/".join(parts)
    return {shown: path for path, shown in found.items()}


def are_listed(paths: Sequence[str], words: Sequence[str], columns: Sequence[Column]) -> bool:
    """Whether a column of classes parts most images as words in their names do."""
    for values in (column.values for column in columns if column.is_class):
        both = [(word, values[path]) for path, word in zip(paths, words, strict=True) if path in values]
        named, held = ([pair[side] for pair in both] for side in (0, 1))
        if len(set(named)) > 1 and len(both) >= _NAMED * len(paths) and partition(named) == partition(held):
            return True
    return False
