"""Plans in which the server chooses what it sends out: what comes out of it, and what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedassay.execution.prepare import prepare
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.records.record import RunRecord
from fedassay.reports.document.plan_notes import facts
from fedassay.support.errors import PlanError
from fedassay.support.progress import SILENT

PLAN = """
name: malicious
data: {name: digits, split: {private: 0.1, attacker: 0.2, public: 0.1, test: 0.3, control: 0.25}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
threat: {view: aggregate}
methods: [fedsgd: {body: {name: mlp, hidden: 256}, batch: 500}]
attacks: [gradient_inversion: {}]
audits: [inversion: {}]
"""


def run(folder: Path, **changes: Any) -> RunRecord:
    plan = parse_plan({**yaml.safe_load(PLAN), **changes}, "plan")
    return run_scenario(resolve(plan, folder, "plan"), folder, RunOptions(device="cpu", quiet=True))[1]


@pytest.mark.long
def test_a_trap_reads_records_that_an_honest_broadcast_leaves_hidden(tmp_path: Path) -> None:
    """The gradient of 179 records, summed over two clients."""
    found = {}
    for server in ("honest", "malicious"):
        record = run(tmp_path / server, threat={"view": "aggregate", "server": server})
        assert not record.errors
        (words,) = (text for name, text in facts(record) if name == "Adversary")
        assert ("chooses what it sends out" in words) == (server == "malicious")
        found[server] = [each for each in record.cells[0].findings if each.source == "layer_inputs"]
    assert found["honest"] == []
    (leak,) = found["malicious"]
    assert leak.verdict == "leak"
    assert leak.metrics["psnr"].value is not None
    assert leak.metrics["psnr"].value > 30


@pytest.mark.long
def test_what_goes_out_is_not_what_an_honest_server_sends(tmp_path: Path) -> None:
    from fedassay.exchange.transcript import load_transcript

    started = []
    for server in ("honest", "malicious"):
        record = run(tmp_path / server, threat={"server": server}, attacks=[], audits=[])
        sent = load_transcript(tmp_path / server / "transcripts" / record.cells[0].key).messages[0]
        assert sent.sender == "server"
        started.append(sent.fields["parameters"].values)
    assert started[0].shape == started[1].shape
    # The second layer's outputs and the head are left as they are.
    assert np.mean(started[0] == started[1]) < 0.1


def test_the_server_needs_records_of_its_own(tmp_path: Path) -> None:
    content = {**yaml.safe_load(PLAN), "threat": {"server": "malicious"}}
    content["data"] = {"name": "digits", "split": {"private": 0.5, "test": 0.4}}
    with pytest.raises(PlanError, match="needs records of the attacker's own"):
        resolve(parse_plan(content, "plan"), tmp_path, "plan")
    # Those of colluding clients are some.
    content["threat"] = {"server": "malicious", "view": "aggregate", "colluding": 1}
    plan = resolve(parse_plan(content, "plan"), tmp_path, "plan").plan
    assert prepare(plan, tmp_path, 0, "cpu", SILENT).attacker is not None


SUMS = {
    "name": "cells",
    "data": {
        "name": "digits",
        "split": {"private": 0.4, "attacker": 0.2, "public": 0.05, "test": 0.25, "control": 0.1},
    },
    "clients": {"count": 4, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "methods": [{"fedcgs": {}}, {"fedncm": {}}, {"fedcgs": {"label": "summed", "secure_aggregation": "all"}}],
    "attacks": [{"trapped_sums": {}}],
    "audits": [{"message": {}}],
}


@pytest.mark.long
def test_a_backbone_of_cells_gives_records_away_in_sums(tmp_path: Path) -> None:
    """A third of the cells of every message: 4 clients or one sum, of ten classes and 8 cells."""
    plan = parse_plan({**SUMS, "threat": {"server": "malicious"}}, "plan")
    record = run_scenario(resolve(plan, tmp_path, "plan"), tmp_path, RunOptions(device="cpu", quiet=True))[1]
    assert not record.errors
    for cell, expected in zip(record.cells, (4, 4, 1), strict=True):
        (leak,) = cell.findings
        assert (leak.source, leak.verdict) == ("trapped_sums", "leak")
        share = leak.metrics["fraction_recovered"].value
        assert share is not None
        assert 0.25 < share * 719 / (expected * 80) < 0.6


@pytest.mark.long
def test_a_shared_body_of_cells_gives_records_away_in_fedlog_s_sums(tmp_path: Path) -> None:
    """Every client's messages of both rounds, before and after training, are of the same features."""
    methods = [{"fedlog": {"bodies": "mlp_deep", "width": 65, "rounds": 2, "local_epochs": 2}}]
    plan = parse_plan({**SUMS, "methods": methods, "threat": {"server": "malicious"}}, "plan")
    record = run_scenario(resolve(plan, tmp_path, "plan"), tmp_path, RunOptions(device="cpu", quiet=True))[1]
    assert not record.errors
    (leak,) = record.cells[0].findings
    assert (leak.source, leak.verdict) == ("trapped_sums", "leak")
    share = leak.metrics["fraction_recovered"].value
    assert share is not None
    assert 0.25 < share * 719 / 320 < 0.6


def test_an_honest_server_has_no_cells_to_read(tmp_path: Path) -> None:
    plan = parse_plan({**SUMS, "methods": [{"fedcgs": {}}]}, "plan")
    record = run_scenario(resolve(plan, tmp_path, "plan"), tmp_path, RunOptions(device="cpu", quiet=True))[1]
    assert [each.verdict for each in record.cells[0].findings] == ["not_run"]


def test_features_from_elsewhere_leave_no_backbone_to_choose(tmp_path: Path) -> None:
    (tmp_path / "features.npz").write_bytes(b"")
    content = {key: value for key, value in SUMS.items() if key != "backbone"} | {
        "threat": {"server": "malicious"}
    }
    content["data"] = {**content["data"], "features": "features.npz"}  # type: ignore[dict-item]
    with pytest.raises(PlanError, match="in the place of a backbone"):
        resolve(parse_plan(content, "plan"), tmp_path, "plan")
