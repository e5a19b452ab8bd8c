"""Place of a finding in record.json and in the plan, for tools that show results beside lines of a file."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedassay.records.record import CellRecord, Finding, RunRecord
from fedassay.support.text import plain_json


@dataclass(frozen=True)
class Place:
    """A part of record.json.

    Attributes:
        path: Its path in the document, such as `cells[3].findings[0]`.
        line: The line on which it begins, counted from 1.
        plan: The plan file; empty where the record does not name it.
        plan_line: The line of the plan's method entry that it is about, or the first.
    """

    path: str
    line: int
    plan: str = ""
    plan_line: int = 1


def cell_places(record: RunRecord) -> tuple[tuple[Place, tuple[Place, ...]], ...]:
    """The place of every cell and of every finding in it, in the record's order.

    The document is written with an indent of one and every value on a line of its own, so a part's
    line follows from the number of lines before it.
    """
    lines = record.to_json().splitlines()
    if not record.cells:
        return ()
    # The opening brace of the first cell comes right after the line that opens the list.
    line = lines.index(' "cells": [') + 2
    out = []
    for number, cell in enumerate(record.cells):
        text = _lines(cell)
        own = Place(f"cells[{number}]", line, *_in_plan(record, cell.label))
        out.append((own, _finding_places(cell, text, own)))
        line += len(text)
    return tuple(out)


def errors_place(record: RunRecord) -> Place:
    """Place of the list of errors: also that of everything about the run as a whole."""
    lines = record.to_json().splitlines()
    line = next(at for at, line in enumerate(lines, 1) if line.startswith(' "errors": ['))
    return Place("errors", line, *_in_plan(record, ""))


def _in_plan(record: RunRecord, label: str) -> tuple[str, int]:
    """The plan file and the line of a method entry in it; an empty name where the record does not know it."""
    source = record.environment.get("plan")
    if not isinstance(source, dict) or not isinstance(source.get("file"), str):
        return "", 1
    lines = source.get("lines")
    line = lines.get(label, 1) if isinstance(lines, dict) else 1
    return source["file"], line if isinstance(line, int) and line > 0 else 1


def _finding_places(cell: CellRecord, text: list[str], own: Place) -> tuple[Place, ...]:
    if not cell.findings:
        return ()
    line = own.line + text.index(' "findings": [') + 1
    out = []
    for number, finding in enumerate(cell.findings):
        out.append(replace(own, path=f"{own.path}.findings[{number}]", line=line))
        line += len(_lines(finding))
    return tuple(out)


def _lines(part: CellRecord | Finding) -> list[str]:
    """A part as it stands in the document."""
    return plain_json(part.model_dump_json(by_alias=True, indent=1)).splitlines()
