"""A table as people save it: CSV in any encoding and with any separator, a sheet of .xlsx, or JSON lines.

Every value is text as it stands in the file: `007`, `1.0` and `NA` are neither numbers nor blanks here.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import charset_normalizer
import pandas

from fedassay.data.table_words import UNREAD
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.extras import optional
from fedassay.support.reading import each_once, read_regular
from fedassay.support.text import cut

_BOMS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_SAMPLE = 200
_HEAD = 4096
_FOREIGN = re.compile(r"[^\W\d_]*[^\x00-\x7f\W\d_][^\W\d_]*")


@dataclass(frozen=True, eq=False)
class Table:
    """A table of texts.

    Attributes:
        name: Of its file.
        frame: Its rows; the index holds the line of each.
        notes: Choices of the reading, where there were others.
        first: Its first line as it stands, which names the columns.
        folder: Folder of the table, below the folder of the images, with `/` at the end; else empty.
    """

    name: str
    frame: pandas.DataFrame
    notes: tuple[str, ...] = ()
    folder: str = ""
    first: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the columns, each once."""
        return [str(name) for name in self.frame.columns]

    def headless(self) -> Table:
        """The same table where its first line is a row and names nothing."""
        first = pandas.DataFrame(
            [self.first or self.columns], index=[self.frame.index[0] - 1], columns=self.frame.columns
        )
        frame = pandas.concat([first, self.frame])
        frame.columns = pandas.Index([f"column {number}" for number in range(1, frame.shape[1] + 1)])
        note = f"{self.name} has no line of names: its columns are called column 1 to column {frame.shape[1]}"
        return Table(self.name, frame, (*self.notes, note), self.folder)


def read_table(path: Path, folder: str = "") -> Table:
    """The table of a file.

    Args:
        path: Its ending says what it is: `.xlsx`, `.json`, `.jsonl`, else a text with a separator.
        folder: As `Table.folder`.

    Raises:
        DataError: It is too large, no table, has fewer than two columns, or a row of another width.
        MissingExtraError: It is an .xlsx, and openpyxl is not installed.
    """
    ending = path.suffix.lower()
    if ending in UNREAD:
        raise DataError(f"{path.name}: tables in {ending} are not read; allowed: save it as CSV or .xlsx")
    content = read_regular(path, limits.TABLE_BYTES)
    if (lines := content.count(b"\n")) > limits.TABLE_ROWS:
        raise DataError(f"{path.name}: has {lines:,} lines; allowed: {limits.TABLE_ROWS:,}")
    if ending in {".json", ".jsonl"}:
        rows = _json_lines(path.name, content) if ending == ".jsonl" else _json_rows(path.name, content)
        return Table(path.name, rows, (), folder)
    raw, notes = _sheet(path.name, content) if ending == ".xlsx" else _separated(path.name, content)
    return _headed(path.name, raw, notes, folder)


def _headed(name: str, raw: pandas.DataFrame, notes: list[str], folder: str) -> Table:
    """A table with its first row as names, and without rows that hold nothing."""
    raw = raw.fillna("").map(str.strip)
    raw = raw[(raw != "").any(axis=1)]
    names = [] if raw.empty else [str(value) for value in raw.iloc[0]]
    if len(names) > limits.TABLE_COLUMNS:
        raise DataError(f"{name}: has {len(names):,} columns; allowed: {limits.TABLE_COLUMNS:,}")
    first = tuple(names)
    for number, value in enumerate(first):
        names[number] = value or f"column {number + 1}"
        if value and value in first[:number]:
            names[number] = f"{value} (column {number + 1})"
    if not names:
        raise DataError(f"{name}: has no rows")
    frame = raw.iloc[1:]
    if frame.empty:
        raise DataError(f"{name}: has no rows")
    return Table(name, frame.set_axis(names, axis=1), tuple(notes), folder, first)


