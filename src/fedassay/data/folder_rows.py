"""Tables of patients or studies: a row speaks of all images in a folder."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from fedassay.data.folder_words import level_of
from fedassay.data.named_files import Matches, NamedFiles
from fedassay.data.spellings import one_form
from fedassay.data.table_file import Table
from fedassay.data.table_words import is_person


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
    # A column of persons says whose the images are as well, and stays a column of the others.
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
