"""Column of a table that names the files of a folder: one column, a pattern of columns, or one naming folders."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedassay.data.folder_words import level_of
from fedassay.data.named_files import Matches, NamedFiles, unpadded
from fedassay.data.spellings import are_numbers, listed, one_form
from fedassay.data.table_file import Table
from fedassay.data.table_words import FILES, is_person, label_rank
from fedassay.support.errors import DataError, UnrelatedTableError

_SEARCHED = 200
"""Rows and files that are searched for a pattern of names."""
_PATTERN_FITS = 0.8
"""Share of rows that name files by a pattern of columns."""


def file_column(table: Table, files: NamedFiles, asked: str | None) -> tuple[Table, str, Matches]:
    """The table, with names of its columns, the column that names files, and which."""
    if asked is not None and "{" in asked:
        return table, asked, _of_pattern(asked, table, files)
    if asked is not None and asked not in table.columns:
        raise DataError(f"data.file_column: {asked} given; {table.name} has {', '.join(table.columns)}")
    if asked is None and _are_a_row(table.columns, files, table.folder):
        table = table.headless()
    asked_for = table.columns if asked is None else [asked]
    some = table.frame.iloc[:_SEARCHED]
    likely = [name for name in asked_for if files.named(some[name].tolist(), table.folder).hits]
    found = {name: files.named(table.frame[name].tolist(), table.folder) for name in likely or asked_for}

    def sure(name: str) -> tuple[int, bool, bool]:
        return found[name].hits, not are_numbers(set(table.frame[name])), bool(FILES.search(name))

    best = max(found, key=sure)
    of_folders = rows_of_folders(table, files, asked_for, asked=asked is not None)
    if of_folders is not None and of_folders[2].hits > (-1 if is_person(best) else 1) + found[best].hits:
        return of_folders
    if not found[best].hits and (pattern := _pattern(table, files)) is not None:
        named = _of_pattern(pattern, table, files)
        return table, pattern, Matches(named.files, (*named.notes, f"files are named {pattern} by the columns"))
    # Ages and counts are now and then the name of a file: a column of files names mostly files, or most of them.
    values = len(set(table.frame[best]))
    if found[best].hits == 0 or (
        asked is None and found[best].hits < values / 2 and 2 * found[best].hits < len(files.files)
    ):
        names = table.columns
        known = [name for name in names if label_rank(name) is not None or is_person(name)]
        first = ", ".join(str(value) for value in table.frame.iloc[0])
        raise (DataError if known else UnrelatedTableError)(
            f"{table.name}: no column names files of the folder ({listed(names, 30)}; the first row is {first}"
            f"{files.nearest(str(table.frame.iloc[0][best]))}); allowed: paths below the folder or "
            "names of files, a pattern of them such as data.file_column: '{patient}_{visit}', or data.layout for "
            "folders alone"
        )
    return table, best, found[best]


def _are_a_row(names: Sequence[str], files: NamedFiles, folder: str) -> bool:
    """Whether what stands where names of columns do names a file, or the path of a folder."""
    if files.named(names, folder).hits:
        return True
    folders = NamedFiles({path.rpartition("/")[0] for path in files.files})
    return bool(folders.named([name.rstrip("/") for name in names if "/" in name], folder).hits)


def _pattern(table: Table, files: NamedFiles) -> str | None:
    """The pattern of names of files that columns fill in all rows; None where there is none."""
    rows = table.frame.to_dict("records")
    for file in files.files[:_SEARCHED]:
        pieces = re.split(r"(\d+)", file.rpartition("/")[2].rpartition(".")[0])
        for row in rows[:_SEARCHED]:
            held = {unpadded(value): name for name, value in row.items() if value}
            if len(pieces) > 3 and all(unpadded(piece) in held for piece in pieces[1::2]):
                pattern = "".join(f"{{{held[unpadded(p)]}}}" if n % 2 else p for n, p in enumerate(pieces))
                # A row without a value names no file, which is said of the row and not of the pattern.
                if _of_pattern(pattern, table, files).hits >= _PATTERN_FITS * len(rows):
                    return pattern
    return None


def _of_pattern(pattern: str, table: Table, files: NamedFiles) -> Matches:
    """The files that a pattern of columns names."""
    rows = table.frame.to_dict("records")
    found = files.named([_filled(pattern, row, table.name) for row in rows])
    if None not in found.files:
        return found
    bare = [_filled(pattern, {name: unpadded(value) for name, value in row.items()}, table.name) for row in rows]
    return max(found, files.by_numbers(bare), key=lambda each: each.hits)


def _filled(pattern: str, row: Mapping[str, str], where: str) -> str:
    try:
        return re.sub(r"\{([^{}]+)\}", lambda name: row[name[1]], pattern)
    except KeyError as error:
        raise DataError(
            f"data.file_column: {pattern} given; {where} has no column {error.args[0]}, but {listed(row, 30)}"
        ) from None


def rows_of_folders(
    table: Table, files: NamedFiles, names: Sequence[str], *, asked: bool
) -> tuple[Table, str, Matches] | None:
    """The table with a row for each image, where a column names folders of images.

    Args:
        table: With one row a folder.
        files: Of the folder.
        names: Columns that may name folders.
        asked: Whether the plan names the column: then folders may be of any kind, else of persons and studies.

    Returns:
        The rows, what names the files, and the file of each row; None where no column names folders.
    """
    inside: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in files.files:
        parts = file.split("/")
        for depth in range(1, len(parts)):
            inside[depth]["/".join(parts[:depth])].append(file)
    best: tuple[int, str, list[list[str]]] = (0, "", [])
    for name in names:
        values = [value.rstrip("/\\") for value in table.frame[name]]
        if len(set(values)) < len(values):
            continue
        for held in inside.values():
            whose = asked or is_person(name)
            likely = whose or _are_of_persons(held, values)
            found = _named(values, held, table.folder, numbers=whose) if likely else []
            below = [[] if folder is None else held[folder] for folder in found]
            if sum(map(len, below)) > best[0] and 2 * sum(map(bool, below)) >= len(values):
                best = (sum(map(len, below)), name, below)
    many, name, below = best
    if not many:
        return None
    # A row without images stays, so that it is accounted for.
    numbers = [number for number, each in enumerate(below) for _ in range(max(1, len(each)))]
    named: list[str | None] = []
    for each in below:
        named += each or [None]
    note = f"column {name} of {table.name} names folders, with {many:,} images in them"
    # A column of persons also gives the persons of the images, and stays a column of the others.
    column = f"{{{name}}}" if is_person(name) else name
    return replace(table, frame=table.frame.iloc[numbers]), column, Matches(named, (note,))


def _are_of_persons(folders: dict[str, list[str]], values: Sequence[str]) -> bool:
    """Whether folders are those of persons or studies by their names, or rows give paths of them."""
    kinds = {"person", "numbered", "visit"}
    return level_of({folder.rpartition("/")[2] for folder in folders}) in kinds or any("/" in v for v in values)


def _named(values: Sequence[str], folders: dict[str, list[str]], start: str, *, numbers: bool) -> list[str | None]:
    """The folder of each value, by its path or the end of it, or by its number where values are `numbers`."""
    found = NamedFiles(folders).named(values, start).files
    if any(found) or not numbers or not all(re.fullmatch(r"\d+([.,]0+)?", value) for value in values):
        return found
    several: dict[str, list[str]] = defaultdict(list)
    for folder in folders:
        several[one_form(re.sub(r"^\D+", "", folder.rpartition("/")[2]))].append(folder)
    return [held[0] if len(held := several[one_form(value)]) == 1 else None for value in values]
