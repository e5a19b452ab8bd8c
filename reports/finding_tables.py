"""Tables of findings: reconstruction with its baseline rows, and every other audit's figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedassay.record import CellRecord, Finding, Metric, RunRecord
from fedassay.reports.groups import several_deltas, several_seeds
from fedassay.reports.metrics import hint, ordered, title
from fedassay.reports.summary import attacks_on
from fedassay.reports.tables import Column, Row, Table, Value

Found = tuple[CellRecord, Finding]


def found(record: RunRecord, audits: Iterable[str] | None = None) -> tuple[Found, ...]:
    """Findings with their cells, in the record's order; all of them where no audit is named."""
    wanted = None if audits is None else set(audits)
    return tuple(
        (cell, finding)
        for cell in record.cells
        for finding in (attacks_on(cell) if wanted is None else cell.findings)
        if wanted is None or finding.audit in wanted
    )


def cell_columns(record: RunRecord, seed: bool = True) -> tuple[Column, ...]:
    """The columns that name a cell; on the page only those that tell cells apart."""
    named = all(cell.label == cell.method for cell in record.cells)
    columns = (
        Column("label", "Method"),
        Column("method", "Backend", hidden=named),
        Column("epsilon", "ε", "parameter", "Asked of the method; ∞ is no noise."),
        Column("delta", "δ", "parameter", hidden=not several_deltas(record)),
    )
    return (*columns, Column("seed", "Seed", hidden=not several_seeds(record))) if seed else columns


def cell_values(cell: CellRecord) -> tuple[Value, ...]:
    """The values of `cell_columns`."""
    seed = "none" if cell.seed is None else str(cell.seed)
    return (cell.label, cell.method, cell.epsilon, cell.delta, seed)


def findings_table(
    record: RunRecord, name: str, caption: str, findings: Sequence[Found], always: Sequence[str] = ()
) -> Table:
    """One group of rows per finding: what was measured and, beneath it, the baseline.

    Args:
        record: Where the findings are from.
        name: Name of the CSV.
        caption: Caption of the table.
        findings: Which findings.
        always: Metrics that get a column even where nothing was measured.
    """
    names = ordered([*always, *(key for _, finding in findings for key in (*finding.metrics, *finding.baseline))])
    attacks = {finding.attack for _, finding in findings}
    columns = (
        *cell_columns(record),
        Column("audit", "Audit", hidden=len({finding.audit for _, finding in findings}) < 2),
        Column("attack", "Attack", hidden=len(attacks) < 2),
        Column("source", "Source", hidden=all(f.source is None for _, f in findings)),
        Column("selection", "Selection", hidden=all(f.selection is None for _, f in findings)),
        *(Column(key, title(key), "metric", hint(key)) for key in names),
        Column("verdict", "Verdict", "verdict"),
        Column("reason", "In words", hidden=name == "reconstruction"),
    )
    groups = []
    for cell, finding in findings:
        who = (*cell_values(cell), finding.audit, finding.attack or "")
        what = (finding.source or "", finding.selection or "")
        rows = [
            Row(
                (*who, *what, *_values(finding, names), finding.verdict, finding.reason),
                "measured",
            )
        ]
        if finding.baseline:
            values = tuple(finding.baseline.get(key, Metric(value=None)) for key in names)
            rows.append(Row((*who, *what, *values, "", ""), "baseline"))
        groups.append(tuple(rows))
    return Table(name, caption, columns, tuple(groups), roles=True)


def _values(finding: Finding, names: Sequence[str]) -> tuple[Metric, ...]:
    """A finding's metrics; an absent one is a dash with the finding's own reason where it has one."""
    why = finding.reason if finding.verdict == "not_run" else "this audit does not give it for this source"
    return tuple(finding.metrics.get(key, Metric(value=None, reason=why)) for key in names)


def controls_table(record: RunRecord) -> Table:
    """Every positive and negative control, one row each."""
    columns = (
        *cell_columns(record),
        Column("audit", "Audit"),
        Column("source", "Source"),
        Column("selection", "Selection"),
        Column("control", "Control"),
        Column("release", "Release under test"),
        Column("outcome", "Outcome"),
        Column("value", "Value", "metric"),
        Column("detail", "Detail"),
    )
    groups = []
    for cell, finding in found(record):
        who = (*cell_values(cell), finding.audit, finding.source or "", finding.selection or "")
        rows = []
        positive, negative = finding.controls.positive, finding.controls.negative
        if positive is not None:
            outcome = "caught, as it must be" if positive.caught else "MISSED"
            value = Metric(value=positive.value, n=positive.n)
            role = "passed" if positive.caught else "failed"
            rows.append(Row((*who, "positive", positive.release, outcome, value, positive.detail), role))
        if negative is not None:
            outcome = "FLAGGED" if negative.flagged else "not flagged, as it must be"
            value = Metric(value=negative.value, n=negative.n)
            role = "failed" if negative.flagged else "passed"
            rows.append(Row((*who, "negative", negative.release, outcome, value, negative.detail), role))
        if rows:
            groups.append(tuple(rows))
    return Table("controls", "Controls of every audit, run beside it", columns, tuple(groups), roles=True)
