"""Attacks that apply to each release, and whether they were run and conclusive."""

from __future__ import annotations

from fedassay.plan.rates import START, in_words
from fedassay.records.record import Coverage, RunRecord
from fedassay.reports.document.finding_tables import cell_columns, cell_values
from fedassay.reports.document.tables import Column, Row, Table
from fedassay.reports.words.groups import in_order


def coverage_table(record: RunRecord) -> Table | None:
    """One row for every attack that applies to what a cell sends; None where no cell says."""
    columns = (
        *cell_columns(record),
        Column("attack", "Attack that applies"),
        Column("status", "Status", "flag", "Conclusive: it found a leak, or was silent with controls that held."),
        Column("reason", "Why not"),
        Column("would_decide", "What would decide"),
        Column("takes", "Estimated time", hint="Of a run of this release alone with that change, on one core."),
    )
    rows = [
        Row(
            (
                *cell_values(cell),
                row.attack,
                row.status.replace("_", " "),
                row.reason,
                row.would_decide,
                _takes(row),
            ),
            "passed" if row.status == "conclusive" else "failed",
        )
        for cell in in_order(record)
        for row in cell.coverage
    ]
    if not rows:
        return None
    return Table("coverage", "What applies, and what was tried", columns, tuple((row,) for row in rows))


def _takes(row: Coverage) -> str:
    return "" if row.seconds is None else f"about {in_words(START + row.seconds)}"