def _separated(name: str, content: bytes) -> tuple[pandas.DataFrame, list[str]]:
    """The rows of a text with the separator by which most lines have the same number of columns."""
    text, encoding = _decoded(name, content)
    notes = [f"{name} is read as {encoding}"] if encoding != "UTF-8" else []
    lines = [*io.StringIO(text.replace("\r\n", "\n").replace("\r", "\n"))]
    if any(len(line) > limits.TABLE_LINE for line in lines):
        raise DataError(f"{name}: is no CSV (a line of {limits.TABLE_LINE:,} characters or more)")
    if lines and re.fullmatch(r'"?sep=.{1,2}', lines[0].strip()):
        # Excel's own line for the separator says no more than the lines below.
        lines[0] = "\n"
    best, width = _separator(lines)
    rows: dict[int, list[str]] = {}
    reader = csv.reader(lines, delimiter=best, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            # Spreadsheets leave rows of separators alone, of any number.
            if any(map(str.strip, row)):
                rows[reader.line_num] = [sys.intern(cell.strip()) for cell in row]
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: is no CSV ({error})") from None
    numbers = list(rows)
    start = next((number for number, row in rows.items() if len(row) == width), None)
    # A title stands above the names where the first line is narrower than the table, never where it is wider.
    if start is not None and len(rows[numbers[0]]) < width:
        above = numbers[: numbers.index(start)]
        which = "line above its names is" if len(above) == 1 else "lines above its names are"
        notes.append(f"{name}: the {which} taken for a title")
        for number in above:
            del rows[number]
    widest = len(next(iter(rows.values()), ()))
    for number, row in rows.items():
        if not (width or 1) <= len(row) <= widest:
            raise DataError(f"{name}, line {number}: has {len(row)} columns; allowed: {widest}")
        row.extend([""] * (widest - len(row)))
    return pandas.DataFrame.from_dict(rows, orient="index", dtype=object), notes


def _separator(lines: Sequence[str]) -> tuple[str, int]:
    """The separator by which most of the first lines have the same number of columns, and that number; 0: none."""
    sample = [line for line in lines[:_SAMPLE] if line.strip()]
    best, width, score = ",", 0, (0, 0)
    for separator in ",;\t|":
        widths = Counter(len(row) for row in csv.reader(sample, delimiter=separator) if any(row))
        common, count = max(widths.items(), key=lambda item: item[1] if item[0] > 1 else 0, default=(0, 0))
        if common > 1 and (count, common) > score:
            best, width, score = separator, common, (count, common)
    return best, width


def _decoded(name: str, content: bytes) -> tuple[str, str]:
    """The text of a table, and the encoding's name."""
    encoding = next((encoding for bom, encoding in _BOMS.items() if content.startswith(bom)), "utf-8")
    if encoding == "utf-8" and b"\0" in content[: limits.MIB]:
        found = charset_normalizer.from_bytes(content[:_HEAD]).best()
        encoding = (
            found.encoding if found is not None and found.encoding.startswith(("utf_16", "utf_32")) else "utf-8"
        )
        if encoding == "utf-8":
            raise DataError(f"{name}: is no text, it holds null characters; allowed: CSV in UTF-8")
    try:
        return content.decode(encoding), "UTF-8" if encoding.startswith("utf-8") else "UTF-16"
    except UnicodeDecodeError:
        pass
    try:
        western = content.decode("cp1252")
    except UnicodeDecodeError:
        western = ""
    # In Western texts a foreign letter stands among others; of another alphabet all letters of a word are foreign.
    words = "".join(_FOREIGN.findall(western))
    if western and "\0" not in western and sum(letter.isascii() for letter in words) >= len(words) / 2:
        return western, "Windows-1252"
    best = charset_normalizer.from_bytes(content[: limits.MIB]).best()
    try:
        return content.decode("" if best is None else best.encoding), "" if best is None else best.encoding
    except (UnicodeDecodeError, LookupError):
        raise DataError(f"{name}: is no text in an encoding that is known; allowed: UTF-8") from None


def _sheet(name: str, content: bytes) -> tuple[pandas.DataFrame, list[str]]:
    """The first sheet of a workbook that holds anything."""
    optional("openpyxl", "tables", name)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            size = sum(member.file_size for member in packed.infolist())
        if size > limits.TABLE_BYTES:
            raise DataError(f"{name}: unpacks to {size:,} bytes; allowed: {limits.TABLE_BYTES:,}")
        sheets = pandas.read_excel(
            io.BytesIO(content), sheet_name=None, header=None, dtype=str, na_filter=False, engine="openpyxl"
        )
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 - a workbook of other people's ends its reader in any way
        reason = cut(str(error), limits.NAME_LENGTH) or type(error).__name__
        raise DataError(f"{name}: cannot be read as .xlsx ({reason})") from None
    full = {title: frame for title, frame in sheets.items() if not frame.empty}
    if not full:
        raise DataError(f"{name}: has no rows")
    title, frame = next(iter(full.items()))
    notes = [f"{name}: sheet {title} is read, {', '.join([*full][1:])} not"] if len(full) > 1 else []
    return frame.set_axis(range(1, len(frame) + 1), axis=0), notes


def _json_lines(name: str, content: bytes) -> pandas.DataFrame:
    """A row for each line with a JSON object; the names are those of all objects together."""
    rows = {}
    for number, line in enumerate(_decoded(name, content)[0].splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{name}, line {number}: is no JSON ({cut(str(error), limits.NAME_LENGTH)})") from None
        if not isinstance(value, dict):
            raise DataError(f"{name}, line {number}: is no JSON object; allowed: one a line")
        rows[number] = {key: _as_text(item) for key, item in value.items()}
    if not rows:
        raise DataError(f"{name}: has no rows")
    return pandas.DataFrame.from_dict(rows, orient="index").fillna("")


def _json_rows(name: str, content: bytes) -> pandas.DataFrame:
    """A row for each object of a list, or for each key of a mapping, which is the file."""
    try:
        held = json.loads(_decoded(name, content)[0].removeprefix("\ufeff"), object_pairs_hook=each_once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: is no JSON ({cut(str(error), limits.NAME_LENGTH)})") from None
    if isinstance(held, dict) and not any(isinstance(value, list) for value in held.values()):
        held = [{"file": key, **(own if isinstance(own, dict) else {"label": own})} for key, own in held.items()]
    if not isinstance(held, list) or not held or not all(isinstance(row, dict) for row in held):
        raise DataError(f"{name}: is no table; allowed: a list of JSON objects, or a label for each file name")
    rows = {number: {key: _as_text(item) for key, item in row.items()} for number, row in enumerate(held, 1)}
    return pandas.DataFrame.from_dict(rows, orient="index").fillna("")


def _as_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return json.dumps(value)
