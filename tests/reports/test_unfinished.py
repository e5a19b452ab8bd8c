"""A run that was stopped reports its finished cells, says which are missing, and how to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedassay
from fedassay.records.record import RunRecord, load_record
from fedassay.records.redacted import redact
from fedassay.records.unfinished import MissingCell, Unfinished
from fedassay.reports import render
from fedassay.reports.decision.standard import standard_policy
from fedassay.reports.document.mission.shown import shown
from fedassay.reports.gate.judging import judged

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"


@pytest.fixture(scope="module")
def stopped() -> RunRecord:
    whole = load_record(GALLERY / "photographs")
    missing = tuple(
        MissingCell(
            method=cell.method,
            label=cell.label,
            epsilon=cell.epsilon,
            delta=cell.delta,
            adjacency=cell.adjacency,
            unit=cell.unit,
            seed=cell.seed,
        )
        for cell in whole.cells[5:]
    )
    lacks = Unfinished(why="it was stopped by Ctrl-C", command="fedassay run p.yaml -o r --resume", cells=missing)
    return whole.model_copy(update={"cells": whole.cells[:5], "unfinished": lacks})


def test_the_page_says_what_is_missing_and_how_to_go_on(stopped: RunRecord) -> None:
    for format in ("html", "md"):
        text = render(GALLERY / "photographs", stopped, format)  # type: ignore[arg-type]
        assert "9 of 14 cells are missing" in text
        assert "fedassay run p.yaml -o r --resume" in text
        assert "feddiff, ε = 1 (one record added or removed)" in text


def test_the_table_has_a_row_for_each_that_is_missing(stopped: RunRecord) -> None:
    table = shown(stopped)
    assert table is not None
    assert len(table.rows) == 14
    assert [row.method for row in table.rows[4:7]] == ["fedcgs"] * 3
    assert {entry.why for entry in table.rows[-1].entries} == {"not finished"}


def test_nothing_is_decided_on_it(stopped: RunRecord) -> None:
    outcome = judged(stopped, standard_policy(stopped))
    assert any(each.rule == "finished" and each.state == "undecided" for each in outcome.judgements)
    assert outcome.exit_code != 0


def test_a_redacted_page_holds_no_path_of_the_command(stopped: RunRecord) -> None:
    lacks = stopped.unfinished
    assert lacks is not None
    named = lacks.model_copy(update={"command": "fedassay run /home/ada/p.yaml -o r --resume"})
    found = redact(stopped.model_copy(update={"unfinished": named})).unfinished
    assert found is not None
    assert "ada" not in found.command


@pytest.mark.long
def test_a_run_that_breaks_off_leaves_the_page_of_its_finished_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedassay.execution import runner

    real, runs = runner.run_cell, []

    def stopping(*args: object, **given: object) -> object:
        runs.append(args)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return real(*args, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "run_cell", stopping)
    plan = {
        "name": "short",
        "seeds": [0],
        "data": {"name": "digits", "limit": 200},
        "clients": {"count": 2},
        "backbone": {"name": "pixels"},
        "privacy": {"epsilon": [float("inf"), 10], "delta": 1e-5},
        "methods": [{"fedcgs": {}}],
        "attacks": [{"message_algebra": {}}],
        "audits": [{"message": {}}],
    }
    with pytest.raises(KeyboardInterrupt):
        fedassay.run(plan, tmp_path / "out")
    record = load_record(tmp_path / "out")
    assert record.unfinished is not None
    assert record.unfinished.why == "it was stopped by Ctrl-C"
    assert len(record.cells) == len(record.unfinished.cells) == 1
    assert "1 of 2 cells are missing" in (tmp_path / "out" / "report.html").read_text()
    monkeypatch.setattr(runner, "run_cell", real)
    whole = fedassay.run(plan, tmp_path / "out", resume=True)
    assert whole.record.unfinished is None
    assert len(whole.record.cells) == 2
