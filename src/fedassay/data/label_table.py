"""A table beside images: the class, the person, the site and the official part of each file."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from fedassay.data import dicom
from fedassay.data.account import LeftOut
from fedassay.data.file_column import file_column
from fedassay.data.layout import Place
from fedassay.data.named_files import Matches, NamedFiles
from fedassay.data.presence import Presence, joined_labels, of_one_column, of_several
from fedassay.data.spellings import as_mark, as_one, is_missing, listed, unlabelled
from fedassay.data.table_columns import Column, OtherColumns
from fedassay.data.table_file import Table
from fedassay.data.table_words import WORDS, part_of, plain_name
from fedassay.support.errors import DataError, UnrelatedTableError

_MANY = 24
"""More columns than this that differ in a number alone hold values, such as pixels, and name no files."""
_ELSEWHERE = frozenset({"site", "person", dicom.PERSON, dicom.SITE})
"""Names of facts that folders and headers of images may give, where no column has the name."""


@dataclass(frozen=True)
class Columns:
    """Columns of a table as the plan gives them; None: they are found from the table itself.

    Attributes:
        file: Column of file names, or a pattern of the name with columns in braces.
        label: Column of the labels; several: one for each class, exactly one of them 1 in each row.
        presence: A label of several that a record may have, and the treatment of records without a statement on
            it.
        persons: Columns that together identify the person of a record.
        sites: Column of sites.
        leave_out: Whether images without a row or a label and rows without a file are left out, instead of
            refused.
        folders_are_classes: Whether the table is asked for all but the labels.
    """

    file: str | None = None
    label: str | int | tuple[str, ...] | None = None
    presence: Presence | None = None
    persons: tuple[str, ...] = ()
    sites: str | None = None
    leave_out: bool = False
    folders_are_classes: bool = False

    @property
    def asks(self) -> bool:
        """Whether the table is asked for anything of each image."""
        return not self.folders_are_classes or bool(self.persons) or self.sites is not None


@dataclass(frozen=True)
class TableReading:
    """Result of reading a table of a folder's images.

    Attributes:
        name: Of its file, or of all that go together.
        columns: Names of its columns.
        rows: Its facts about each image, by path.
        notes: Remarks on the reading.
        left_out: Rows, images, columns and other tables that were not used.
        proposals: Keys of the plan that follow from it and the names of its columns.
        labels: Whether it gives the classes; otherwise the folders do.
        asked: Whether it says anything of each image; otherwise only the names of its columns are known.
    """

    name: str
    columns: tuple[str, ...]
    rows: Mapping[str, Place]
    notes: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    proposals: Mapping[str, Any]
    labels: bool
    asked: bool


class _Lost(NamedTuple):
    """A row or an image that cannot be used, why, and the same in a sentence with its name or its path."""

    what: Literal["row", "image"]
    why: str
    said: str
    name: str


class LabelTable:
    """A table with the column that names files.

    Raises:
        UnrelatedTableError: No column names files, and none is one of labels or persons.
        DataError: No column names files, though the others are of such; or the one that is asked for is not there.
    """

    def __init__(self, table: Table, files: NamedFiles, asked: str | None = None) -> None:
        self.files = files
        if len(table.columns) > _MANY and len({re.sub(r"\d+", "", name) for name in table.columns}) <= 2:
            raise UnrelatedTableError(f"{table.name}, which holds values ({table.columns[0]} and more)")
        self.table, self.file, self.matches = file_column(table, files, asked)
        if len(self.table.columns) < 2 and 2 * self.matches.hits < len(self.table.frame):
            raise DataError(
                f"{self.where}: its first line names the columns {self.table.columns[0]}; allowed: two columns or "
                "more, each of its own name, for files and labels"
            )

    @property
    def where(self) -> str:
        """The name of the table, for errors."""
        return self.table.name

    @property
    def is_list(self) -> bool:
        """Whether it names files and says nothing of them: a list, or a form to be filled in."""
        return len(self.table.columns) < 2 or bool(
            WORDS["forms"] & set(re.findall("[a-z]+", self.where.casefold()))
        )

    @cached_property
    def others(self) -> OtherColumns:
        """All columns but that of the files."""
        frame = self.table.frame
        return OtherColumns([Column(str(name), frame[name]) for name in frame.columns if name != self.file])

    def with_rows(self, table: Table, matches: Matches) -> LabelTable:
        """The same columns with the rows of several tables."""
        made = copy.copy(self)
        made.table, made.matches = table, matches
        vars(made).pop("others", None)
        return made

    def reading(self, columns: Columns, listed_only: Collection[str] = ()) -> TableReading:
        """Read the rows of the table for the files.

        Args:
            columns: The plan's keys for the table.
            listed_only: Files that are named without a row, as those of a test set without labels.

        Raises:
            DataError: A column is not there or cannot be found, two rows disagree, or, unless they are to be left
                out, a row has no file or no label or a file no row.
        """
        label, values, notes = self._labels(columns)
        elsewhere = _ELSEWHERE.difference(self.table.columns)
        held = [name for name in columns.persons if name not in elsewhere]
        site = columns.sites if columns.sites not in elsewhere else None
        used = {self.file, *label, *held, *([site] if site else [])}
        part = next((each for each in self.others.columns if each.name not in used and each.tells_parts()), None)
        parts = [""] * len(values)
        if part is not None:
            used.add(part.name)
            notes.append(f"official parts are those of column {part.name}")
            parts = [str(part_of(value)) for value in part.texts]
        persons: list[list[str]] = []
        for name in held:
            once, more = as_one(self._column(name, "data.groups"), "person")
            persons.append(once)
            notes += more
        sites, more = as_one(self._column(site, "data.sites") if site else [""] * len(values), "site")
        told = [
            Place(values[n], "", sites[n], parts[n], tuple(column[n] for column in persons))
            for n in range(len(values))
        ]
        rows, lost, again = self._by_file(told, lambda row: _lack(row, label, site, held, columns.presence))
        silent = {path for path, row in rows.items() if not row.label and columns.presence is not None}
        unlisted = [path for path in self.files.files if path not in rows]
        unlabelled = _unlabelled(unlisted, rows, listed_only, whole=not lost) if unlisted else []
        unlisted = sorted(set(unlisted).difference(unlabelled))
        said = f"{self.where}: {len(unlisted):,} of {len(self.files.files):,} images have no row: "
        lost += [_Lost("image", "without a row", said + path, path) for path in unlisted]
        if not columns.asks:
            # Of such a table only the names of its columns matter, which may give persons and sites away.
            lost, unlabelled = [], []
        if lost and not columns.leave_out:
            raise self._incomplete(lost)
        if again:
            notes.append(f"{self.where}: {again:,} rows say of a file what another row says")
        if columns.label is None and columns.presence is None and label:
            notes.append(f"labels are those of column {' and '.join(label)}")
        gone = {each.name for each in lost if each.what == "image"} | silent
        return TableReading(
            self.where,
            tuple(self.table.columns),
            {path: row for path, row in rows.items() if path not in gone},
            (*self.table.notes, *self.matches.notes, *notes, *more),
            (*self._left_out(lost, silent, unlabelled), *self.others.unused(used, self.where)),
            self.others.proposals(used),
            not columns.folders_are_classes,
            columns.asks,
        )

    def _by_file(
        self, told: Sequence[Place], lack: Callable[[Place], tuple[str, str] | None]
    ) -> tuple[dict[str, Place], list[_Lost], int]:
        """The row of each file, what cannot be used, and how many rows say what another says."""
        rows: dict[str, Place] = {}
        lines: dict[str, object] = {}
        lost: list[_Lost] = []
        again = 0
        frame = self.table.frame
        given = frame[self.file].tolist() if self.file in self.table.columns else [self.file] * len(frame)
        for line, name, path, row in zip(frame.index, given, self.matches.files, told, strict=True):
            at = f"{self.where}, line {line}: "
            if path is None:
                why = "stands for several files of" if self.files.several(name) else "is not in"
                lost.append(_Lost("row", "without an image", f"{at}{name!r} {why} the folder", name))
            elif path not in rows:
                rows[path], lines[path] = row, line
                if (why_not := lack(row)) is not None:
                    lost.append(_Lost("image", why_not[0], f"{at}{path} has {why_not[1]}", path))
            elif rows[path] == row:
                again += 1
            else:
                said = f"{at}{path} has a row already, line {lines[path]}, which says otherwise"
                lost.append(_Lost("image", "with two rows that disagree", said, path))
        return rows, lost, again

    def _column(self, name: str, key: str) -> list[str]:
        if name not in self.table.columns:
            raise DataError(f"{key}: {name} given; {self.where} has {', '.join(self.table.columns)}")
        return [str(value) for value in self.table.frame[name]]

    def _labels(self, columns: Columns) -> tuple[tuple[str, ...], list[str], list[str]]:
        """The columns of the labels, the label of each row, and notes."""
        if columns.folders_are_classes:
            return (), ["-"] * len(self.table.frame), []
        if columns.presence is not None:
            asked = columns.label if isinstance(columns.label, str) else None
            if columns.presence.label in self.table.columns:
                name = columns.presence.label
                return (name,), of_one_column(self._column(name, "data.label"), columns.presence, self.where), []
            name = self._joined(asked)
            return (name,), of_several(self._column(name, "data.label_column"), columns.presence, self.where), []
        if isinstance(columns.label, tuple):
            cells = [self._column(name, "data.label_column") for name in columns.label]
            marks = [[as_mark(value) for value in row] for row in zip(*cells, strict=True)]
            labels = [
                columns.label[row.index("1")] if row.count("1") == 1 and set(row) <= {"0", "1"} else ""
                for row in marks
            ]
            return columns.label, labels, []
        found = self.others.labels(self.where) if columns.label is None else str(columns.label)
        if isinstance(found, tuple):
            return self._labels(replace(columns, label=found))
        name = found
        written = self._column(name, "data.label_column")
        full = [value for value in written if not is_missing(value)]
        if parts := joined_labels(full):
            raise DataError(
                f"{self.where}: column {name} joins several labels in one cell; allowed: data.label, one of "
                f"{listed((f'{label} ({count:,})' for label, count in parts.most_common()), 12)}"
            )
        labels, notes = as_one([("" if is_missing(value) else value) for value in written], "label")
        return (name,), labels, [*notes, *unlabelled(labels)]

    def _joined(self, asked: str | None) -> str:
        names = (
            [asked]
            if asked
            else [
                name for name in self.table.columns if name != self.file and joined_labels(self._column(name, ""))
            ]
        )
        if len(names) != 1:
            raise DataError(
                f"data.label: is no column of {self.where} ({listed(self.table.columns, 30)}); allowed: one of "
                "them, of 0, 1, -1 and blanks, or a label of data.label_column, in which labels are joined by |"
            )
        return names[0]

    def _incomplete(self, lost: Sequence[_Lost]) -> DataError:
        """One error for all rows and images that do not belong together, with the first of them."""
        first = lost[0]
        near = self.files.nearest(first.name) if first.what == "row" else ""
        counts = Counter((each.what, each.why) for each in lost)
        kinds = listed(f"{n:,} {what}{'' if n == 1 else 's'} {why}" for (what, why), n in counts.items())
        more = f" (in all: {kinds})" if len(lost) > 1 else ""
        return DataError(
            f"{first.said}{near}{more}; allowed: one row and one label an image, or data.incomplete: leave_out, "
            "which leaves out the rest"
        )

    def _left_out(
        self, lost: Sequence[_Lost], silent: Collection[str], unlabelled: Collection[str]
    ) -> Iterator[LeftOut]:
        names: dict[tuple[Literal["row", "image"], str], list[str]] = {}
        for each in lost:
            names.setdefault((each.what, f"{each.why}, by {self.where}"), []).append(each.name)
        names["image", f"without a word in {self.where} on data.label"] = [*silent]
        names["image", "of a test set, or in a folder of no records, without labels in any table"] = [*unlabelled]
        for (what, why), held in names.items():
            if held:
                yield LeftOut(what, len(held), why, tuple(held) if what == "image" else ())


def _lack(
    row: Place, label: Sequence[str], site: str | None, persons: Sequence[str], presence: Presence | None
) -> tuple[str, str] | None:
    """Return the kind of image that a row's missing fact makes it, and the fact; None: nothing is missing."""
    if not row.label and presence is None:
        return "without a label", f"no label in column {' or '.join(label)}"
    if site is not None and is_missing(row.site):
        return "without a site", f"no site in column {site}"
    lacks = (name for name, value in zip(persons, row.persons, strict=True) if is_missing(value))
    whom = next(lacks, None)
    return None if whom is None else ("of nobody", f"nobody in column {whom}, which data.groups names")


def _unlabelled(
    unlisted: Sequence[str], rows: Collection[str], named: Collection[str], *, whole: bool
) -> list[str]:
    """Images of a test set that nothing says the labels of.

    Args:
        unlisted: Images without a row.
        rows: Images with one.
        named: As `listed_only` of `LabelTable.reading`.
        whole: Whether every row has its image: else a test set may lack labels by mistake.
    """
    known = {above for path in rows for above in _folders(path)}
    return [
        path
        for path in unlisted
        if path in named or (whole and any(_may_lack(f) and f not in known for f in _folders(path)))
    ]


def _may_lack(folder: str) -> bool:
    """Whether a folder of this name may hold images without labels."""
    name = folder.rpartition("/")[2]
    return part_of(name) == "test" or plain_name(name) in WORDS["nothing"]


def _folders(path: str) -> list[str]:
    """All folders on the way to a file, each as its path."""
    return [path[: place.start()] for place in re.finditer("/", path)]
