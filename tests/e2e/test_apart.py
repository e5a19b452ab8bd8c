"""What a method remembers of an earlier run, in this process and in workers, through whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedassay
import fedassay.execution.runner as runner
from fedassay.execution.apart import can_be_apart

PLAN: dict[str, Any] = {
    "name": "apart",
    "data": {"name": "digits", "split": {"private": 0.1, "public": 0.1, "test": 0.1}},
    "clients": {"count": 2, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "privacy": {"epsilon": [1.0]},
    "methods": [{"fedncm": {}}],
    "audits": [{"dp_claim": {}}],
    "resources": {"threads": 1},
}


@pytest.mark.long
def test_a_second_run_in_a_process_is_judged_where_no_method_ran(tmp_path: Path) -> None:
    first = fedassay.run(PLAN, tmp_path / "first").record
    assert not can_be_apart()
    second = fedassay.run(PLAN, tmp_path / "second").record
    for record in (first, second):
        (cell,) = record.cells
        assert cell.privacy.verdict == "sound"
        assert {answer.status for answer in cell.tape} == {"passed"}
        rest = next(answer for answer in cell.tape if answer.question == "rest")
        assert "in a process that never ran the method" in rest.words
    assert first.cells[0].findings == second.cells[0].findings


@pytest.mark.long
def test_where_no_process_can_be_forked_a_claim_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "can_be_apart", lambda: False)
    monkeypatch.setattr(runner, "_needs_worker", lambda _scenario: False)
    (cell,) = fedassay.run(PLAN, tmp_path / "run").record.cells
    assert cell.privacy.verdict == "inconclusive"
    assert "cannot be forked" in cell.privacy.reason
