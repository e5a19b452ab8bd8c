"""Tables on the page and in the CSV are the same table."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest

from fedassay.records.record import Metric, RunRecord, unmeasured
from fedassay.reports import write_tables
from fedassay.reports.document.content import contents
from fedassay.reports.document.privacy_tables import ledger_table, utility_table
from fedassay.reports.document.tables import Column, Row, Table, csv_text, printed, show


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


@pytest.fixture(scope="module")
def folder(record: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_tables(record, folder)
    return folder


def test_every_table_and_figure_has_its_file(record: RunRecord, folder: Path) -> None:
    content = contents(record)
    names = {path.name for path in folder.glob("*.csv")}
    assert {f"{table.name}.csv" for table in content.tables} <= names
    assert {f"figure_{figure.name}.csv" for figure in content.figures} <= names
    series = sum(len(finding.series) for cell in record.cells for finding in cell.findings)
    assert sum(name.startswith("series_") for name in names) == series


def test_reconstruction_has_measured_and_baseline_rows_in_full_precision(record: RunRecord, folder: Path) -> None:
    rows = read(folder / "reconstruction.csv")
    findings = [f for cell in record.cells for f in cell.findings if f.audit == "reconstruction"]
    assert [row["row"] for row in rows] == ["measured", "baseline"] * len(findings)
    values = {float(row["ssim"]) for row in rows if row["row"] == "measured"}
    assert values == {finding.metrics["ssim"].value for finding in findings}
    assert {row["ssim_n"] for row in rows} == {"300"}


def test_what_was_not_measured_is_empty_with_its_reason(folder: Path) -> None:
    row = read(folder / "reconstruction.csv")[0]
    assert row["lpips"] == row["lpips_low"] == row["lpips_n"] == ""
    assert "alexnet" in row["lpips_reason"]


def test_infinity_reads_back(folder: Path) -> None:
    rows = read(folder / "claims.csv")
    unbounded = [row for row in rows if row["label"] == "fedlog"]
    assert unbounded
    assert all(float(row["accounted"]) == math.inf for row in unbounded)


def test_ledger_holds_every_field_of_every_cell(record: RunRecord, folder: Path) -> None:
    rows = read(folder / "ledger.csv")
    assert len(rows) == sum(len(cell.ledger) for cell in record.cells)
    exact = [row for row in rows if row["row"] == "exact"]
    assert exact
    assert all(row["protection"] == "EXACT" and row["mechanism"] == "exact" for row in exact)


def test_counts_that_the_adjacency_makes_public_are_no_exact_field(record: RunRecord) -> None:
    cells = [cell for cell in record.cells if cell.label == "dp"]
    rows = ledger_table(record, cells).rows
    words = [row.values[row.values.index("counts") + 3] for row in rows if "counts" in row.values]
    assert words
    assert set(words) == {"exact, public under this adjacency"}
    assert all(row.role == "" for row in rows)


def test_seeds_are_averaged_with_their_range(record: RunRecord) -> None:
    table = utility_table(record)
    at = next(i for i, column in enumerate(table.columns) if column.key == "accuracy")
    value = table.rows[0].values[at]
    accuracies = [cell.utility["accuracy"] for cell in record.cells if cell.label == "raw_features"]
    assert isinstance(value, Metric)
    assert value.value == pytest.approx(sum(map(float, accuracies)) / 2)  # type: ignore[arg-type]
    assert (value.low, value.high, value.n) == (min(accuracies), max(accuracies), 2)  # type: ignore[type-var]


def test_one_seed_keeps_its_own_interval(build_record: Any) -> None:
    record = build_record(None, seeds=(3,))
    table = utility_table(record)
    at = next(i for i, column in enumerate(table.columns) if column.key == "accuracy")
    value = table.rows[0].values[at]
    assert isinstance(value, Metric)
    assert value.n == 360
    assert value.low is not None


def test_footnotes_say_every_reason_once_and_every_dash_of_a_metric_has_one() -> None:
    column = Column("x", "X", "metric")
    rows = tuple(
        (Row((value,)),) for value in (unmeasured("a"), unmeasured("b"), unmeasured("a"), Metric(value=1.0))
    )
    shown = printed(Table("t", "T", (column,), rows))
    assert shown.footnotes == (("a", "a"), ("b", "b"))
    letters = [letter for group in shown.groups for _, cells in group for _, _, letter in cells]
    assert letters == ["a", "b", "a", ""]


def test_no_dash_without_a_reason(record: RunRecord) -> None:
    for table in contents(record).tables:
        for group in printed(table).groups:
            for role, cells in group:
                for column, shown, letter in cells:
                    if column.kind in {"metric", "bytes"} and shown.text == "–":
                        assert letter, (table.name, role, column.key)


def test_an_audit_told_in_numbers_gives_its_reason_where_it_has_none(record: RunRecord) -> None:
    table = contents(record).table("reconstruction")
    assert table is not None
    shown = printed(table)
    reasons = [reason for _, reason in shown.footnotes]
    assert "the negative control was flagged" in reasons
    assert "reconstructions beat the nearest-feature baseline" not in reasons
    gains = [
        cell.text
        for group in shown.groups
        for role, cells in group
        if role == "baseline"
        for column, cell, _ in cells
        if column.key == "ssim_gain"
    ]
    assert set(gains) == {""}


def test_a_whole_number_without_interval_stays_whole() -> None:
    column = Column("x", "X", "metric")
    assert show(column, Metric(value=20.0, n=1500)).text == "20"
    assert show(column, Metric(value=20.0, low=19.0, high=21.0)).text == "20.0"


def test_the_csv_cannot_be_run_by_a_spreadsheet() -> None:
    text = csv_text(("name",), [("=1+1",), ("-x",), (-1.5,), (None,), (math.inf,)])
    assert text.splitlines() == ["name", "'=1+1", "'-x", "-1.5", '""', "inf"]
