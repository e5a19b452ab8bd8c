"""Tables in and beside a folder that may describe its images; of several, all are named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pandas

from fedassay.data.account import LeftOut
from fedassay.data.folder_reading import read_folders
from fedassay.data.label_table import Columns, LabelTable, TableReading
from fedassay.data.named_files import NamedFiles
from fedassay.data.scanned import Scanned, tables_beside
from fedassay.data.spellings import listed
from fedassay.data.table_file import Table, read_table
from fedassay.support.errors import DataError, UnrelatedTableError

_MOST = 200
_WHOLE, _FEW = 0.9, 0.5


def chosen_table(scan: Scanned, paths: Sequence[str], columns: Columns, named: Path | None) -> TableReading | None:
    """The table that speaks of the images, None where none does.

    Args:
        scan: Of the folder.
        paths: Of its images.
        columns: The plan's columns of the table.
        named: The table that the plan names; None: it is looked for.

    Raises:
        DataError: A table that may speak of the images cannot be used, or several speak of them.
    """
    files = NamedFiles(paths)
    found, passed, only = _inside(scan, files, columns, named)
    if named is not None:
        table = LabelTable(read_table(named, _below(named, scan.root)), files, columns.file)
        return _used(table, columns, [], named.name, only)
    if not found:
        found = _beside(scan.root, files, columns)
    if not found:
        return None
    whole = _together(found)
    if len(whole) > 1:
        whole = _largest(whole, len(paths), passed)
    path, table = _single(whole, columns, passed, scan.root.name)
    return _used(table, columns, passed, path, only)


def _inside(
    scan: Scanned, files: NamedFiles, columns: Columns, named: Path | None
) -> tuple[list[tuple[str, LabelTable]], list[LeftOut], set[str]]:
    """Tables in the folder that name its images, those passed over, and the images that lists alone name.

    Raises:
        DataError: A table cannot be used, and the plan names none.
    """
    found: list[tuple[str, LabelTable]] = []
    passed: list[LeftOut] = []
    only: set[str] = set()
    for path in scan.tables[:_MOST]:
        try:
            table = _related(scan.root / path, path, files, None if named else columns.file)
        except UnrelatedTableError as error:
            passed.append(LeftOut("table", 1, str(error).partition(";")[0], (path,)))
        except DataError:
            # Where the plan names a table, the others need not be sound.
            if named is None:
                raise
        else:
            if not table.is_list:
                found.append((path, table))
            elif scan.root / path != named:
                only |= table.matches.named
                why = f"{path}, which names images and says nothing of them"
                passed.append(LeftOut("table", 1, why, (path,)))
    return found, passed, only


def _single(
    whole: list[tuple[str, LabelTable]], columns: Columns, passed: list[LeftOut], folder: str
) -> tuple[str, LabelTable]:
    """Return the only table, or the only one with the labels; `passed` takes the others.

    Raises:
        DataError: Several tables are left.
    """
    told = [(path, table) for path, table in whole if _answers(table, columns)]
    if len(whole) > 1 and len(told) == 1:
        why = "which has none of the labels"
        passed += [LeftOut("table", 1, f"{path}, {why}", (path,)) for path, _ in whole if path != told[0][0]]
        whole = told
    if len(whole) > 1:
        each = listed(f"{path} ({table.matches.hits:,} images)" for path, table in whole)
        raise DataError(
            f"{folder}: {each} name its images; allowed: data.labels, one of them, or data.layout for "
            "folders alone"
        )
    return whole[0]


def _answers(table: LabelTable, columns: Columns) -> bool:
    """Whether it has the labels that the plan asks for, or any where it asks for none."""
    asked = columns.label if isinstance(columns.label, str) else columns.presence and columns.presence.label
    return table.others.may_be_labels if asked is None else asked in table.table.columns


def _used(
    table: LabelTable, columns: Columns, passed: list[LeftOut], path: str, only: Collection[str]
) -> TableReading:
    if columns.label is None and columns.presence is None and _leaves_labels_to_folders(table):
        columns = replace(columns, folders_are_classes=True)
    found = table.reading(columns, only)
    named = {"labels": path} if "," not in path else {}
    return replace(found, left_out=(*passed, *found.left_out), proposals={**named, **found.proposals})


def _leaves_labels_to_folders(table: LabelTable) -> bool:
    """Whether folders can be the classes, and the table has no labels, or the same in one of several columns."""
    try:
        layout = read_folders(table.files.files, table.where).layout
    except DataError:
        return False
    if not table.others.may_be_labels:
        return True
    places = [None if file is None else layout.place(file) for file in table.matches.files]
    return None not in places and table.others.say([place.label for place in places if place])


def _related(file: Path, path: str, files: NamedFiles, asked: str | None) -> LabelTable:
    """A table of the folder with its column of files.

    Raises:
        UnrelatedTableError: It does not speak of the images.
        DataError: It may, and cannot be used.
    """
    folder = path.rpartition("/")[0]
    try:
        return LabelTable(read_table(file, f"{folder}/" if folder else ""), files, asked)
    except UnrelatedTableError:
        raise
    except DataError as error:
        if folder.count("/") > 1:
            raise UnrelatedTableError(str(error)) from None
        if "data.layout" in str(error):
            raise
        raise DataError(
            f"{error}; it may speak of the images: mend it, name another table by data.labels, or give "
            "data.layout for folders alone"
        ) from None


def _beside(root: Path, files: NamedFiles, columns: Columns) -> list[tuple[str, LabelTable]]:
    """Tables beside the folder that name most of its images."""
    found = []
    for file in tables_beside(root)[:_MOST]:
        try:
            table = LabelTable(read_table(file), files, columns.file)
        except DataError:
            continue
        if table.matches.hits >= _FEW * len(files.files):
            found.append((f"../{file.name}", table))
    return found


def _together(found: Sequence[tuple[str, LabelTable]]) -> list[tuple[str, LabelTable]]:
    """Tables with the same columns that speak of other files each, as of parts or sites, made one."""
    alike: dict[tuple[str, ...], list[tuple[str, LabelTable]]] = defaultdict(list)
    for path, table in found:
        alike[tuple(table.table.columns)].append((path, table))
    whole = []
    for group in alike.values():
        named = [table.matches.named for _, table in group]
        if len(group) == 1 or len(set().union(*named)) < sum(map(len, named)):
            whole += group
            continue
        whole.append((", ".join(path for path, _ in group), _joined([table for _, table in group])))
    return whole


def _joined(tables: Sequence[LabelTable]) -> LabelTable:
    first = tables[0]
    frame = pandas.concat([table.table.frame for table in tables])
    name = " and ".join(dict.fromkeys(table.table.folder + table.where for table in tables))
    notes = tuple(dict.fromkeys(note for table in tables for note in table.table.notes))
    joined = replace(
        first.matches,
        files=[file for table in tables for file in table.matches.files],
        notes=tuple(dict.fromkeys(note for table in tables for note in table.matches.notes)),
    )
    return first.with_rows(Table(name, frame, notes), joined)


def _largest(
    found: list[tuple[str, LabelTable]], images: int, passed: list[LeftOut]
) -> list[tuple[str, LabelTable]]:
    """The one table that speaks of nearly all images, where the others speak of few or have no labels."""
    rest = [each for each in found if each[1].matches.hits >= _FEW * images]
    if len(rest) != 1 or rest[0][1].matches.hits < _WHOLE * images:
        return found
    for path, table in found:
        if table is not rest[0][1]:
            why = f"{path}, which names {table.matches.hits:,} of {images:,} images"
            passed.append(LeftOut("table", 1, why, (path,)))
    return rest


def _below(table: Path, root: Path) -> str:
    inside = table.resolve().parent
    if not inside.is_relative_to(root.resolve()) or inside == root.resolve():
        return ""
    return f"{inside.relative_to(root.resolve()).as_posix()}/"
