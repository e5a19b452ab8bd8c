"""Whether a run is what was written: its files, its pages, and whoever signed it.

Three questions. Do record, transcripts and pictures have the digests of the run's statement? Do tables and pages
follow from the record, that is, are they what this fedassay makes of it? Is the statement signed, where a key says
by whom? What was not written by a run is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay import __version__
from fedassay.records.digests import altered
from fedassay.records.record import FILE, RunRecord, load_record
from fedassay.records.redacted import redact
from fedassay.records.signature import signed_by
from fedassay.records.statement import ENVELOPE, STATEMENT, Statement, envelope_of, read_statement
from fedassay.reports import DEFAULT_NAMES, default_name, render
from fedassay.reports.document.content import contents
from fedassay.reports.gate.policy import Policy
from fedassay.support.errors import DataError, PlanError
from fedassay.support.reading import read_regular

_FOLDERS = ("csv", "evidence")
"""Formats of several files: tables are compared one by one, and evidence has digests of its own."""


@dataclass(frozen=True)
class Verified:
    """What was found.

    Attributes:
        files: Number of files whose digests were compared.
        pages: Names of the tables and pages that follow from the record.
        signature: In words.
        problems: What does not hold, one line each; empty where everything does.
    """

    files: int
    pages: tuple[str, ...]
    signature: str
    problems: tuple[str, ...]

    def text(self) -> str:
        """A few lines for a terminal."""
        lines = [
            f"files: {self.files} of the statement compared",
            f"pages: {len(self.pages)} follow from the record",
            f"signature: {self.signature}",
            *(f"does not hold: {problem}" for problem in self.problems),
        ]
        return "\n".join([*lines, "does not hold" if self.problems else "holds"])

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "holds": not self.problems,
            "files": self.files,
            "pages": list(self.pages),
            "signature": self.signature,
            "problems": list(self.problems),
        }


def verify(run: Path, key: Path | None = None, policy: Policy | None = None) -> Verified:
    """Hold a run folder against its statement, its record and, with a key, its signature.

    Args:
        run: The run folder, or its record.json.
        key: The public key (PEM) of whoever must have signed; None: nobody need have.
        policy: What pages in the run were made with, or SARIF and JUnit by `check`; None: none.

    Raises:
        DataError: There is no record, or record, statement or envelope cannot be read.
        PlanError: The key cannot be read.
    """
    if key is not None and not os.path.lexists(key):
        raise PlanError(f"--key {key}: no such file; allowed: a PEM file with a public key")
    folder = run.parent if run.is_file() else run
    record = load_record(folder)
    statement = read_statement(folder)
    problems = []
    if statement is None:
        problems.append(f"{STATEMENT} is not there: an older fedassay wrote the run, or it did not end")
    words, signed, unsigned = _signature(folder, key)
    problems += unsigned
    if signed is not None and signed != statement:
        problems.append(f"{STATEMENT} is not what was signed")
    vouched = signed or statement
    expected = {} if vouched is None else vouched.expected()
    if vouched is not None and FILE not in expected:
        problems.append(f"{STATEMENT} does not list {FILE}")
    problems += altered(folder, expected)
    problems += [] if vouched is None else _unlisted(record, expected)
    good = []
    for name, holds in _pages(folder, record, policy):
        if holds:
            good.append(name)
        else:
            problems.append(_unlike(name, record))
    return Verified(len(expected), tuple(good), words, tuple(problems))


def _signature(folder: Path, key: Path | None) -> tuple[str, Statement | None, list[str]]:
    """In words; the statement that was signed; what is wrong with it."""
    envelope = envelope_of(folder)
    if envelope is None:
        words = "none"
        return words, None, [] if key is None else [f"{ENVELOPE} is not there: nobody signed the run"]
    if key is None:
        return "not checked: give the signer's public key with --key", None, []
    signed = signed_by(folder, envelope, key)
    if signed is None:
        return "not by this key", None, [f"{ENVELOPE} is not signed by {key}"]
    return f"by {key}", signed, []


def _unlisted(record: RunRecord, expected: dict[str, str]) -> Iterator[str]:
    """Pictures that the report shows and nobody vouches for."""
    for cell in record.cells:
        for finding in cell.findings:
            for picture in finding.pictures:
                if picture.file not in expected:
                    yield f"{picture.file} is shown, but the statement does not list it"


def _pages(folder: Path, record: RunRecord, policy: Policy | None) -> Iterator[tuple[str, bool]]:
    """Each table and page that stands under its own name, and whether it follows from the record."""
    for shown, redacted in ((record, False), (redact(record), True)):
        tables = default_name("csv", redacted)
        if (folder / tables).is_dir():
            for name, text in contents(shown).csv_files().items():
                yield f"{tables}/{name}", _holds(folder / tables / name, [text])
        for format in DEFAULT_NAMES:
            name = default_name(format, redacted)
            if format not in _FOLDERS and os.path.lexists(folder / name):
                yield name, _holds(folder / name, _possible(folder, shown, format, policy))


def _possible(folder: Path, record: RunRecord, format: str, policy: Policy | None) -> list[str]:
    """What a page may hold: what it is without a policy, and with the one that is given."""
    return [render(folder, record, format, held) for held in dict.fromkeys((None, policy))]  # type: ignore[arg-type]


def _holds(path: Path, possible: list[str]) -> bool:
    """Whether a page is there and is one of these texts."""
    texts = [text.encode("utf-8") for text in possible]
    try:
        return read_regular(path, max(map(len, texts)), follow=False) in texts
    except DataError:
        return False


def _unlike(name: str, record: RunRecord) -> str:
    maker = record.environment.get("fedassay", "an unknown version")
    by = "" if maker == __version__ else f"; it may be of fedassay {maker}, and this is {__version__}"
    more = "" if name.endswith(".csv") else "; if it was made with a policy, give that with --policy"
    return f"{name} does not follow from the record{by}{more}"
