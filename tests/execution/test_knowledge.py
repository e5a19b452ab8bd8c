"""`knowledge.gallery` in a plan: the adversary asks of its candidates alone, in runs and of captured messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedassay.data.records import Records, joined
from fedassay.execution.captured import AuditOptions, audit_transcript
from fedassay.execution.prepare import prepare
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.files import check_files
from fedassay.plan.resolve import load_scenario
from fedassay.plan.schema import parse_plan
from fedassay.records.record import Finding, RunRecord
from fedassay.records.redacted import redact
from fedassay.support.errors import DataError, PlanError
from fedassay.support.progress import SILENT

PLAN: dict[str, Any] = {
    "name": "known",
    "data": {"name": "digits", "limit": 400, "split": {"private": 0.3, "attacker": 0.3, "test": 0.2}},
    "clients": {"count": 2, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "methods": [{"fedcgs": {"secure_aggregation": "all"}}],
    "attacks": ["gallery"],
    "audits": [{"membership": {"trials": 0, "releases": 0}}],
}


def clients_and_others(folder: Path) -> tuple[Records, Records]:
    made = prepare(parse_plan(PLAN, "plan"), folder, 0, "cpu", SILENT)
    return joined("clients", list(made.clients)), made.test


def written(folder: Path, records: Records, **more: Any) -> Path:
    """A plan whose adversary has these candidates."""
    np.savez(folder / "mine.npz", x=records.images, y=records.labels)
    (folder / "plan.yaml").write_text(yaml.safe_dump(PLAN | {"knowledge": {"gallery": "mine.npz"}} | more))
    return folder / "plan.yaml"


def ran(plan: Path) -> RunRecord:
    options = RunOptions(device="cpu", quiet=True)
    return run_scenario(load_scenario(plan), plan.parent / "run", options)[1]


def finding_of(record: RunRecord) -> Finding:
    assert not record.errors, record.errors
    return next(each for each in record.cells[0].findings if each.attack == "gallery")


def test_members_among_the_candidates_are_named(tmp_path: Path) -> None:
    clients, others = clients_and_others(tmp_path)
    record = ran(written(tmp_path, joined("mine", [others, clients])))
    found = finding_of(record)
    assert found.verdict == "leak"
    assert found.harm is not None
    # Of every label as many members are asked about as there are others.
    asked = np.minimum(np.bincount(clients.labels), np.bincount(others.labels)).sum()
    assert abs(found.harm.count - asked) <= 20
    assert found.metrics["records_named"].n == 2 * found.harm.count
    assert found.metrics["wrongly_named"].value == 0
    assert record.data["0"]["candidates"] == len(clients) + len(others)
    assert "candidates" in record.cells[0].basis.data  # type: ignore[union-attr]


def test_only_candidates_are_asked_about(tmp_path: Path) -> None:
    """A tenth of the members: they are asked about, the rest of the clients' records is nobody's question."""
    clients, others = clients_and_others(tmp_path)
    few = clients.take(np.arange(0, len(clients), 10))
    found = finding_of(ran(written(tmp_path, joined("mine", [others, few]))))
    assert found.metrics["auc"].n is not None
    assert found.metrics["auc"].n <= 2 * len(few)
    assert found.metrics["records_named"].value == 0


@pytest.mark.parametrize(("who", "says"), [("members", "are a client's"), ("others", "are nobody's")])
def test_a_gallery_of_one_kind_is_said(who: str, says: str, tmp_path: Path) -> None:
    found = finding_of(ran(written(tmp_path, clients_and_others(tmp_path)[who == "others"])))
    assert found.verdict == "not_run"
    assert f"candidates of knowledge.gallery {says}" in found.reason


@pytest.mark.long
def test_captured_messages_are_asked_about_the_plan_s_candidates(tmp_path: Path) -> None:
    clients, others = clients_and_others(tmp_path)
    plan = written(tmp_path, joined("mine", [others, clients]))
    ran(plan)
    sent = next((tmp_path / "run" / "transcripts").iterdir())
    _, record = audit_transcript(sent, plan, tmp_path / "audit", AuditOptions(device="cpu", quiet=True))
    found = finding_of(record)
    assert found.verdict == "leak"
    assert found.harm is not None
    assert found.harm.count == len(clients)
    assert record.plan["candidates"]["count"] == len(clients) + len(others)
    assert "mine" not in json.dumps(redact(record).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nowhere", "nowhere does not exist"),
        ("plan.yaml", r"plan\.yaml given; allowed: a folder"),
        (3, "given 3"),
    ],
)
def test_a_wrong_path_is_one_error_before_anything_runs(given: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("name: x\n")
    with pytest.raises((DataError, PlanError), match=rf"knowledge\.gallery: .*{says}"):
        check_files(parse_plan(PLAN | {"knowledge": {"gallery": given}}, "plan.yaml"), tmp_path)


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(PlanError, match=r"knowledge\.galery: unknown key; allowed: gallery"):
        parse_plan(PLAN | {"knowledge": {"galery": "x"}}, "plan.yaml")
