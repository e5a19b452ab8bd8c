"""Where a plan's method entries stand in its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.plan.lines import source_of

PLAN = """\
name: x
# a comment
methods:
  - fedcgs: {}

  - fedpft:
      label: dp
audits: []
"""


def test_entries_are_found_by_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plans" / "x.yaml"
    file.parent.mkdir()
    file.write_text(PLAN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert source_of(file, ["fedcgs", "dp"]) == {"file": "plans/x.yaml", "lines": {"fedcgs": 4, "dp": 6}}


def test_a_plan_elsewhere_is_named_without_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\n", encoding="utf-8")
    elsewhere = tmp_path / "here"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert source_of(file, ["a"]) == {"file": "x.yaml", "lines": {}}
    assert source_of(tmp_path / "gone.yaml", ["a"]) == {"file": "gone.yaml", "lines": {}}
