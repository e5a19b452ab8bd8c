"""Whether a folder of evidence is what was written: its files, its decision, and whoever signed it.

Pages, answer and form are made again from the record and the policy beside them, and compared to the byte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedassay.records.digests import altered
from fedassay.records.record import FILE, RunRecord, load_record
from fedassay.records.statement import ENVELOPE, STATEMENT, Statement, read_statement
from fedassay.reports.evidence.folder import (
    DIGESTS,
    PAGES,
    POLICY,
    PRINTED,
    evidence_facts,
    evidence_files,
    sums,
)
from fedassay.reports.evidence.release import release_of
from fedassay.reports.gate.beside import left_out
from fedassay.reports.gate.policy import parse_policy
from fedassay.reports.gate.recomputed import recomputed
from fedassay.reports.gate.verify import Verified, holds
from fedassay.reports.gate.vouching import signature_of
from fedassay.support.errors import PlanError
from fedassay.support.reading import read_json
from fedassay.support.version import __version__


def is_evidence(folder: Path) -> bool:
    """Whether a folder holds evidence and no run: the pages to sign, which no run folder has."""
    return (folder / PAGES).is_file() and (folder / POLICY).is_file()


def verify_evidence(folder: Path, key: Path | None = None) -> Verified:
    """Hold a folder of evidence against its statement, its record and, with a key, its signature.

    Args:
        folder: The folder.
        key: The public key (PEM) of the required signer; None: no signature is required.

    Raises:
        DataError: Record, policy, statement or envelope cannot be read.
        PlanError: The key cannot be read.
    """
    record = load_record(folder)
    statement = read_statement(folder, "evidence")
    words, signed, problems = signature_of(folder, key, "evidence")
    if statement is None:
        problems.append(f"{STATEMENT} is not there")
    if signed is not None and signed != statement:
        problems.append(f"{STATEMENT} is not what was signed")
    by = signed or statement
    expected = {} if by is None else by.expected()
    problems += altered(folder, expected)
    again = recomputed(record, None)
    problems += again.problems
    good: list[str] = []
    if by is not None:
        problems += [f"{STATEMENT} does not list {name}" for name in (FILE, POLICY, PAGES) if name not in expected]
        made, wrong = _made_again(folder, record, by)
        good += made
        problems += wrong
        if not holds(folder / DIGESTS, [sums(expected)]):
            problems.append(f"{DIGESTS} does not say what {STATEMENT} says")
        if os.path.lexists(folder / PRINTED) and PRINTED not in expected:
            problems.append(f"{STATEMENT} does not list {PRINTED}")
    open_ = (*again.open, *_not_verified(folder, expected))
    return Verified(len(expected), tuple(good), words, tuple(dict.fromkeys(problems)), tuple(dict.fromkeys(open_)))


def _not_verified(folder: Path, expected: Mapping[str, str]) -> Iterator[str]:
    """Unverified files: the printed form, since every printer makes other bytes, and foreign files."""
    if os.path.lexists(folder / PRINTED):
        yield f"{PRINTED}: not compared with the record; read {PAGES}, which is"
    yield from left_out(folder, {*expected, STATEMENT, ENVELOPE, DIGESTS, PRINTED})


def _made_again(folder: Path, record: RunRecord, statement: Statement) -> tuple[list[str], list[str]]:
    """Names of files that follow from record and policy, and the problems of those that do not."""
    policy = parse_policy(json.loads(read_json(folder / POLICY, follow=False)), str(folder / POLICY))
    try:
        release = release_of(record, policy, *_asked(statement))
    except PlanError as error:
        return [], [f"{STATEMENT} is about a release that {FILE} does not hold: {error}"]
    good: list[str] = []
    wrong: list[str] = []
    for name, text in evidence_files(release).items():
        same = holds(folder / name, [text])
        (good if same else wrong).append(name if same else _unlike(name, statement))
    said = statement.predicate
    facts = evidence_facts(release)
    return good, wrong + [f"{STATEMENT} says another {name}" for name in facts if said.get(name) != facts[name]]


def _asked(statement: Statement) -> tuple[str | None, float | None]:
    """Label and epsilon of the release that a statement is about."""
    decision = statement.predicate.get("decision")
    release = decision.get("release") if isinstance(decision, dict) else None
    said: dict[str, Any] = release if isinstance(release, dict) else {}
    label, epsilon = said.get("label"), said.get("epsilon")
    number = float("inf") if epsilon == "inf" else epsilon
    return label if isinstance(label, str) else None, number if isinstance(number, (int, float)) else None


def _unlike(name: str, statement: Statement) -> str:
    maker = statement.predicate.get("fedassay")
    by = "" if maker == __version__ else f"; it may be of fedassay {maker}, and this is {__version__}"
    return f"{name} does not follow from the record and the policy beside it{by}"
