"""A record without what shows anybody: what `--redact` leaves of it."""

from __future__ import annotations

from typing import Any

from fedassay.records.record import CellRecord, Finding, RunRecord

_NAMES = "class_names"


def redact(record: RunRecord) -> RunRecord:
    """The record without pictures and class names, which says that it lacks them; its numbers stay.

    What stays is computed from many records, or is a score: no image, no feature, no label of a record.
    """
    return record.model_copy(
        update={
            "cells": tuple(_cell(cell) for cell in record.cells),
            "data": _without_names(record.data),
            "redacted": True,
        }
    )


def _cell(cell: CellRecord) -> CellRecord:
    return cell.model_copy(update={"findings": tuple(_finding(finding) for finding in cell.findings)})


def _finding(finding: Finding) -> Finding:
    return finding.model_copy(update={"pictures": ()})


def _without_names(data: Any) -> Any:
    """Classes of a folder of images may be people, and their names are labels."""
    if isinstance(data, dict):
        return {
            key: len(value) if key == _NAMES and isinstance(value, (list, tuple)) else _without_names(value)
            for key, value in data.items()
        }
    return data
