"""The decision of a run as a piece of HTML, for notebooks: no style sheet, no script, nothing private."""

from __future__ import annotations

from pathlib import Path

from fedassay.records.record import RunRecord
from fedassay.reports.answer.answer import Answer
from fedassay.reports.decision.checklist import checklist
from fedassay.reports.document.html import render
from fedassay.reports.document.plan_notes import name_of


def fragment(record: RunRecord, answer: Answer, folder: Path) -> str:
    """The answer, what every option costs and leaves open, what failed, and where the report is.

    Args:
        record: The run.
        answer: The answer to it.
        folder: Its folder.
    """
    return render(
        "fragment.html.j2",
        name=name_of(record),
        answer=answer,
        policy=checklist(answer.decision),
        errors=record.errors,
        report=str(folder / "report.html"),
    )
