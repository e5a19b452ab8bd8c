"""Whether a run is what was written: its files, its pages, and its signer.

Four questions. Do record, transcripts and pictures have the digests of the run's statement? Does the record agree
with itself and with its transcripts, whatever can be computed again being so? Do tables and pages follow from the
record, that is, are they what this fedassay makes of it? Is the statement signed, where a key says by whom? What
is missing of what a run writes, and what lies there beside it, is said.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedassay.records.record import FILE, RunRecord, load_record
from fedassay.records.redacted import redact
from fedassay.records.statement import ENVELOPE, STATEMENT, bound
from fedassay.reports import DEFAULT_NAMES, default_name, render
from fedassay.reports.document.content import contents
from fedassay.reports.gate.beside import EVIDENCE, left_out
from fedassay.reports.gate.policy import Policy
from fedassay.reports.gate.vouching import vouched
from fedassay.support.errors import DataError
from fedassay.support.reading import read_regular
from fedassay.support.version import __version__

_FOLDERS = ("csv", "evidence")
"""Formats of several files: tables are compared one by one, and evidence has digests of its own."""


@dataclass(frozen=True)
class Verified:
    """Result of the verification of a run folder.

    Attributes:
        files: Number of files with compared digests.
        pages: Names of the tables and pages that follow from the record.
        signature: In words.
        problems: Failed checks, one line each; empty where everything holds.
        open: Values that could not be computed again, one line each.
        about: Digests of plan and data, and the date: a policy can require them.
    """

    files: int
    pages: tuple[str, ...]
    signature: str
    problems: tuple[str, ...]
    open: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """A few lines for a terminal."""
        lines = [
            f"files: {self.files} of the statement compared",
            f"pages: {len(self.pages)} follow from the record",
            f"signature: {self.signature}",
            *(f"{name}: {value}" for name, value in self.about.items() if value is not None),
            *(f"not verified: {words}" for words in self.open),
            *(f"does not hold: {problem}" for problem in self.problems),
        ]
        return "\n".join([*lines, "does not hold" if self.problems else "holds"])

    def as_dict(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "holds": not self.problems,
            "files": self.files,
            "pages": list(self.pages),
            "signature": self.signature,
            "problems": list(self.problems),
            "open": list(self.open),
            **self.about,
        }


def verify(run: Path, key: Path | None = None, policy: Policy | None = None) -> Verified:
    """Hold a run folder against its statement, its record and, with a key, its signature.

    Args:
        run: The run folder, or its record.json.
        key: The public key (PEM) of the required signer; None: no signature is required.
        policy: The policy of pages in the run, or of SARIF and JUnit by `check`; None: none.

    Raises:
        DataError: There is no record, or record, statement or envelope cannot be read.
        PlanError: The key cannot be read.
    """
    folder = run.parent if run.is_file() else run
    record = load_record(folder)
    found = vouched(folder, record, key)
    problems = [*found.missing, *found.problems]
    good = []
    for name, holds in _pages(folder, record, policy):
        if holds:
            good.append(name)
        else:
            problems.append(_unlike(name, record))
    about = {name: value for name, value in bound(record).items() if name in ("plan", "data", "date")}
    open_ = (*found.open, *_not_verified(folder, record, found.files))
    return Verified(len(found.files), tuple(good), found.signature, tuple(problems), open_, about)


def _not_verified(folder: Path, record: RunRecord, files: Collection[str]) -> Iterator[str]:
    """Files that a run writes and this folder lacks, and files that were not checked."""
    for format in ("html", "csv"):
        if not any(os.path.lexists(folder / default_name(format, redacted)) for redacted in (False, True)):
            yield f"{default_name(format)}: not there"
    evidence = sorted(path.name for path in folder.iterdir() if path.is_dir() and (path / EVIDENCE).is_file())
    yield from left_out(folder, names_of(record, files), evidence)


def names_of(record: RunRecord, files: Collection[str]) -> set[str]:
    """The files that a run, and `fedassay report` beside it, may hold under their own names.

    Args:
        record: Of the run.
        files: Those of its statement.
    """
    names = {FILE, STATEMENT, ENVELOPE, *files}
    for redacted in (False, True):
        names |= {default_name(format, redacted) for format in DEFAULT_NAMES}
        names |= {f"{default_name('csv', redacted)}/{name}" for name in contents(record).csv_files()}
    return names


def tables_unlike(folder: Path, record: RunRecord) -> list[str]:
    """Tables of a run that do not follow from its record."""
    tables = default_name("csv", False)
    if not (folder / tables).is_dir():
        return []
    files = contents(record).csv_files()
    wrong = (name for name, text in files.items() if not holds(folder / tables / name, [text]))
    return [_unlike(f"{tables}/{name}", record) for name in wrong]


def _pages(folder: Path, record: RunRecord, policy: Policy | None) -> Iterator[tuple[str, bool]]:
    """Each table and page that stands under its own name, and whether it follows from the record."""
    for shown, redacted in ((record, False), (redact(record), True)):
        tables = default_name("csv", redacted)
        if (folder / tables).is_dir():
            for name, text in contents(shown).csv_files().items():
                yield f"{tables}/{name}", holds(folder / tables / name, [text])
        for format in DEFAULT_NAMES:
            name = default_name(format, redacted)
            if format not in _FOLDERS and os.path.lexists(folder / name):
                yield name, holds(folder / name, _possible(folder, shown, format, policy))


def _possible(folder: Path, record: RunRecord, format: str, policy: Policy | None) -> list[str]:
    """Allowed contents of a page: without a policy, and with the given one."""
    return [render(folder, record, format, held) for held in dict.fromkeys((None, policy))]  # type: ignore[arg-type]


def holds(path: Path, possible: list[str]) -> bool:
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
