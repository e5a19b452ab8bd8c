"""Runs side by side: aligned releases, changed plans."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fedassay.records.record import Finding, RunRecord
from fedassay.reports.document.compare import align, changes, comparison, flattened, run_names, write_comparison
from fedassay.support.errors import PlanError


def two(record: RunRecord) -> tuple[RunRecord, RunRecord]:
    plan = {
        **record.plan,
        "clients": {**record.plan["clients"], "alpha": 0.5},
        "methods": record.plan["methods"][:2],
    }
    cells = tuple(
        cell.model_copy(
            update={
                "utility": {"accuracy": 0.8},
                "communication": {"bytes_up": 2 * cell.communication["bytes_up"]},
            }
        )
        for cell in record.cells
        if cell.label != "feddiff"
    )
    return record, record.model_copy(update={"plan": plan, "cells": cells})


def test_plans_are_compared_key_by_key(record: RunRecord) -> None:
    found = {change.key: change.values for change in changes(two(record))}
    assert found == {"clients.alpha": ("0.1", "0.5"), "methods.fedcgs": ("with its defaults", "absent")}


def test_equal_plans_have_no_change_whatever_their_name(record: RunRecord) -> None:
    renamed = record.model_copy(update={"plan": {**record.plan, "name": "other"}})
    assert changes([record, renamed]) == ()


def test_entries_of_one_name_are_kept_apart() -> None:
    plan = {"methods": [{"fedpft": {"k": 1}}, {"fedpft": {"k": 2}}, {"fedpft": {"label": "dp", "k": 3}}]}
    flat = flattened(plan)
    assert flat["methods.fedpft.k"] == "1"
    assert flat["methods.fedpft#2.k"] == "2"
    assert flat["methods.dp.k"] == "3"


def test_releases_are_aligned_and_differences_given(record: RunRecord) -> None:
    first, second = two(record)
    rows = {row.name: row for row in align([(Path("a"), first), (Path("b"), second)])}
    assert len(rows) == 12
    assert rows["feddiff, ε = 10 (one record added or removed)"].lines[1] is None
    dp = rows["dp (fedpft), ε = 10 (one record replaced, same label)"]
    accuracy = next(measure for measure in dp.measures if measure.title == "Accuracy")
    assert [entry.text for entry in accuracy.entries] == ["0.906", "0.800"]
    assert accuracy.entries[1].moved == "−0.106"
    sizes = next(measure for measure in dp.measures if measure.title == "Bytes up")
    assert sizes.entries[1].moved == "× 2.00"
    assert not any(row.verdict_changed for row in rows.values())


def test_a_verdict_that_differs_is_marked(build_cell: Any) -> None:
    runs = []
    for verdict in ("leak", "no_leak_found"):
        finding = Finding(audit="message", verdict=verdict, reason="r")
        cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(finding,))
        runs.append((Path(verdict), RunRecord(plan={"name": "p"}, environment={}, cells=(cell,))))
    (row,) = align(runs)
    assert row.verdict_changed
    html = comparison(runs)
    assert "The verdict differs on 1." in html
    assert 'class="row-changed"' in html


def test_deltas_are_told_apart_where_a_run_has_several(build_cell: Any) -> None:
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0)
    other = cell.model_copy(update={"delta": 1e-3})
    many = RunRecord(plan={}, environment={}, cells=(cell, other))
    one = RunRecord(plan={}, environment={}, cells=(cell,))
    names = [row.name for row in align([(Path("a"), many), (Path("b"), one)])]
    assert names == [
        f"fedpft, ε = 1 (one record replaced, same label), δ = {delta}" for delta in ("10⁻⁵", "0.001")
    ]


def test_runs_of_one_name_go_by_their_folder(record: RunRecord, tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    runs = [(tmp_path / "x", record), (tmp_path / "y", record), (tmp_path / "x", record)]
    assert run_names(runs[:2]) == ("sweep (x)", "sweep (y)")
    assert run_names(runs) == ("1. sweep (x)", "sweep (y)", "3. sweep (x)")


def test_it_writes_one_page(record: RunRecord, run: Path, tmp_path: Path) -> None:
    first, second = two(record)
    path = write_comparison([(run, first), (run, second)], tmp_path / "c.html")
    html = path.read_text(encoding="utf-8")
    assert "clients.alpha" in html
    assert "http:" not in html
    with pytest.raises(PlanError, match="two or more"):
        write_comparison([(run, first)], tmp_path / "d.html")
    assert not (tmp_path / "d.html").exists()
