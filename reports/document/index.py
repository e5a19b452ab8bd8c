"""All runs of a folder on one page: what each answers, the worst that it found, and where its report is.

The page is static: it is written into the folder and links to what lies there. `fedassay.runs` gives the same rows
as a table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fedassay.records.record import FILE, RunRecord, load_record
from fedassay.reports.answer.answer import Answer, answer
from fedassay.reports.answer.rows import MARKS
from fedassay.reports.document.html import render
from fedassay.reports.document.output import write_page
from fedassay.reports.document.plan_notes import name_of
from fedassay.reports.document.private import notice
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.numbers import DASH
from fedassay.support.errors import DataError, FedassayError

PAGE = "index.html"
"""The page's name in the folder."""

_DEEPEST = 4
"""Folders below the given one that are looked through."""

_LINKS = (("report", "report.html"), ("summary", "report.md"), ("evidence", "evidence"), ("tables", "tables"))
"""Files that a run may hold beside its record, and their names on the page."""


@dataclass(frozen=True)
class IndexedRun:
    """One run of the folder.

    Attributes:
        folder: Below the folder of the page, with slashes.
        name: Of its plan.
        date: Start of the run, UTC; empty where the record does not say.
        answer: The answer to the whole run; None where the record cannot be read.
        worst: The worst finding in words; a dash where nothing was found.
        cells: Cells of the run.
        failed: Number of failures in it.
        links: Words and addresses, relative to the page.
        problem: Reason why the record cannot be read.
        record: The record; None where it cannot be read.
    """

    folder: str
    name: str
    date: str
    answer: Answer | None
    worst: str
    cells: int
    failed: int
    links: tuple[tuple[str, str], ...]
    problem: str = ""
    record: RunRecord | None = None

    @property
    def look(self) -> tuple[str, str, str]:
        """Character, colour and icon of the answer."""
        return ("–", "muted", "dash") if self.answer is None else MARKS[self.answer.answer]


def entries(folder: Path) -> list[IndexedRun]:
    """The runs below a folder, the latest first; of what cannot be read, why.

    Raises:
        DataError: There is no such folder, or no run in it.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; FOLDER is one that holds run folders, such as runs")
    found = [_entry(folder, run) for run in _runs(folder)]
    if not found:
        raise DataError(f"{folder}: no {FILE} in it or in its folders; `fedassay run` writes one into each run")
    return sorted(found, key=lambda entry: (entry.date, entry.folder), reverse=True)


def write_index(folder: Path, output: Path | None = None) -> Path:
    """Write the page.

    Args:
        folder: Holds run folders, or is one.
        output: Path to write to; None: `index.html` in the folder. Links are relative to that file.

    Returns:
        What was written.

    Raises:
        DataError: As `entries`.
        PlanError: The file cannot be written.
    """
    found, target = entries(folder), output or folder / PAGE
    write_page(page(found, folder, target.parent), target)
    return target


def page(found: list[IndexedRun], folder: Path, beside: Path) -> str:
    """The page of some runs, with links from the folder `beside`."""
    start = os.path.relpath(folder, beside)
    prefix = "" if start == "." else quote(start.replace(os.sep, "/")) + "/"
    counted = [sum(entry.answer is not None and entry.answer.answer == word for entry in found) for word in MARKS]
    return render(
        "index.html.j2",
        notice=notice([entry.record for entry in found if entry.record is not None], ()),
        name=folder.resolve().name,
        entries=found,
        prefix=prefix,
        counts=list(zip(MARKS, counted, strict=True)),
        unread=sum(entry.answer is None for entry in found),
    )


def _runs(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Folders with a record, not through links and not inside of runs."""
    if (folder / FILE).is_file():
        yield folder
        return
    if depth == _DEEPEST:
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from _runs(path, depth + 1)


def _entry(folder: Path, run: Path) -> IndexedRun:
    below = run.relative_to(folder).as_posix()
    links = tuple(
        (words, quote(f"{below}/{file}" if below != "." else file))
        for words, file in _LINKS
        if (run / file).exists()
    )
    try:
        record = load_record(run)
        found = answer(record)
    except FedassayError as error:
        return IndexedRun(
            below, run.name, "", None, DASH, 0, 0, links, problem=str(error).replace(str(run), below)
        )
    worst = DASH if found.leak is None else harm_clause(found.leak)
    started = str(record.environment.get("started", ""))[:16].replace("T", " ")
    return IndexedRun(
        below, name_of(record), started, found, worst, len(record.cells), len(record.errors), links, record=record
    )
