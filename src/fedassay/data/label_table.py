"""A table beside images: of which class each file is, of which person, from which site, in which part."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from fedassay.data import dicom
from fedassay.data.account import LeftOut
from fedassay.data.folder_rows import rows_of_folders
from fedassay.data.named_files import Matches, NamedFiles, unpadded
from fedassay.data.presence import Presence, joined_labels, of_one_column, of_several
from fedassay.data.spellings import are_numbers, as_one, is_missing, listed, one_form
from fedassay.data.table_columns import Column, OtherColumns
from fedassay.data.table_file import Table
from fedassay.data.table_words import FILES, WORDS, is_person, label_rank, part_of, plain_name
from fedassay.support.errors import DataError, UnrelatedTableError

_MANY = 24
"""More columns than this that differ in a number alone hold values, such as pixels, and name no files."""
_SEARCHED = 200
"""Rows and files that are searched for a pattern of names."""
_PATTERN_FITS = 0.8
"""Share of rows that name files by a pattern of columns."""
_ELSEWHERE = frozenset({"site", "person", dicom.PERSON, dicom.SITE})
"""What folders and headers of images may be asked for, where no column has the name."""


@dataclass(frozen=True)
class Columns:
    """What a plan says of a table; None: the table itself must tell.

    Attributes:
        file: Column of file names, or a pattern of the name with columns in braces.
        label: Column of the labels; several: one for each class, of which one holds 1 in each row.
        presence: A label of several that a record may have, and what becomes of records that do not say.
        persons: Columns that together say whose a record is.
        sites: Column of sites.
        leave_out: Whether what has no row, no label or no file is left out, instead of refused.
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


class Row(NamedTuple):
    """What a table says of a file; empty: nothing."""

    label: str
    persons: tuple[str, ...] = ()
    site: str = ""
    part: str = ""


