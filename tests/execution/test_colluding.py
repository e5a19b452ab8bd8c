"""Plans in which clients collude with the server: who is a victim, what is attacked, and what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedassay.exchange.recount import recounted
from fedassay.exchange.transcript import load_transcript
from fedassay.execution.apart import forget_runs
from fedassay.execution.captured import AuditOptions, audit_transcript
from fedassay.execution.prepare import prepare
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.resolve import resolve
from fedassay.plan.scale import scaled
from fedassay.plan.schema import parse_plan
from fedassay.records.record import CellRecord, Finding, RunRecord
from fedassay.reports.document.plan_notes import facts
from fedassay.support.errors import PlanError
from fedassay.support.progress import SILENT

PLAN = """
name: colluding
data: {name: digits, limit: 600, split: {private: 0.2, attacker: 0.3, public: 0.1, test: 0.3}}
clients: {count: 4, partition: iid}
backbone: {name: pixels}
threat: {view: aggregate, colluding: 3}
methods: [fedcgs: {}, fedpft: {}]
attacks: [gallery: {}]
audits: [membership: {trials: 0}]
"""


def run(folder: Path, **changes: Any) -> RunRecord:
    """A run, as in a process of its own: one that has run a method would start another."""
    forget_runs()
    plan = parse_plan({**yaml.safe_load(PLAN), **changes}, "plan")
    options = RunOptions(device="cpu", quiet=True)
    return run_scenario(resolve(plan, folder, "plan"), folder / "run", options)[1]


def _of(record: RunRecord, method: str) -> Finding:
    (cell,) = (cell for cell in record.cells if cell.method == method)
    return cell.findings[0]


def test_colluders_are_no_victims_and_their_records_are_known(tmp_path: Path) -> None:
    plan = parse_plan(yaml.safe_load(PLAN), "plan")
    alone = prepare(plan.model_copy(update={"threat": type(plan.threat)()}), tmp_path, 0, "cpu", SILENT)
    prepared = prepare(plan, tmp_path, 0, "cpu", SILENT)
    assert [client.name for client in prepared.clients] == ["client/0"]
    assert [client.name for client in prepared.colluders] == ["colluder/0", "colluder/1", "colluder/2"]
    for one, two in zip(alone.clients, prepared.senders, strict=True):
        np.testing.assert_array_equal(one.images, two.images)
    assert alone.attacker is not None
    assert prepared.attacker is not None
    own = len(alone.attacker)
    np.testing.assert_array_equal(prepared.attacker.images[:own], alone.attacker.images)
    assert len(prepared.attacker) == own + sum(map(len, prepared.colluders))
    assert prepared.attacker.among(*prepared.colluders)[own:].all()
    assert not prepared.attacker.among(*prepared.clients).any()
    assert prepared.digests["private"] == alone.digests["private"]
    assert prepared.facts["colluders"] == {"clients": 3, "records": sum(map(len, prepared.colluders))}
    assert "colluders" not in alone.facts


def test_a_run_attacks_what_is_left(tmp_path: Path) -> None:
    """FedCGS's sums are taken apart; FedPFT's mixtures do not add up, which is one error of that cell alone."""
    record = run(tmp_path)
    assert [(error.cell.partition("-")[0], error.stage) for error in record.errors] == [("fedpft", "view")]
    assert "3 of the senders collude" in record.errors[0].message
    assert _of(record, "fedpft").verdict == "not_run"
    named = _of(record, "fedcgs")
    assert named.verdict == "leak"
    left = record.data["0"]["client_records"][0]
    assert named.metrics["auc"].value == 1.0
    assert named.metrics["auc"].n == 2 * left
    sent = load_transcript(tmp_path / "run" / "transcripts" / record.cells[0].key)
    assert {message.sender for message in sent.from_clients()} == {
        "client/0",
        "colluder/0",
        "colluder/1",
        "colluder/2",
    }
    (words,) = (text for name, text in facts(record) if name == "Adversary")
    assert words.startswith("sees aggregate messages, white box backbone; 3 of 4 clients on its side")


DIVIDED: dict[str, Any] = {
    "methods": [{"fedcgs": {"secure_aggregation": "all", "noise": "central"}}],
    "privacy": {"epsilon": 4},
    "audits": ["ledger"],
    "attacks": [],
}
"""Noise in equal shares of the clients."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CellRecord:
    """The cell of a run in which nobody colludes, and the plan says nothing of it."""
    return run(tmp_path_factory.mktemp("whole"), **DIVIDED, threat={}).cells[0]


@pytest.mark.long
@pytest.mark.parametrize(("colluding", "mu"), [(0, 1.0), (2, 2**0.5), (3, 2.0)])
def test_a_divided_noise_is_accounted_without_their_shares(
    colluding: int, mu: float, whole: CellRecord, tmp_path: Path
) -> None:
    record = run(tmp_path, **DIVIDED, threat={"colluding": colluding})
    (cell,) = record.cells
    assert not record.errors
    assert cell.privacy.mu == pytest.approx(mu * (whole.privacy.mu or 0.0))
    (finding,) = cell.findings
    assert finding.verdict == ("unsupported" if colluding else "sound")
    assert ("clients telling the server their noise" in finding.reason) == bool(colluding)
    again = recounted(cell, load_transcript(tmp_path / "run" / "transcripts" / cell.key))
    assert again is not None
    assert again.problems == ()


@pytest.mark.long
def test_captured_messages_name_their_colluders(tmp_path: Path) -> None:
    """Senders called colluder/0 and so on are subtracted; a plan must say as many."""
    sent = tmp_path / "run" / "transcripts" / run(tmp_path).cells[0].key
    options = AuditOptions(quiet=True, device="cpu")
    plan = tmp_path / "plan.yaml"
    for colluding in (3, 1):
        threat = f"{{view: aggregate, colluding: {colluding}}}"
        plan.write_text(
            "name: p\ndata: {name: digits}\nclients: {count: 4}\nbackbone: {name: pixels}\n"
            f"threat: {threat}\n"
        )
        if colluding == 3:
            _, record = audit_transcript(sent, plan, tmp_path / "audited", options)
            assert record.plan["threat"]["colluding"] == 3
            senders = {finding.reason for finding in record.cells[0].findings if "client/0" in finding.reason}
            assert senders
        else:
            with pytest.raises(PlanError, match=r"threat\.colluding: 1 given, but 3 of the transcript's senders"):
                audit_transcript(sent, plan, tmp_path / "refused", options)


@pytest.mark.parametrize(("count", "colluding", "left"), [(100, 20, 1), (100, 99, 4), (4, 3, 3), (10, 0, 0)])
def test_a_smaller_plan_keeps_their_share(count: int, colluding: int, left: int, tmp_path: Path) -> None:
    content = {**yaml.safe_load(PLAN), "clients": {"count": count}, "threat": {"colluding": colluding}}
    small = scaled(parse_plan(content, "plan"), 0.01, tmp_path, "plan")
    assert small.clients.count == min(count, 5)
    assert small.threat.colluding == left
