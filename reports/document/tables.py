"""Tables: one description, shown on the page and written as CSV, so that the two never disagree."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedassay.records.record import Metric, Verdict, epsilon_metric
from fedassay.reports.words.numbers import duration, interval, short, significant, size
from fedassay.reports.words.verdicts import LOOKS
from fedassay.support.epsilon import Epsilon
from fedassay.support.text import plain

Kind = Literal["text", "code", "parameter", "metric", "bytes", "seconds", "count", "verdict", "flag"]
"""Format of a column. `metric` and `bytes` hold `Metric`s: value, interval, n, reason; `flag` is a word that its
row's role may set in red."""


_AT_A_GLANCE = 15
"""Groups of rows that a page has room for; a table with more is folded."""


_MOST_ROWS = 160
"""Rows of a table that a page holds, so that a browser lays it out without a wait. The CSV has every row."""


@dataclass(frozen=True)
class Name:
    """A name with what it stands for in smaller type beneath; the CSV holds the name alone."""

    text: str
    under: str = ""


@dataclass(frozen=True)
class Ruling:
    """A verdict with what must be said beside it as a footnote; the CSV holds the verdict alone."""

    verdict: Verdict
    remark: str = ""


Value = Metric | Epsilon | Name | Ruling | str | float | int | None
"""Value of a table's cell; an empty text in a column of metrics means that none applies."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: Header in the CSV.
        title: Header on the page.
        kind: Format of its values.
        hint: Explanation shown with the header.
        hidden: Whether only the CSV has it, since the page has no need of it.
        page_only: Whether only the page has it.
    """

    key: str
    title: str
    kind: Kind = "text"
    hint: str = ""
    hidden: bool = False
    page_only: bool = False

    @property
    def numeric(self) -> bool:
        """Whether values are set flush right and sorted as numbers."""
        return self.kind in {"parameter", "metric", "bytes", "seconds", "count"}

    @property
    def csv_keys(self) -> list[str]:
        """Headers in the CSV: none, one, or the five of a metric."""
        parts = ("", "_low", "_high", "_n", "_reason") if self.kind in {"metric", "bytes"} else ("",)
        return [] if self.page_only else [self.key + part for part in parts]

    def in_csv(self, value: Value) -> list[object]:
        """A value below each of `csv_keys`."""
        if self.kind not in {"metric", "bytes"} or self.page_only:
            return [] if self.page_only else [_plain(value)]
        metric = as_metric(value)
        return [metric.value, metric.low, metric.high, metric.n, metric.reason]


@dataclass(frozen=True)
class Row:
    """One row; `role` says what kind of row it is (`measured`, `baseline`, `exact`, ...)."""

    values: tuple[Value, ...]
    role: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: File name of its CSV, without the extension.
        title: Caption.
        columns: Left to right.
        groups: Rows that stay together when the table is sorted.
        note: A sentence below the table.
        roles: Whether the CSV has a column with each row's role.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    groups: tuple[tuple[Row, ...], ...]
    note: str = ""
    roles: bool = False

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, top to bottom."""
        return tuple(row for group in self.groups for row in group)

    def csv(self) -> str:
        """The table as CSV; a metric fills five columns: value, low, high, n, reason."""
        header = [key for column in self.columns for key in column.csv_keys]
        lines = [
            [part for column, value in zip(self.columns, row.values, strict=True) for part in column.in_csv(value)]
            for row in self.rows
        ]
        if self.roles:
            header = ["row", *header]
            lines = [[row.role, *line] for row, line in zip(self.rows, lines, strict=True)]
        return csv_text(header, lines)


@dataclass(frozen=True)
class Shown:
    """A value as the page prints it.

    Attributes:
        text: The value.
        detail: Its interval and n, in smaller type.
        reason: Reason why it is a dash, or a remark; printed as a footnote.
        sort: Key by which a browser sorts the column; empty sorts last.
        verdict: Set for verdicts, which get their icon.
    """

    text: str
    detail: str = ""
    reason: str = ""
    sort: str = ""
    verdict: Verdict | None = None


def show(column: Column, value: Value, count: bool = True) -> Shown:
    """A value of a column as the page prints it; `count` says whether a metric's n goes with it."""
    if column.kind == "bytes" and value != "":
        return _show_bytes(as_metric(value), count)
    if column.kind == "metric" and value != "":
        return _show_metric(as_metric(value), count)
    if isinstance(value, Ruling):
        look = LOOKS[value.verdict]
        return Shown(look.word, reason=value.remark, sort=str(-look.rank), verdict=value.verdict)
    if value is None:
        return Shown("")
    if isinstance(value, Name):
        return Shown(value.text, value.under, sort=value.text)
    if isinstance(value, Epsilon):
        return Shown(short(value.bare), value.kind.words if value.finite else "", sort=repr(value.bare))
    if isinstance(value, str | Metric):
        return Shown(str(value), sort=str(value))
    words = {"parameter": short, "seconds": duration, "count": "{:,.0f}".format}.get(column.kind, str)(value)
    return Shown(words, sort=repr(float(value)))


def _show_metric(metric: Metric, count: bool) -> Shown:
    unit = f" {metric.unit}" if metric.value is not None and metric.unit else ""
    return Shown(_estimate(metric) + unit, interval(metric, count), metric.reason, _sort_key(metric))


