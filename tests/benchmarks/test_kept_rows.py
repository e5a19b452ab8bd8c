"""A long measurement goes on where it was stopped, and sums up what it has."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedassay.support.errors import DataError

_FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(_FOLDER))
    return importlib.import_module("kept_rows")


def _jobs(rows: ModuleType, measured: list[int], figures: Callable[[int], dict[str, Any]]) -> list[Any]:
    def measure(draw: int) -> dict[str, Any]:
        measured.append(draw)
        return figures(draw)

    return [rows.Job({"method": "x", "draw": draw}, lambda draw=draw: measure(draw)) for draw in range(4)]


def test_what_is_there_is_not_measured_again(rows: ModuleType, tmp_path: Path) -> None:
    measured: list[int] = []
    jobs = _jobs(rows, measured, lambda draw: {"n": 10, "auc": 0.5 + draw / 10})
    rows.measure(jobs[:2], tmp_path / "rows.jsonl")
    rows.measure(jobs, tmp_path / "rows.jsonl")
    assert measured == [0, 1, 2, 3]
    (line,) = rows.summaries(rows.kept(tmp_path / "rows.jsonl"))
    assert (line["draws"], line["n"], line["auc"][0]) == (4, 40, 0.65)
    assert line["auc"][1] < 0.65 < line["auc"][2]


def test_a_line_that_was_cut_off_is_measured_again(rows: ModuleType, tmp_path: Path) -> None:
    path, measured = tmp_path / "rows.jsonl", list[int]()
    jobs = _jobs(rows, measured, lambda draw: {"n": 1})
    rows.measure(jobs[:2], path)
    path.write_text(path.read_text()[:-20])
    rows.measure(jobs[:2], path)
    assert measured == [0, 1, 1]
    assert [row["settings"]["draw"] for row in rows.kept(path)] == [0, 1]


def test_a_refusal_is_a_row(rows: ModuleType, tmp_path: Path) -> None:
    def refuse(draw: int) -> dict[str, Any]:
        raise DataError("no\nfloat16")

    rows.measure(_jobs(rows, [], refuse)[:1], tmp_path / "rows.jsonl")
    assert rows.summaries(rows.kept(tmp_path / "rows.jsonl")) == [{"method": "x", "refused": "no float16"}]


def test_named_and_certified_have_their_intervals(rows: ModuleType) -> None:
    figures = [{"named": 50, "wrongly_named": wrong, "whole": not wrong} for wrong in (0, 1)]
    (line,) = rows.summaries([{"settings": {"draw": n}, "figures": each} for n, each in enumerate(figures)])
    assert line["wrong_names"][0] == 0.01
    assert line["wrong_names"][1] < 0.01 < line["wrong_names"][2]
    assert line["whole"][0] == 1
    assert json.dumps(line)
