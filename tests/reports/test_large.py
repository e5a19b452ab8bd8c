"""Runs of a thousand cells: the page stays small, keeps the worst, and says what it leaves to the tables."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports import render
from fedassay.reports.document.content import contents
from fedassay.reports.document.tables import Column, Row, Ruling, Table, printed


def _table(verdicts: list[str]) -> Table:
    groups = tuple(
        (Row((number, Ruling(verdict))), Row((number, Ruling(verdict))))  # type: ignore[arg-type]
        for number, verdict in enumerate(verdicts)
    )
    return Table("many", "Many", (Column("n", "n", "count"), Column("verdict", "Verdict", "verdict")), groups)


def test_a_long_table_shows_its_worst_rows_in_their_order() -> None:
    verdicts = ["no_leak_found"] * 500
    verdicts[30] = verdicts[480] = "leak"
    verdicts[470] = "unsound"
    table = _table(verdicts)
    shown = printed(table)
    numbers = [int(cells[0][1].text) for ((_, cells), _) in shown.groups]
    assert {30, 470, 480} <= set(numbers)
    assert numbers == sorted(numbers)
    assert shown.left == 1000 - 2 * len(numbers) > 0
    assert len(list(csv.reader(io.StringIO(table.csv())))) == 1001


def test_a_table_that_fits_is_whole() -> None:
    assert printed(_table(["leak"] * 80)).left == 0
    assert len(printed(_table(["leak"] * 80)).groups) == 80


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True], ids=["seeds", "labels"])
def test_the_page_of_a_thousand_cells_is_small(run: Path, record: RunRecord, wide: bool) -> None:
    """A page of 500 cells had 24 MB, and one of 1,000 took a minute of a processor."""
    large = record.model_copy(update={"cells": tuple(_many(record.cells, 1000, wide)), "errors": ()})
    page = render(run, large, "html")
    assert len(page.encode()) < 8_000_000
    assert page.count("<tr") < 6_000
    said = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) more rows are in tables/", page)]
    assert said
    assert all(text in page for text in ("more lines are in tables/verdicts.csv",) if wide)
    table = contents(large).table("matrix")
    assert table is not None
    assert len(table.groups) >= (1000 if wide else 40)


def _many(cells: tuple[CellRecord, ...], count: int, wide: bool) -> list[CellRecord]:
    """Cells with labels of their own, or few labels with many seeds."""
    return [
        cell.model_copy(
            update={
                "label": f"{cell.label} {number if wide else number // 25}",
                "seed": 0 if wide else number % 25,
                "key": f"cell{number}",
                "findings": tuple(f.model_copy(update={"pictures": (), "series": {}}) for f in cell.findings),
            }
        )
        for number in range(count)
        for cell in [cells[(number if wide else number // 25) % len(cells)]]
    ]
