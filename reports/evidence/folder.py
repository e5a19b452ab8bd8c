"""The folder of evidence: two pages to sign, and the record, policy, answer, form and entries behind them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedassay.records.record import FILE, RunRecord, finite_json
from fedassay.records.statement import STATEMENT, bound, statement_text
from fedassay.reports.evidence.page import html, markdown, pages
from fedassay.reports.evidence.pdf import pdf_of
from fedassay.reports.evidence.registry import entries
from fedassay.reports.evidence.release import Release, release_of
from fedassay.reports.gate.beside import EVIDENCE
from fedassay.reports.gate.policy import Policy
from fedassay.support.atomic import make_folder, write_bytes
from fedassay.support.errors import PlanError
from fedassay.support.text import plain_tree

_LOG = logging.getLogger(__name__)

DIGESTS = "SHA256SUMS"
POLICY = "policy.json"
PAGES = EVIDENCE
PRINTED = "evidence.pdf"


def write_evidence(
    record: RunRecord,
    folder: Path,
    policy: Policy | None = None,
    method: str | None = None,
    epsilon: float | None = None,
    pdf: bool = False,
) -> list[Path]:
    """Write the evidence of one release into a folder.

    Args:
        record: The run.
        folder: Folder to write to; made if need be.
        policy: Policy that it is held to; None: the shipped one that fits.
        method: Label or registered name of the method; None: the only or the recommended one.
        epsilon: The epsilon that it was asked for.
        pdf: Whether to print the pages as PDF as well, where something is installed that prints.

    Returns:
        The files written.

    Raises:
        PlanError: There is no such release, or there are several and none is recommended.
    """
    release = release_of(record, policy, method, epsilon)
    files = {name: text.encode("utf-8") for name, text in evidence_files(release).items()}
    if pdf:
        try:
            files[PRINTED] = pdf_of(files[PAGES].decode("utf-8"))
        except PlanError as error:
            _LOG.warning("%s", error)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    files[STATEMENT] = statement_text("evidence", digests, **evidence_facts(release)).encode("utf-8")
    files[DIGESTS] = sums(digests).encode("utf-8")
    make_folder(folder)
    for name, content in files.items():
        write_bytes(folder / name, content)
    if PRINTED not in files:
        # One of an earlier release would stand beside pages that it does not show.
        (folder / PRINTED).unlink(missing_ok=True)
    return [folder / name for name in files]


def evidence_files(release: Release) -> dict[str, str]:
    """The files that follow from a release, by name: what is written, and what `verify` makes again."""
    found = pages(release)
    record = release.record.to_json()
    return {
        PAGES: html(found, _digest(record)),
        FILE: record,
        POLICY: _json(release.policy.model_dump(mode="json")),
        "answer.json": _json(release.answer.as_dict()),
        "crosswalk.md": markdown(found),
        "registry.json": _json(entries(release)),
    }


def sums(digests: Mapping[str, str]) -> str:
    """SHA-256 of files by name, as `sha256sum --check` reads them."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def evidence_facts(release: Release) -> dict[str, Any]:
    """Facts in the statement of a folder of evidence beside its files: the run, the release and the decision."""
    facts: dict[str, Any] = plain_tree(finite_json({**bound(release.record), "decision": release.decided()}))
    return facts


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _json(content: Any) -> str:
    return json.dumps(plain_tree(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
