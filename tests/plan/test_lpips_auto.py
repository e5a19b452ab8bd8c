"""LPIPS is measured unless it is switched off: on an official trunk, or not at all."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fedassay.plan.published import trunk_remarks
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Plan, Scenario
from fedassay.similarity.metrics import make_similarity
from fedassay.similarity.spec import AUTO, TRUNKS, LpipsSpec, chosen


def _plan(**similarity: object) -> Plan:
    return _scenario(**similarity).plan


def _scenario(**similarity: object) -> Scenario:
    plan = Plan.model_validate(
        {
            "name": "p",
            "data": {"name": "digits"},
            "backbone": {"name": "pixels"},
            "methods": [{"fedcgs": {}}],
            "attacks": [{"feature_diffusion": {}}],
            "audits": [{"reconstruction": {}}],
            **({"similarity": similarity} if similarity else {}),
        }
    )
    return resolve(plan, Path(), "plan")


def test_it_is_on_unless_it_is_switched_off() -> None:
    assert chosen(_plan().similarity.lpips) == LpipsSpec(net=AUTO)
    assert chosen(_plan(lpips="auto").similarity.lpips) == LpipsSpec(net=AUTO)
    assert chosen(_plan(lpips=None).similarity.lpips) is None
    assert chosen(_plan(lpips={"net": "alex"}).similarity.lpips) == LpipsSpec(net="alex")


@pytest.mark.parametrize("asked", ["auto", {"net": "squeeze"}, {"net": "alex"}])
def test_a_dry_run_says_what_is_fetched(asked: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    scenario = _scenario(lpips=asked)
    spec = chosen(scenario.plan.similarity.lpips)
    assert spec is not None
    name = TRUNKS[spec.net][0].rpartition("/")[2]
    (offline,) = trunk_remarks(scenario)
    assert "will not be measured" in offline
    assert name in offline
    assert "--offline" in offline
    monkeypatch.delenv("FEDASSAY_OFFLINE")
    (online,) = trunk_remarks(scenario)
    assert f"fetches {name} (" in online
    assert "MB, SHA-256 " in online
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"there")
    assert trunk_remarks(scenario) == []


def test_nothing_is_said_of_a_file_of_ones_own_or_where_it_is_off() -> None:
    assert trunk_remarks(_scenario(lpips=None)) == []
    assert trunk_remarks(_scenario(lpips={"net": "squeeze", "trunk": "mine.pt"})) == []


def test_one_line_says_which_file_would_do(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = make_similarity("auto", Path(), "cpu")
        assert not caplog.records  # every worker makes it, and the run speaks once
        found.warned()
    assert found.lpips is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert "squeezenet1_1-b8a52dc0.pth" in line
    assert "--offline" in line
    assert "squeezenet1_1-b8a52dc0.pth" in found.remark
