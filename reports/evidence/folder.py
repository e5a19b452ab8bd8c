"""The folder of evidence: two pages to sign, and the record, policy, answer, form and entries behind them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fedassay.records.record import FILE, RunRecord, finite_json
from fedassay.records.statement import STATEMENT, bound, statement_text
from fedassay.reports.evidence.page import html, markdown, pages
from fedassay.reports.evidence.registry import entries
from fedassay.reports.evidence.release import Release, release_of
from fedassay.reports.gate.policy import Policy
from fedassay.support.atomic import make_folder, write_text
from fedassay.support.text import plain_tree

DIGESTS = "SHA256SUMS"
POLICY = "policy.json"
PAGES = "evidence.html"


def write_evidence(
    record: RunRecord,
    folder: Path,
    policy: Policy | None = None,
    method: str | None = None,
    epsilon: float | None = None,
) -> list[Path]:
    """Write the evidence of one release into a folder.

    Args:
        record: The run.
        folder: Where to; made if need be.
        policy: What it is held to; None: the shipped one that fits.
        method: Label or registered name of the method; None: the only or the recommended one.
        epsilon: The epsilon that it was asked for.

    Returns:
        The files written.

    Raises:
        PlanError: There is no such release, or there are several and none is recommended.
    """
    release = release_of(record, policy, method, epsilon)
    files = evidence_files(release)
    digests = {name: _digest(text) for name, text in sorted(files.items())}
    files[STATEMENT] = statement_text("evidence", digests, **evidence_facts(release))
    files[DIGESTS] = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    make_folder(folder)
    for name, text in files.items():
        write_text(folder / name, text)
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


def evidence_facts(release: Release) -> dict[str, Any]:
    """What the statement of a folder of evidence says beside its files: the run, the release and the decision."""
    facts: dict[str, Any] = plain_tree(finite_json({**bound(release.record), "decision": release.decided()}))
    return facts


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _json(content: Any) -> str:
    return json.dumps(plain_tree(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
