"""Tables of the attacks and audits of a run: the untested, and the verdicts of every audit."""

from __future__ import annotations

from collections.abc import Sequence

from fedassay.contracts.registry import judges_the_claim
from fedassay.plan.rates import START, in_words
from fedassay.records.record import Coverage, Finding, RunRecord, Verdict
from fedassay.reports.document.finding_tables import (
    cell_columns,
    cell_values,
    group_values,
)
from fedassay.reports.document.tables import Column, Row, Ruling, Table
from fedassay.reports.words.groups import Group, groups, in_order
from fedassay.reports.words.harms import obstacle_of
from fedassay.reports.words.verdicts import LOOKS, worst


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


def matrix_table(record: RunRecord) -> Table:
    """The worst verdict of every audit on every method entry and epsilon, over seeds, sources and selections.

    Footnotes say why an audit could not run or could not conclude. Without rows where fewer than two audits
    speak: the verdict strip says it all then.
    """
    audits = _audits(record)
    columns = (*cell_columns(record, seed=False), *(Column(audit, _title(audit), "verdict") for audit in audits))
    if len(audits) < 2:
        return Table("matrix", "Method by audit", columns, ())
    rows = tuple(
        (
            Row(
                (
                    *group_values(group),
                    *(_ruling(group, audit) for audit in audits),
                )
            ),
        )
        for group in groups(record)
    )
    note = "The worst verdict over sources, selections and seeds; each has its row in the sections below."
    return Table("matrix", "Method by audit", columns, rows, note=note)


def _audits(record: RunRecord) -> tuple[str, ...]:
    """Every audit with a finding, in the record's order, the claims' first."""
    found = dict.fromkeys(finding.audit for cell in record.cells for finding in cell.findings)
    return tuple(sorted(found, key=lambda audit: not judges_the_claim(audit)))


def _title(audit: str) -> str:
    return "Claim" if judges_the_claim(audit) else audit.replace("_", " ").capitalize()


def _ruling(group: Group, audit: str) -> Ruling:
    findings = [finding for cell in group.cells for finding in cell.findings if finding.audit == audit]
    if judges_the_claim(audit):
        # A cell's own privacy verdict joins what the audit found on every mechanism.
        pairs = [(cell.privacy.verdict, cell.privacy.reason) for cell in group.cells]
    else:
        pairs = [(finding.verdict, finding.reason) for finding in findings]
    if not pairs:
        return Ruling("not_run", "no finding in this cell; see the errors at the top of the page")
    verdict = worst(verdict for verdict, _ in pairs)
    missed = next((f for f in findings if f.verdict == "not_run" and _open(f)), None)
    if LOOKS[verdict].tone == "good" and missed is not None:
        return Ruling("inconclusive", missed.reason)
    return Ruling(verdict, _why(verdict, pairs))


def _open(finding: Finding) -> bool:
    """Whether an attack not run could have found something: it had input, and no other attack asked the same."""
    obstacle = obstacle_of(finding)
    return obstacle is not None and obstacle.kind not in ("nothing_to_read", "asked_elsewhere", "not_possible")


def _why(verdict: Verdict, pairs: Sequence[tuple[Verdict, str]]) -> str:
    """The reason of a verdict that says nothing; others are explained where their figures are."""
    if LOOKS[verdict].tone not in {"none", "unsure", "open"}:
        return ""
    return next(reason for other, reason in pairs if other == verdict)