def _show_bytes(metric: Metric, count: bool) -> Shown:
    if metric.low is None or metric.high is None:
        return Shown(size(metric.value), interval(metric, count), metric.reason, _sort_key(metric))
    ends = f"[{size(metric.low)}, {size(metric.high)}] n = {metric.n}"
    return Shown(size(metric.value), ends, metric.reason, _sort_key(metric))


def _sort_key(metric: Metric) -> str:
    return "" if metric.value is None else repr(metric.value)


def _plain(value: Value) -> object:
    """A value as the CSV has it, metrics apart."""
    if isinstance(value, Name):
        return value.text
    if isinstance(value, Epsilon):
        return value.bare
    return value.verdict if isinstance(value, Ruling) else value


def _estimate(metric: Metric) -> str:
    """Three significant figures; an exact whole number (a count, a plain epsilon) stays whole."""
    value = metric.value
    if (
        value is not None
        and metric.low is None
        and metric.high is None
        and value.is_integer()
        and abs(value) < 1e6
    ):
        return short(value) if value < 1000 else f"{value:,.0f}"
    return significant(value)


def as_metric(value: Value) -> Metric:
    """A metric, also from a bare number or an empty text.

    Raises:
        TypeError: A text stands where a metric belongs.
    """
    if isinstance(value, Metric):
        if value.value is not None and math.isnan(value.value):
            return Metric(value=None, n=value.n, reason=value.reason or "the record holds no number here")
        return value
    if value is None:
        return Metric(value=None, reason="not measured")
    if value == "":
        return Metric(value=None)
    if isinstance(value, Epsilon):
        return epsilon_metric(value)
    if isinstance(value, str | Name | Ruling):
        raise TypeError(f"{value!r} is no metric")
    return Metric(value=float(value))


@dataclass(frozen=True)
class Printed:
    """A table ready for a template: every value shown, reasons gathered as footnotes.

    Attributes:
        table: The table.
        columns: The columns that the page shows: neither hidden nor empty throughout.
        groups: Rows with their shown values, each with the letter of its footnote.
        footnotes: Reasons by letter.
        left: Number of rows in the CSV alone; those of the heaviest verdicts are on the page.
    """

    table: Table
    columns: tuple[Column, ...]
    groups: tuple[tuple[tuple[str, tuple[tuple[Column, Shown, str], ...]], ...], ...]
    footnotes: tuple[tuple[str, str], ...]
    left: int = 0

    @property
    def long(self) -> bool:
        """Whether the page shows it folded."""
        return len(self.groups) > _AT_A_GLANCE


def printed(table: Table) -> Printed:
    """Gather a table's reasons as lettered footnotes, equal ones once."""
    letters: dict[str, str] = {}
    groups = []
    held = _held(table)
    for group in held:
        rows = []
        for row in group:
            cells = []
            # A row with one common n of its figures shows it once, in the column of that name.
            own = any(c.key == "n" and isinstance(v, int) for c, v in zip(table.columns, row.values, strict=True))
            for column, value in zip(table.columns, row.values, strict=True):
                shown = show(column, value, count=not own)
                letter = letters.setdefault(shown.reason, _letter(len(letters))) if shown.reason else ""
                cells.append((column, shown, letter))
            rows.append((row.role, tuple(cells)))
        groups.append(tuple(rows))
    filled = {column for group in groups for _, cells in group for column, shown, _ in cells if shown.text}
    columns = tuple(column for column in table.columns if column in filled and not column.hidden)
    footnotes = tuple((letter, reason) for reason, letter in letters.items())
    return Printed(table, columns, tuple(groups), footnotes, len(table.rows) - sum(map(len, held)))


def _held(table: Table) -> tuple[tuple[Row, ...], ...]:
    """The groups of rows that a page holds, in their order: all, or those of the heaviest verdicts."""
    if len(table.rows) <= _MOST_ROWS:
        return table.groups
    chosen: set[int] = set()
    room = _MOST_ROWS
    for number in sorted(range(len(table.groups)), key=lambda number: -_weight(table.groups[number])):
        room -= len(table.groups[number])
        if room < 0 and chosen:
            break
        chosen.add(number)
    return tuple(group for number, group in enumerate(table.groups) if number in chosen)


def _weight(group: tuple[Row, ...]) -> int:
    """The rank of the heaviest verdict in some rows."""
    rulings = (value for row in group for value in row.values if isinstance(value, Ruling))
    return max((LOOKS[ruling.verdict].rank for ruling in rulings), default=0)


def _letter(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    before, last = divmod(number, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + last)


def csv_text(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as CSV; missing is empty, infinity is `inf`, line ends are LF.

    Text that a spreadsheet would run as a formula gets an apostrophe before it; hidden characters become escapes.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_guarded(key) for key in header])
    for row in rows:
        writer.writerow([_guarded(value) for value in row])
    return stream.getvalue()


# Spreadsheets skip blanks, take a full-width sign for the plain one, and split at semicolons where the comma is a
# decimal sign. A quotation mark there may be the beginning of a field.
_FORMULA = re.compile(
    r"""(^|;)(?=[\s"\u200c\u200d\ufe00-\ufe0f]*[=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b])"""
)


def _guarded(value: object) -> object:
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"\1'", plain(value))
