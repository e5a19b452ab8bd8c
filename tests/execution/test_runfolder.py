"""The run folder: one writer, nothing overwritten unasked, finished cells kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.execution import runfolder
from fedassay.support.errors import PlanError

PLAN = {"name": "a", "epsilon": float("inf")}


def test_an_output_that_holds_a_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("precious")
    with (
        pytest.raises(PlanError, match=r"already holds record\.json"),
        runfolder.claim(tmp_path, PLAN, resume=False, force=False),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record.json"]
    assert (tmp_path / "record.json").read_text() == "precious"


def test_force_removes_what_a_run_wrote_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("old")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "old.csv").write_text("old")
    (tmp_path / "thesis.tex").write_text("mine")
    with runfolder.claim(tmp_path, PLAN, resume=False, force=True):
        assert not (tmp_path / "record.json").exists()
        assert not (tmp_path / "tables").exists()
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    with (
        runfolder.claim(tmp_path / "out", PLAN, resume=False, force=False),
        pytest.raises(PlanError, match="another fedassay run"),
        runfolder.claim(tmp_path / "out", PLAN, resume=True, force=False),
    ):
        pass


def test_resume_wants_the_same_plan(tmp_path: Path) -> None:
    with runfolder.claim(tmp_path, PLAN, resume=False, force=False):
        pass
    with runfolder.claim(tmp_path, PLAN, resume=True, force=False):
        pass
    with (
        pytest.raises(PlanError, match="another plan"),
        runfolder.claim(tmp_path, {**PLAN, "name": "b"}, resume=True, force=False),
    ):
        pass


def test_a_damaged_cell_counts_as_not_run(tmp_path: Path) -> None:
    (tmp_path / ".cells").mkdir()
    (tmp_path / ".cells" / "x.json").write_text('{"cell": {"method"')
    assert runfolder.finished(tmp_path, "x") is None
    assert runfolder.finished(tmp_path, "y") is None


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with (
        pytest.raises(PlanError, match="it is a file"),
        runfolder.claim(tmp_path / "out", PLAN, resume=False, force=True),
    ):
        pass
    assert (tmp_path / "out").read_text() == "mine"
