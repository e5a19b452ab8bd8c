"""What goes wrong with files and tables on their way, one change each."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from worlds import Record, World, write_image, write_table

Change = Callable[[World, np.random.Generator], "Effect | None"]


@dataclass
class Effect:
    """How a fault changes what is to be loaded, and what a person would answer.

    Attributes:
        gone: Numbers of records that are lost, whose answer is to leave them out.
        answers: Keys of `data`.
        before: The change is made before the files are written.
    """

    gone: set[int] = field(default_factory=set)
    answers: dict[str, Any] = field(default_factory=dict)


FAULTS: dict[str, Change] = {}


def fault(change: Change) -> Change:
    FAULTS[change.__name__] = change
    return change


_LEAVE_OUT = {"incomplete": "leave_out"}


def _number(world: World, row: int) -> int:
    """The record of a row; rows stand in the order of records where a table was made of them."""
    return world.records[row - 1].number


def _plain(world: World) -> bool:
    return bool(world.table) and len(world.table) - 1 == len(world.records)


def _of_rows(
    name: str, change: Callable[[World, np.random.Generator], Effect | None], needs: str = "file"
) -> None:
    def checked(world: World, rng: np.random.Generator) -> Effect | None:
        return change(world, rng) if _plain(world) and needs in world.columns else None

    FAULTS[name] = checked


def _cell(column: str, write: Callable[[str, int], str]) -> Callable[[World, np.random.Generator], Effect | None]:
    """A change of spelling in one column, which leaves what it says."""

    def change(world: World, _: np.random.Generator) -> Effect:
        place = world.table[0].index(world.columns[column])
        for number, row in enumerate(row for row in world.table[1:] if row):
            row[place] = write(row[place], number)
        return Effect()

    return change


_of_rows("backslashes", _cell("file", lambda v, n: v.replace("/", "\\")))
_of_rows("dot_slash", _cell("file", lambda v, n: f"./{v}"))
_of_rows("prefix", _cell("file", lambda v, n: f"export/2024/{v}"))
_of_rows("absolute_path", _cell("file", lambda v, n: f"/home/me/data/{v}"))
_of_rows("upper_case_paths", _cell("file", lambda v, n: v.upper()))
_of_rows("trailing_blank_in_paths", _cell("file", lambda v, n: f"{v} "))
_of_rows("no_endings", _cell("file", lambda v, n: v.removesuffix(".png")))
_of_rows("other_ending", _cell("file", lambda v, n: v if "." not in v else v.replace(".png", ".PNG")))
_of_rows("labels_upper_case", _cell("label", lambda v, n: v.upper() if n % 2 else v), "label")
_of_rows("labels_blank_after", _cell("label", lambda v, n: f"{v}  " if n % 3 else v), "label")
_of_rows("labels_as_floats", _cell("label", lambda v, n: f"{v}.0" if v.isdigit() and n % 2 else v), "label")
_of_rows(
    "labels_as_truths",
    _cell("label", lambda v, n: {"0": ("False", "false"), "1": ("True", "true")}.get(v, (v, v))[n % 2]),
    "label",
)
_of_rows(
    "persons_as_floats", _cell("person", lambda v, n: f"{int(v)}.0" if v.isdigit() and n % 2 else v), "person"
)
_of_rows(
    "persons_without_zeros", _cell("person", lambda v, n: str(int(v)) if v.isdigit() and n % 3 else v), "person"
)
_of_rows("persons_blank_after", _cell("person", lambda v, n: f"{v} " if n % 2 else v), "person")
_of_rows("sites_upper_case", _cell("site", lambda v, n: v.upper() if n % 2 else v), "site")


def _drop_row(world: World, rng: np.random.Generator) -> Effect:
    row = int(rng.integers(1, len(world.table)))
    number = _number(world, row)
    world.table[row] = []
    return Effect({number}, _LEAVE_OUT)


def _more_rows(world: World, rng: np.random.Generator) -> Effect:
    place = world.table[0].index(world.columns["file"])
    for at in (1, 5):
        row = list(world.table[at])
        if row:
            row[place] = f"nowhere/gone_{at}.png"
            world.table.append(row)
    return Effect(set(), _LEAVE_OUT)


def _blank(value: str, column: str = "label") -> Callable[[World, np.random.Generator], Effect | None]:
    def change(world: World, rng: np.random.Generator) -> Effect | None:
        place = world.table[0].index(world.columns[column])
        rows = [n for n in (2, 9, 11) if world.table[n]]
        for row in rows:
            world.table[row][place] = value
        return Effect({_number(world, row) for row in rows}, _LEAVE_OUT)

    return change


def _clash(world: World, rng: np.random.Generator) -> Effect | None:
    place = world.table[0].index(world.columns["label"])
    if not world.table[3]:
        return None
    row = list(world.table[3])
    other = next(
        (r[place] for r in world.table[1:] if r and r[place].strip().lower() != row[place].strip().lower()), None
    )
    if other is None or other in {"", "nan"}:
        return None
    world.table.append([*row[:place], other, *row[place + 1 :]])
    return Effect({_number(world, 3)}, _LEAVE_OUT)


def _again(world: World, rng: np.random.Generator) -> Effect:
    world.table += [list(row) for row in world.table[-3:]]
    return Effect()


def _column(
    name: str, value: Callable[[int], str], first: bool = False
) -> Callable[[World, np.random.Generator], Effect | None]:
    def change(world: World, rng: np.random.Generator) -> Effect | None:
        if name and name in world.table[0]:
            return None
        for number, row in enumerate(world.table):
            if row:
                row.insert(0 if first else len(row), name if number == 0 else value(number))
        return Effect()

    return change


_of_rows("missing_row", _drop_row)
_of_rows("rows_of_missing_files", _more_rows)
_of_rows("blank_labels", _blank(""), "label")
_of_rows("nan_labels", _blank("nan"), "label")
_of_rows("blank_persons", _blank("", "person"), "person")
_of_rows("blank_sites", _blank("", "site"), "site")
_of_rows("contradicting_rows", _clash, "label")
_of_rows("rows_twice", _again)
_of_rows("index_column", _column("", str, first=True))
_of_rows("index_column_named", _column("Unnamed: 0", str, first=True))
_of_rows("dates_beside", _column("acquired on date", lambda n: f"2024-01-{n % 28 + 1:02d}"))
_of_rows("weights_beside", _column("weight", lambda n: f"{50 + n % 9},5"))
_of_rows("comments_beside", _column("comment", lambda n: "" if n % 3 else 'said "ok", see file'))
_of_rows("empty_column", _column("", lambda n: ""))


def _saved(name: str, save: Callable[[World], None]) -> None:
    """A change of how the table is saved; the last of two counts."""

    def change(world: World, rng: np.random.Generator) -> Effect | None:
        if not world.table:
            return None
        world.after.append(save)
        return Effect()

    FAULTS[name] = change


def _text(
    world: World, delimiter: str = ",", encoding: str = "utf-8", head: str = "", end: str = "\n", tail: str = ""
) -> None:
    if world.table_at.suffix == ".xlsx":
        return
    write_table(world.table_at, [row for row in world.table if row], delimiter, "utf-8")
    text = head + world.table_at.read_text(encoding="utf-8").replace("\n", end) + tail
    world.table_at.write_bytes(text.encode(encoding))


_saved("semicolons", lambda w: _text(w, ";"))
_saved("tabs", lambda w: _text(w, "\t"))
_saved("utf16", lambda w: _text(w, "\t", "utf-16"))
_saved("byte_order_mark", lambda w: _text(w, ";", "utf-8-sig", end="\r\n"))
_saved("title_lines", lambda w: _text(w, head="Export of the archive\n\n"))
_saved("empty_lines", lambda w: _text(w, tail="\n\n,,\n"))
_saved("windows_lines", lambda w: _text(w, end="\r\n"))


@fault
def windows_1252(world: World, rng: np.random.Generator) -> Effect | None:
    if not _plain(world):
        return None
    _column("Größe in Händen", lambda n: "fünf")(world, rng)
    world.after.append(lambda w: _text(w, ";", "cp1252"))
    return Effect()


@fault
def as_a_sheet(world: World, rng: np.random.Generator) -> Effect | None:
    if not world.table or world.table_at.suffix != ".csv":
        return None

    def save(w: World) -> None:
        import openpyxl

        book = openpyxl.Workbook()
        for row in (row for row in w.table if row):
            book.active.append(row)
        w.table_at.unlink()
        w.table_at = w.table_at.with_suffix(".xlsx")
        book.save(w.table_at)

    world.after.append(save)
    return Effect(
        answers={"labels": world.table_at.with_suffix(".xlsx").name} if "labels" in world.answers else {}
    )


@fault
def no_names(world: World, rng: np.random.Generator) -> Effect | None:
    if not _plain(world) or "label" not in world.columns or world.answers:
        return None
    place = world.table[0].index(world.columns["label"]) + 1
    answers: dict[str, Any] = {"label_column": f"column {place}"}
    if "person" in world.columns:
        answers["groups"] = f"column {world.table[0].index(world.columns['person']) + 1}"
    if (
        "site" in world.columns
        or "part" in world.columns
        or "lesion_id" in world.table[0]
        or "person" in world.columns
    ):
        return None
    world.after.append(lambda w: write_table(w.table_at, [row for row in w.table[1:] if row]))
    return Effect(answers=answers)


@fault
def an_older_table(world: World, rng: np.random.Generator) -> Effect | None:
    if (
        not _plain(world)
        or "label" not in world.columns
        or "labels" in world.answers
        or world.table_at.parent != world.root
    ):
        return None
    place = world.table[0].index(world.columns["label"])

    def save(w: World) -> None:
        full = [row for row in w.table[1:] if row]
        turned = [row[place] for row in full][::-1]
        rows = [[*row[:place], label, *row[place + 1 :]] for row, label in zip(full, turned, strict=True)]
        write_table(w.root / "a_backup.csv", [w.table[0], *rows])

    world.after.insert(0, save)
    return Effect(answers={"labels": world.table_at.name})


def _beside(name: str, act: Callable[[World], None], **answers: Any) -> None:
    def change(world: World, rng: np.random.Generator) -> Effect:
        world.after.append(act)
        return Effect(answers=answers)

    FAULTS[name] = change


def _first(world: World) -> Path:
    return world.file(world.records[0]).parent


def _write(path: Path, content: bytes = b"x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _junk(w: World) -> None:
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._0.png", ".ipynb_checkpoints/0.png"):
        _write(_first(w) / name)
    _write(w.root / "__MACOSX" / "x" / "._0.png")
    _write(w.root / "@eaDir" / "0.png@SynoEAStream")


def _notes(w: World) -> None:
    _write(w.root / "README.md", b"# Read me")
    _write(w.root / "LICENSE.txt", b"free, of charge\nand, of warranty\n")
    _write(_first(w) / "notes.xml")


def _loop(w: World) -> None:
    (w.root / "again").symlink_to(w.root, target_is_directory=True)


_beside("junk_of_systems", _junk)
_beside("notes_beside", _notes)
_beside("links_in_circles", _loop)
_beside("empty_folder", lambda w: (w.root / "empty").mkdir())
_beside(
    "a_table_of_something_else",
    lambda w: write_table(w.root / "devices.csv", [["device", "bought"], ["a", "2019"], ["b", "2020"]]),
)
_beside("unread_pictures", lambda w: [_write(_first(w) / f"s{n}.svs") for n in range(3)], **_LEAVE_OUT)  # type: ignore[arg-type, return-value]


@fault
def one_image_at_the_top(world: World, rng: np.random.Generator) -> Effect | None:
    if (
        world.table
        or any("/" not in r.path for r in world.records)
        or "hf" in world.root.name
        or "table" in world.root.name
    ):
        return None
    world.after.append(lambda w: write_image(w.root / "sample.png", Record(9999, "x", "", "", "")))
    return Effect()


@fault
def decomposed_names(world: World, rng: np.random.Generator) -> Effect | None:
    if not world.table or not _plain(world) or "file" not in world.columns:
        return None
    place = world.table[0].index(world.columns["file"])
    for row in world.table[1:]:
        if row:
            row[place] = unicodedata.normalize("NFC", _umlaut(row[place]))
    world.records = [replace(r, path=unicodedata.normalize("NFD", _umlaut(r.path))) for r in world.records]
    return Effect()


def _umlaut(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}Müller{name}"


@fault
def upper_case_endings(world: World, rng: np.random.Generator) -> Effect | None:
    if world.table or "dicom" in world.root.name:
        return None
    world.after.insert(
        0, lambda w: [w.file(r).rename(w.file(r).with_suffix(".PNG")) for r in w.records if not w.table] and None
    )  # type: ignore[func-returns-value]
    return None if "hf" in world.root.name or "table" in world.root.name else Effect()


@fault
def thumbnails_class(world: World, rng: np.random.Generator) -> Effect | None:
    if world.table or world.root.name != "class_image":
        return None
    world.after.append(
        lambda w: (
            [write_image(w.root / "thumbnails" / f"{n}.png", Record(9999, "x", "", "", "")) for n in range(9)]
            and None
        )
    )  # type: ignore[func-returns-value]
    return Effect(answers={"classes": sorted({r.label for r in world.records}), "layout": "class/image"})
