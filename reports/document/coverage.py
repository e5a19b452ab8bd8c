"""What applies to each release, and whether it was tried and said anything."""

from __future__ import annotations

from fedassay.records.record import RunRecord
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
    )
    rows = [
        Row(
            (*cell_values(cell), row.attack, row.status.replace("_", " "), row.reason, row.would_decide),
            "passed" if row.status == "conclusive" else "failed",
        )
        for cell in in_order(record)
        for row in cell.coverage
    ]
    if not rows:
        return None
    return Table("coverage", "What applies, and what was tried", columns, tuple((row,) for row in rows))
