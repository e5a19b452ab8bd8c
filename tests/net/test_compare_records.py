"""The tool that compares records: what counts as a difference, and changes that it must find."""

from __future__ import annotations

import copy
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import forked
import pytest

from fedassay.contracts.registry import entries
from fedassay.plan.resolve import load_plan

ROOT = Path(__file__).resolve().parents[2]

PLAN = """
name: small
seeds: [0]
data: {name: digits, limit: 300, split: {private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods: [fedcgs: {}]
attacks: [label_distribution: {}]
audits: [message: {}]
"""


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_records", ROOT / "tests/net/compare_records.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their own module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _record() -> dict[str, Any]:
    def finding(source: str, value: float) -> dict[str, Any]:
        return {"audit": "message", "source": source, "metrics": {"auc": {"value": value}}, "series": {}}

    cell = {"label": "fedcgs", "epsilon": "inf", "seed": 0, "seconds": {"method": 1.0}}
    return {
        "schema": 1,
        "environment": {"started": "now", "packages": {"numpy": "2"}},
        "cells": [{**cell, "findings": [finding("raw", 0.5), finding("sums", 1.0)]}],
        "errors": [],
    }


def test_every_attack_and_audit_is_compared(tool: ModuleType) -> None:
    """Attacks by a case of their own, too, where there is more to one than what `standard` asks for."""
    asked: set[tuple[str, str]] = set()
    for case in tool.CASES.values():
        if case.plan is not None and "attacks=standard" not in case.settings:
            plan = load_plan(ROOT / "configs" / case.plan, case.settings)
            asked |= {("attack", name) for entry in plan.attacks for name in entry}
            asked |= {("audit", name) for entry in plan.audits for name in entry}
    every = {(kind, name) for kind in ("attack", "audit") for name in entries(kind)}
    assert every == asked


def test_times_and_machine_are_no_difference(tool: ModuleType) -> None:
    other = _record()
    other["environment"] = {"started": "later", "cores": 2}
    other["cells"][0]["seconds"] = {"method": 2.0, "attack": 0.1}
    assert tool.differences(_record(), other) == []


def test_a_value_is_named_by_its_place(tool: ModuleType) -> None:
    other = _record()
    other["cells"][0]["findings"][1]["metrics"]["auc"]["value"] = 1.0 - 2**-53
    assert tool.differences(_record(), other) == [
        "cells[fedcgs inf 0].findings[message sums].metrics.auc.value: 1.0 -> 0.9999999999999999"
    ]


@pytest.mark.parametrize("value", [1, True, "1.0", None, [1.0], {}])
def test_a_change_of_type_is_a_difference(tool: ModuleType, value: object) -> None:
    other = _record()
    other["cells"][0]["findings"][1]["metrics"]["auc"]["value"] = value
    assert len(tool.differences(_record(), other)) == 1


def test_one_finding_more_does_not_shift_the_others(tool: ModuleType) -> None:
    other = _record()
    other["cells"][0]["findings"].insert(0, copy.deepcopy(other["cells"][0]["findings"][0]) | {"source": "new"})
    lines = tool.differences(_record(), other)
    assert all("findings[message new]" in line or ".findings[]: " in line for line in lines)
    assert any("(absent)" in line for line in lines)


def test_two_findings_of_one_name_are_both_compared(tool: ModuleType) -> None:
    before, other = _record(), _record()
    for record in (before, other):
        record["cells"][0]["findings"][1]["source"] = "raw"
    other["cells"][0]["findings"][1]["metrics"]["auc"]["value"] = 0.0
    (line,) = tool.differences(before, other)
    assert line.startswith("cells[fedcgs inf 0].findings[message raw#1].")


def test_order_is_a_difference(tool: ModuleType) -> None:
    other = _record()
    other["cells"][0]["findings"].reverse()
    (line,) = tool.differences(_record(), other)
    assert line.startswith("cells[fedcgs inf 0].findings[]: ")


def test_a_move_is_no_difference_once_it_is_declared(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    other = _record()
    for finding in other["cells"][0]["findings"]:
        finding["measured"] = finding.pop("metrics")
    assert tool.differences(_record(), other)
    monkeypatch.setattr(tool, "MOVED", ((r"\.metrics\.", ".measured."),))
    assert tool.differences(_record(), other) == []


@pytest.mark.long
def test_a_change_that_is_not_committed_is_found(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a repository of its own: equal to itself, then a plan is changed, then a module is broken."""
    for name in ("src", "methods", "attacks", "audits", "reports", "configs"):
        shutil.copytree(
            ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    (tmp_path / "configs" / "small.yaml").write_text(PLAN)
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "x"]):
        own = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *own, *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "CASES", {"small": tool.Case("small.yaml")})

    def fedassay(wanted: list[str], folder: Path, environment: dict[str, str]) -> int:
        # Forked, it imports fedassay anew, from the PYTHONPATH that the tool gives: the tree of that version.
        return forked.fedassay(*wanted, cwd=folder, environment=environment).returncode

    monkeypatch.setattr(tool, "_fedassay", fedassay)
    keep = ["--keep", str(tmp_path.parent / f"{tmp_path.name}-kept")]

    assert tool.main(["HEAD", *keep]) == 0
    assert "small: equal (1 cells, 1 findings)" in capsys.readouterr().out

    plan = tmp_path / "configs" / "small.yaml"
    plan.write_text(PLAN.replace("fedcgs: {}", "fedcgs: {ridge: 0.5}"))
    assert tool.main(["HEAD", *keep]) == 1
    assert "params.ridge: " in capsys.readouterr().out

    (tmp_path / "methods" / "fedcgs" / "method.py").write_text("raise ValueError('broken')\n")
    assert tool.main(["HEAD", *keep]) == 2
    assert "compare_records: " in capsys.readouterr().err
