"""Evidence that vouches for a run: its statement, its signature, and the absence of contradictions.

Nothing is trusted that can be computed again. A contradiction is refused; a missing part leaves the run
unverified. Without a signature anybody who can edit the folder could have made all of it agree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedassay.records.digests import altered
from fedassay.records.pictures import sheet_file
from fedassay.records.record import FILE, RunRecord
from fedassay.records.signature import fingerprint, signed_by
from fedassay.records.statement import (
    ENVELOPE,
    STATEMENT,
    About,
    Statement,
    bound,
    envelope_of,
    read_statement,
)
from fedassay.reports.decision.standard import decision_on
from fedassay.reports.gate.recomputed import recomputed
from fedassay.support.environment import code_digest
from fedassay.support.errors import DataError, PlanError
from fedassay.support.version import __version__

ANYBODY = "whoever can edit this folder could have written it"


@dataclass(frozen=True)
class Vouched:
    """Evidence that vouches for a run, and its problems.

    Attributes:
        problems: Contradictions, one line each: such a run is refused.
        missing: Parts of a finished run that this one lacks: such a run is not verified.
        open: Values that could not be computed again.
        files: SHA-256 of the files in the statement, by name.
        signature: In words.
        signer: SHA-256 of the key that the signature was checked with, or None.
        words: The evidence for the run, in one sentence.
    """

    problems: tuple[str, ...]
    missing: tuple[str, ...]
    open: tuple[str, ...]
    files: dict[str, str]
    signature: str
    signer: str | None
    words: str


def vouched(run: Path, record: RunRecord, key: Path | None = None) -> Vouched:
    """Collect the evidence that vouches for a run.

    Args:
        run: The run folder, or a record.json, which is vouched for where it lies in a run folder.
        record: Its record.
        key: The public key (PEM) of the required signer; None: no signature is required.

    Raises:
        DataError: Statement or envelope cannot be read.
        PlanError: The key cannot be read.
    """
    if key is not None and not os.path.lexists(key):
        raise PlanError(f"--key {key}: no such file; allowed: a public key, PEM or of OpenSSH")
    folder = run if run.is_dir() else run.parent
    bare = not run.is_dir() and run.name != FILE
    statement = None if bare else read_statement(folder)
    words, signed, problems = ("none", None, []) if bare and key is None else signature_of(folder, key)
    missing: list[str] = []
    if statement is None:
        missing.append(f"{STATEMENT} is not there: an older fedassay wrote the run, or it did not end")
    if signed is not None and signed != statement:
        problems.append(f"{STATEMENT} is not what was signed")
    by = signed or statement
    expected = {} if by is None else by.expected()
    again = recomputed(record, None if bare else folder)
    open_ = list(again.open)
    if by is not None:
        problems += altered(folder, expected)
        missing += _unlisted(record, expected)
        wrong, lacking = _unbound(by, record)
        problems += wrong
        (missing if by.predicate.get("fedassay") == __version__ else open_).extend(lacking)
    problems += again.problems
    missing += again.missing
    signer = None if key is None or signed is None else fingerprint(key)
    return Vouched(
        tuple(dict.fromkeys(problems)),
        tuple(dict.fromkeys(missing)),
        tuple(dict.fromkeys(open_)),
        expected,
        words,
        signer,
        _words(key, signer, envelope=not bare and os.path.lexists(folder / ENVELOPE)),
    )


def _words(key: Path | None, signer: str | None, envelope: bool) -> str:
    if signer is not None:
        return f"It is signed by {key}."
    if envelope:
        return f"Its signature was not checked, which takes --key: {ANYBODY}."
    return f"It is unsigned: {ANYBODY}."


def refuse_contradictions(run: Path, found: Vouched) -> None:
    """Refuse a run that is not what was written.

    Raises:
        DataError: It is not.
    """
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        raise DataError(f"{run}: {found.problems[0]}{more}; `fedassay verify {run}` says what it finds")


def signature_of(folder: Path, key: Path | None, about: About = "run") -> tuple[str, Statement | None, list[str]]:
    """In words; the statement that was signed; what is wrong with it."""
    envelope = envelope_of(folder)
    if envelope is None:
        words = "none"
        return words, None, [] if key is None else [f"{ENVELOPE} is not there: the {about} is not signed"]
    if key is None:
        return "not checked: give the signer's public key with --key", None, []
    signed = signed_by(folder, envelope, key, about)
    if signed is None:
        return "not by this key", None, [f"{ENVELOPE} is not signed by {key}"]
    return f"by {key}", signed, []


def _unlisted(record: RunRecord, expected: dict[str, str]) -> Iterator[str]:
    """Files of this record that its statement should list and does not."""
    if FILE not in expected:
        yield f"{STATEMENT} does not list {FILE}"
    shown = [] if (sheet := sheet_file(record.data)) is None else [sheet]
    for cell in record.cells:
        if cell.released is not None and cell.released.transcript:
            name = f"transcripts/{cell.key}/transcript.json"
            if name not in expected:
                yield f"{STATEMENT} does not list {name}"
        shown += [picture.file for finding in cell.findings for picture in finding.pictures]
    for name in shown:
        if name not in expected:
            yield f"{name} is shown, but the statement does not list it"


def same_code(record: RunRecord) -> bool:
    """Whether the very code that is installed here made a run, and nothing but it."""
    return bool(record.cells) and all(cell.basis and cell.basis.code == code_digest() for cell in record.cells)


def _unbound(statement: Statement, record: RunRecord) -> tuple[list[str], list[str]]:
    """Contradictions between a statement and its record, and facts that the statement lacks."""
    said, wrong, lacking = statement.predicate, [], []
    expected: dict[str, Any] = bound(record)
    if "fedassay" in record.environment:
        expected["fedassay"] = record.environment["fedassay"]
    # Other code may judge otherwise, and may ship other policies.
    if same_code(record) and "decision" in said:
        expected["decision"] = decision_on(record)
    for name, value in expected.items():
        if name not in said:
            lacking.append(f"{STATEMENT} does not say the run's {name}")
        elif said[name] != value:
            wrong.append(f"{STATEMENT} says another {name} than the record")
    if "decision" not in said:
        lacking.append(f"{STATEMENT} does not say what was decided")
    return wrong, lacking
