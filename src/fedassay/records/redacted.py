"""A record without what shows anybody: what `--redact` leaves of it."""

from __future__ import annotations

from typing import Any

from fedassay.records.basis import KEYED, unguessable, without_plain
from fedassay.records.record import CellRecord, Finding, RunRecord

_NAMES = "class_names"
_HASH = "fingerprint"
_DIGEST = "sha256"


def redact(record: RunRecord) -> RunRecord:
    """The record without pictures and class names, which says that it lacks them; its numbers stay.

    What stays is computed from many records, or is a score: no image, no feature, no label of a record. Digests of
    private data stay where they are keyed (`fedassay.records.basis`): anybody could hold a guess against others.
    """
    return record.model_copy(
        update={
            "cells": tuple(_cell(cell) for cell in record.cells),
            "data": _without_names(record.data),
            "plan": redact_plan(record.plan),
            "redacted": True,
        }
    )


def _cell(cell: CellRecord) -> CellRecord:
    return cell.model_copy(
        update={
            "findings": tuple(_finding(finding) for finding in cell.findings),
            "basis": None if cell.basis is None else without_plain(cell.basis),
            # No transcript is kept, and its digest is one of private data.
            "released": None if cell.released is None else cell.released.model_copy(update={"transcript": ""}),
        }
    )


def _finding(finding: Finding) -> Finding:
    return finding.model_copy(update={"pictures": ()})


def _without_names(data: Any) -> Any:
    """Classes of a folder of images may be people, and their names are labels."""
    if not isinstance(data, dict):
        return data
    return {key: _without_name(key, value) for key, value in data.items()}


def _without_name(key: str, value: Any) -> Any:
    if key == _NAMES and isinstance(value, (list, tuple)):
        return len(value)
    if key == _HASH and isinstance(value, str):
        return unguessable(value)
    return _without_names(value)


def redact_plan(plan: Any) -> Any:
    """The plan without digests of captured messages that are not keyed."""
    about = plan.get("transcript") if isinstance(plan, dict) else None
    if not isinstance(about, dict):
        return plan
    again = about.get("again")
    kept = {key: value for key, value in about.items() if key != "again"}
    kept = _without_digest(kept)
    if isinstance(again, (list, tuple)):
        kept["again"] = [_without_digest(each) if isinstance(each, dict) else each for each in again]
    return {**plan, "transcript": kept}


def _without_digest(about: dict[str, Any]) -> dict[str, Any]:
    keyed = str(about.get(_DIGEST, "")).startswith(KEYED)
    return {key: value for key, value in about.items() if keyed or key != _DIGEST}
