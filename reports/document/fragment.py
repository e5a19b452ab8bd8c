"""The decision of a run as a piece of HTML, for notebooks: no style sheet, no script, nothing private."""

from __future__ import annotations

from pathlib import Path

from fedassay.records.record import RunRecord
from fedassay.reports.decision.decision import Decision
from fedassay.reports.decision.screen import MARKS, screen
from fedassay.reports.document.html import render
from fedassay.reports.document.plan_notes import name_of


def fragment(record: RunRecord, decision: Decision, folder: Path) -> str:
    """The decision, what every option costs and leaves open, what failed, and where the report is.

    Args:
        record: The run.
        decision: What a policy makes of it.
        folder: Its folder.
    """
    return render(
        "fragment.html.j2",
        name=name_of(record),
        decision=screen(record, decision),
        marks={state: mark for state, (mark, *_) in MARKS.items()},
        errors=record.errors,
        report=str(folder / "report.html"),
    )
