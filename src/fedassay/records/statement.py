"""The statement of a run, or of its evidence: an in-toto statement of the SHA-256 of its files.

A run's statement is about its record, transcripts and pictures, and lies in its folder as `statement.json`
(in-toto Attestation Framework, Statement v1). It also states the plan and the data of the run, the time of its
end, and the decision. By itself it shows accidents and edits by hand. A forger would write it again, so it can be
signed: as the payload of a DSSE envelope, `statement.dsse.json`, which any signer of in-toto statements makes.
Tables and pages are not listed: they follow from the record, and are compared with it.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from fedassay.records import manifest
from fedassay.records.basis import data_digest, plan_digest
from fedassay.records.digests import digests
from fedassay.records.record import FILE, RunRecord
from fedassay.support import limits
from fedassay.support.atomic import write_text
from fedassay.support.errors import DataError
from fedassay.support.reading import check_json, read_json, read_regular
from fedassay.support.text import plain_json
from fedassay.support.types import Frozen
from fedassay.support.validation import explain
from fedassay.support.version import __version__

STATEMENT = "statement.json"
ENVELOPE = "statement.dsse.json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

About = Literal["run", "evidence"]
"""The subject of a statement: the files of a run, or of its evidence."""


class Subject(Frozen):
    """A file, and its digests by algorithm."""

    name: str
    digest: dict[str, str]


class Statement(Frozen):
    """An in-toto statement about files.

    Attributes:
        type_: Version of the statement.
        subject: The files, with their SHA-256.
        predicate_type: Whether they are a run's, or a folder of evidence.
        predicate: Version of fedassay, name of the run, and further facts about it.
    """

    type_: Literal["https://in-toto.io/Statement/v1"] = Field("https://in-toto.io/Statement/v1", alias="_type")
    subject: tuple[Subject, ...]
    predicate_type: Literal["urn:fedassay:run:1", "urn:fedassay:evidence:1"] = Field(alias="predicateType")
    predicate: dict[str, Any]

    def expected(self) -> dict[str, str]:
        """SHA-256 of each file, by name."""
        return {subject.name: subject.digest.get("sha256", "") for subject in self.subject}


def statement_text(about: About, found: Mapping[str, str], **predicate: Any) -> str:
    """Return the text of a statement.

    Args:
        about: The subject of the statement.
        found: SHA-256 of each file, by name.
        predicate: Facts to state besides the version of fedassay.
    """
    statement = Statement(
        subject=tuple(Subject(name=name, digest={"sha256": digest}) for name, digest in found.items()),
        predicateType="urn:fedassay:run:1" if about == "run" else "urn:fedassay:evidence:1",
        predicate={"fedassay": __version__, **predicate},
    )
    return plain_json(statement.model_dump_json(by_alias=True, indent=1)) + "\n"


def bound(record: RunRecord) -> dict[str, Any]:
    """Return a statement's facts about a run besides its files: plan, data and date, all from the record."""
    plan = record.plan if isinstance(record.plan, dict) else {}
    return {
        "name": plan.get("name"),
        "redacted": record.redacted,
        "plan": plan_digest(record.plan),
        "data": data_digest((cell.seed, cell.basis) for cell in record.cells),
        "date": record.environment.get("finished"),
    }


def write_statement(folder: Path, record: RunRecord, decision: Mapping[str, Any] | None = None) -> None:
    """Write the statement of a run after all of its files.

    Args:
        folder: The run folder.
        record: Its record.
        decision: Name and digest of the policy that the run was checked against, and the outcome; None: no policy.
    """
    names = (name for name in manifest.noted(folder) if name.startswith(("transcripts/", "artifacts/")))
    found = digests(folder, [FILE, *names])
    # An earlier signature is of another run.
    (folder / ENVELOPE).unlink(missing_ok=True)
    text = statement_text("run", found, **bound(record), decision=None if decision is None else dict(decision))
    write_text(folder / STATEMENT, text)


def read_statement(folder: Path, about: About = "run") -> Statement | None:
    """The statement of a run, or of a folder of evidence; None where there is none.

    Raises:
        DataError: It cannot be read.
    """
    path = folder / STATEMENT
    return _parsed(read_json(path, follow=False), path, about) if os.path.lexists(path) else None


def envelope_of(folder: Path) -> bytes | None:
    """The signed envelope of a run, or None where there is none.

    Raises:
        DataError: It cannot be read.
    """
    path = folder / ENVELOPE
    return read_regular(path, limits.JSON_BYTES, follow=False) if os.path.lexists(path) else None


def signed_statement(payload: bytes, folder: Path, about: About = "run") -> Statement:
    """Return the statement in an envelope.

    Args:
        payload: The base64 text in the envelope.
        folder: The run folder, for the error.
        about: The subject that the statement must have.

    Raises:
        DataError: It is no statement of fedassay.
    """
    try:
        content = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{folder / ENVELOPE}: its payload is not base64") from None
    check_json(content, folder / ENVELOPE)
    return _parsed(content, folder / ENVELOPE, about)


def _parsed(content: bytes, path: Path, about: About) -> Statement:
    try:
        statement = Statement.model_validate_json(content)
    except ValidationError as error:
        raise DataError(explain(error, Statement, str(path), whole="no in-toto statement")) from None
    if statement.predicate_type != f"urn:fedassay:{about}:1":
        allowed = f"allowed: urn:fedassay:{about}:1"
        raise DataError(f"{path}: predicateType: {statement.predicate_type} given; {allowed}")
    return statement