@dataclass(frozen=True)
class Labelled:
    """What a table says of the files of a folder.

    Attributes:
        rows: By file.
        notes: How the table was read.
        left_out: Rows, images and columns that were not used.
        proposals: Keys of the plan that the names of columns give away.
    """

    rows: Mapping[str, Row]
    notes: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    proposals: Mapping[str, Any]


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
        self.table, self.file, self.matches = _file_column(table, files, asked)
        self.where = self.table.name
        if len(self.table.columns) < 2 and 2 * self.matches.hits < len(self.table.frame):
            raise DataError(
                f"{self.where}: its first line names the columns {self.table.columns[0]}; allowed: two columns or "
                "more, each of its own name, for files and labels"
            )

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
        made.table, made.matches, made.where = table, matches, table.name
        vars(made).pop("others", None)
        return made

    def labels(self, columns: Columns, listed_only: Callable[[], Collection[str]] = tuple) -> Labelled:
        """What the rows say of the files.

        Args:
            columns: What the plan says of the table.
            listed_only: Gives files that are named where nothing is said of them, as of a test set without labels.

        Raises:
            DataError: A column is not there or not to be told, two rows disagree, or, unless they are to be left
                out, a row has no file or no label or a file no row.
        """
        frame = self.table.frame
        label, values, notes = self._labels(columns)
        columns = self._without_elsewhere(columns)
        held = columns.persons
        persons = [self._column(name, "data.groups") for name in held]
        site = [] if columns.sites is None else self._column(columns.sites, "data.sites")
        used = {self.file, *label, *held, *([columns.sites] if columns.sites else [])}
        parts_in = (each.name for each in self.others.columns if each.name not in used and each.tells_parts())
        part_column = next(parts_in, None)
        parts = [] if part_column is None else [str(part_of(value)) for value in frame[part_column]]
        persons, more = _each_as_one(persons, "person")
        (sites,), said = _each_as_one([site], "site")
        rows: dict[str, Row] = {}
        lines: dict[str, int] = {}
        lost: list[tuple[str, str]] = []
        clashing: set[str] = set()
        dropped: list[str] = []
        again = 0
        for number, (line, given) in enumerate(zip(frame.index, self._given(), strict=True)):
            path = self.matches.files[number]
            at = f"{self.where}, line {line}"
            row = Row(
                values[number],
                tuple(column[number] for column in persons),
                sites[number] if sites else "",
                parts[number] if parts else "",
            )
            if path is None:
                why = (
                    "stands for several files of the folder"
                    if self.files.several(given)
                    else "is not in the folder"
                )
                lost.append(("row without an image", f"{at}: {given!r} {why}"))
                continue
            if path in rows:
                if rows[path] == row:
                    again += 1
                    continue
                clashing.add(path)
                lost.append(
                    (
                        "row that contradicts another",
                        f"{at}: {path} has a row already, line {lines[path]}, which says otherwise",
                    )
                )
                continue
            rows[path], lines[path] = row, line
            if not row.label and columns.presence is not None:
                dropped.append(path)
            elif not row.label:
                lost.append(("image without a label", f"{at}: {path} has no label in column {' or '.join(label)}"))
            elif columns.sites is not None and is_missing(row.site):
                lost.append(("image without a site", f"{at}: {path} has no site in column {columns.sites}"))
            elif any(is_missing(name) for name in row.persons):
                which = held[[is_missing(name) for name in row.persons].index(True)]
                lost.append(
                    ("image of nobody", f"{at}: {path} has nobody in column {which}, which data.groups names")
                )
        unlisted = [path for path in self.files.files if path not in rows]
        unlabelled = _unlabelled(unlisted, rows, listed_only, whole=not lost) if unlisted else []
        if unlisted := sorted(set(unlisted).difference(unlabelled)):
            lost.append(
                (
                    "image without a row",
                    f"{self.where}: {len(unlisted)} of {len(self.files.files)} images have no row: {unlisted[0]}",
                )
            )
        if not columns.asks:
            # Of such a table only the names of its columns matter, which may give persons and sites away.
            lost, unlisted, unlabelled = [], [], []
        if lost and not columns.leave_out:
            raise self._incomplete(lost)
        kept = {
            path: row
            for path, row in rows.items()
            if row.label
            and path not in clashing
            and not any(map(is_missing, (*row.persons, *([row.site] if columns.sites is not None else []))))
        }
        why = "of a test set, or in a folder of no records, of which no table says the labels"
        of_test = [LeftOut("image", len(unlabelled), why, tuple(unlabelled))] if unlabelled else []
        if again:
            notes += (f"{self.where}: {again:,} rows say of a file what another row says",)
        if part_column is not None:
            used.add(part_column)
            notes += (f"official parts are those of column {part_column}",)
        if columns.label is None and columns.presence is None and len(label) > 0:
            notes += (f"labels are those of column {' and '.join(label)}",)
        return Labelled(
            kept,
            (*self.table.notes, *self.matches.notes, *notes, *more, *said),
            (
                *self._left_out(lost, unlisted, dropped, {*kept, *unlabelled}),
                *of_test,
                *self.others.unused(used, self.where),
            ),
            self.others.proposals(used),
        )

    def _without_elsewhere(self, columns: Columns) -> Columns:
        elsewhere = _ELSEWHERE.difference(self.table.columns)
        return replace(
            columns,
            persons=tuple(name for name in columns.persons if name not in elsewhere),
            sites=None if columns.sites in elsewhere else columns.sites,
        )

    def _given(self) -> list[str]:
        return (
            self.table.frame[self.file].tolist()
            if self.file in self.table.columns
            else [self.file] * len(self.table.frame)
        )

    def _column(self, name: str, key: str) -> list[str]:
        if name not in self.table.columns:
            raise DataError(f"{key}: {name} given; {self.where} has {', '.join(self.table.columns)}")
        return [str(value) for value in self.table.frame[name]]

    def _labels(self, columns: Columns) -> tuple[tuple[str, ...], list[str], tuple[str, ...]]:
        """The columns of the labels, the label of each row, and notes."""
        if columns.folders_are_classes:
            return (), ["-"] * len(self.table.frame), ()
        if columns.presence is not None:
            asked = columns.label if isinstance(columns.label, str) else None
            if columns.presence.label in self.table.columns:
                name = columns.presence.label
                return (name,), of_one_column(self._column(name, "data.label"), columns.presence, self.where), ()
            name = self._joined(asked)
            return (name,), of_several(self._column(name, "data.label_column"), columns.presence, self.where), ()
        if isinstance(columns.label, tuple):
            cells = [self._column(name, "data.label_column") for name in columns.label]
            marks = [[one_form(value) for value in row] for row in zip(*cells, strict=True)]
            labels = [
                columns.label[row.index("1")] if row.count("1") == 1 and set(row) <= {"0", "1"} else ""
                for row in marks
            ]
            return columns.label, labels, ()
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
        return (name,), labels, tuple(notes)

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

    def _incomplete(self, lost: Sequence[tuple[str, str]]) -> DataError:
        """One error for all rows and images that do not belong together, with the first of them."""
        kinds = Counter(kind for kind, _ in lost)
        first = lost[0][1]
        if lost[0][0] == "row without an image":
            given = re.search(r": '(.*)' is not", first)
            first += self.files.nearest(given[1]) if given else ""
        more = (
            "" if len(lost) == 1 else f" (in all: {listed(f'{count:,} {kind}' for kind, count in kinds.items())})"
        )
        return DataError(
            f"{first}{more}; allowed: one row and one label an image, or data.incomplete: leave_out, which leaves "
            "out what lacks one"
        )

    def _left_out(
        self,
        lost: Sequence[tuple[str, str]],
        unlisted: Sequence[str],
        dropped: Sequence[str],
        accounted: Collection[str],
    ) -> Iterator[LeftOut]:
        rows = sum(kind.startswith("row without") for kind, _ in lost)
        if rows:
            yield LeftOut("row", rows, f"{self.where} names no image of the folder in them")
        if unlisted:
            yield LeftOut("image", len(unlisted), f"{self.where} has no row of them", tuple(unlisted))
        if dropped:
            yield LeftOut(
                "image", len(dropped), f"{self.where} does not say whether they have data.label", tuple(dropped)
            )
        known = {*accounted, *unlisted, *dropped}
        rest = [path for path in self.files.files if path not in known]
        if rest:
            yield LeftOut(
                "image", len(rest), f"{self.where} gives no label, no site, nobody or two rows", tuple(rest)
            )


def _each_as_one(columns: Sequence[Sequence[str]], what: str) -> tuple[list[list[str]], tuple[str, ...]]:
    done = [as_one(column, what) for column in columns]
    return [values for values, _ in done], tuple(note for _, notes in done for note in notes)


def _unlabelled(
    unlisted: Sequence[str], rows: Collection[str], listed_only: Callable[[], Collection[str]], *, whole: bool
) -> list[str]:
    """Images of a test set that nothing says the labels of.

    Args:
        unlisted: Images without a row.
        rows: Images with one.
        listed_only: As `LabelTable.labels`.
        whole: Whether every row has its image: else a test set may lack labels by mistake.
    """
    named = set(listed_only())
    known = {above for path in rows for above in _folders(path)} if whole else set()
    return [
        path
        for path in unlisted
        if path in named
        or (whole and any(_may_lack(f.rpartition("/")[2]) and f not in known for f in _folders(path)))
    ]


def _may_lack(folder: str) -> bool:
    """Whether a folder of this name may hold images without labels."""
    return part_of(folder) == "test" or plain_name(folder) in WORDS["nothing"]


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:number]) for number in range(1, len(parts))]


def _file_column(table: Table, files: NamedFiles, asked: str | None) -> tuple[Table, str, Matches]:
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
