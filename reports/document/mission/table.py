"""The mission's table in full precision: the CSV, and the rows of the data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedassay.contracts.metrics import likeness_metrics
from fedassay.records.record import Metric, RunRecord
from fedassay.reports.document.audits import title_of
from fedassay.reports.document.finding_tables import cell_columns, group_values
from fedassay.reports.document.mission.lines import (
    Line,
    Strongest,
    copies_of,
    image_audits,
    lines,
    members_of,
)
from fedassay.reports.document.mission.reasons import unmeasured
from fedassay.reports.document.tables import Column, Row, Table, Value
from fedassay.reports.words.metrics import title_in

NAME = "mission"


def mission_table(record: RunRecord) -> Table:
    """Method by epsilon: accuracy, images and look-alikes, copies, members, claim; no rows without images."""
    found = lines(record)
    rows = tuple((Row((*group_values(line.group), *_values(record, line))),) for line in found)
    return Table(NAME, "Methods by epsilon", (*cell_columns(record, seed=False), *_columns(record)), rows)


def mission_tables(runs: Sequence[tuple[str, RunRecord]]) -> Table:
    """The tables of several runs in one, with the name of each in its first column."""
    held = [(name, mission_table(record)) for name, record in runs]
    rows = tuple((Row((name, *row.values)),) for name, table in held for row in table.rows)
    return Table(NAME, "Methods by epsilon", (Column("run", "Run"), *held[0][1].columns), rows)


def mission_rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    """The same, a mapping a row: a metric as five entries, its value, interval, n and reason."""
    table = mission_table(record)
    header = [key for column in table.columns for key in column.csv_keys]
    for row in table.rows:
        yield dict(zip(header, _flat(table.columns, row.values), strict=True))


def mission_keys(record: RunRecord) -> list[str]:
    """The keys of `mission_rows`."""
    return [key for column in mission_table(record).columns for key in column.csv_keys]


def _flat(columns: Sequence[Column], values: Sequence[Value]) -> list[object]:
    return [part for column, value in zip(columns, values, strict=True) for part in column.in_csv(value)]


def _columns(record: RunRecord) -> tuple[Column, ...]:
    images: list[Column] = []
    for audit in image_audits():
        images += [
            Column(f"{audit}_attack", f"{title_of(audit)}: attack"),
            Column(f"{audit}_source", "Source"),
            Column(f"{audit}_selection", "Selection"),
            *_outcome(audit),
            *(
                Column(f"{audit}_{metric.name}{of}", title_in(record, metric.name), "metric")
                for metric in likeness_metrics()
                for of in ("", "_lookalikes")
            ),
        ]
    counted: list[Column] = []
    for what in ("copies", "members"):
        counted += [*_outcome(what), Column(f"{what}_metric", "Metric"), Column(what, what.capitalize(), "metric")]
    return (
        Column("accuracy", title_in(record, "accuracy"), "metric"),
        Column("largest_class", "Largest class", "metric"),
        *images,
        *counted,
        Column("claim", "Claim"),
        Column("no_claim", "No claim"),
        Column("claimed", "Claimed ε", "metric"),
        Column("observed", "Observed ε", "metric"),
    )


def _outcome(of: str) -> tuple[Column, ...]:
    return Column(f"{of}_verdict", "Verdict"), Column(f"{of}_why", "Why"), Column(f"{of}_in_words", "In words")


def _values(record: RunRecord, line: Line) -> Iterator[Value]:
    yield from (line.accuracy, line.majority)
    for found in line.images:
        finding = found.finding
        yield from (("", "", "") if finding is None else _named(found))
        yield from _came_to(found)
        for metric in likeness_metrics():
            missing = Metric(value=None, reason=found.why or unmeasured(record, metric.name))
            yield found.metrics.get(metric.name, missing)
            yield found.baseline.get(metric.name, missing)
    for found, lead in ((line.copies, copies_of(line.copies)), (line.members, members_of(line.members))):
        yield from _came_to(found)
        missing = Metric(value=None, reason=found.why or "not measured")
        yield from ("", missing) if lead is None else (lead[0].name, lead[1])
    claimed, observed = (_said(metric, line) for metric in (line.claimed, line.observed))
    yield from (line.claim, line.no_claim, claimed, observed)


def _said(metric: Metric, line: Line) -> Metric:
    """An epsilon, or why there is none."""
    if metric.value is not None:
        return metric
    return metric.model_copy(update={"reason": metric.reason or line.no_claim or "no attack showed any"})


def _named(found: Strongest) -> tuple[str, str, str]:
    assert found.finding is not None
    return found.finding.attack or "", found.finding.source or "", found.finding.selection or ""


def _came_to(found: Strongest) -> tuple[str, str, str]:
    return found.verdict, found.why, found.reason
