"""Plans made smaller by one factor: what is multiplied, what stays, and where the floors are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from fedassay.api.inputs import as_scenario
from fedassay.cli import cli
from fedassay.plan.resolve import load_scenario, resolve
from fedassay.plan.scale import CLIENTS, PER_CLASS, RECORDS, scaled
from fedassay.plan.schema import Plan, parse_plan
from fedassay.plan.sizes import sizes_of
from fedassay.records.record import RunRecord
from fedassay.reports.document.plan_notes import facts
from fedassay.support.errors import PlanError

PLAN: dict[str, Any] = {
    "name": "test",
    "seeds": [0, 1, 2],
    "data": {"name": "cifar10", "split": {"private": 1.0}},
    "clients": {"count": 100, "alpha": 0.5},
    "backbone": {"name": "pixels"},
    "privacy": {"epsilon": [1, 10]},
    "methods": [
        {"feddiff": {"preset": ["paper", "small"], "sampler": "ddpm", "dp_sgd": {"epochs": 300, "norm": 2}}},
        {"fedavg": {"label": "a", "rounds": 100, "batch": 64, "epsilon": 3}},
        {"fedpft": {"mechanism": "paper", "components": 1, "delta": "per_class"}},
    ],
}


def _scaled(factor: float, **changes: Any) -> Plan:
    return scaled(parse_plan({**PLAN, **changes}, "plan.yaml"), factor, Path(), "plan.yaml")


def test_everything_that_takes_time_is_multiplied_and_nothing_else() -> None:
    plan = _scaled(0.1)
    assert (plan.data.limit, plan.clients.count, plan.seeds) == (5000, 10, (0,))
    assert (plan.privacy, plan.clients.alpha, plan.data.split) == (
        Plan.model_validate(PLAN).privacy,
        0.5,
        Plan.model_validate(PLAN).data.split,
    )
    feddiff, fedavg, fedpft = (next(iter(entry.values())) for entry in plan.methods)
    assert feddiff["preset"] == ["small", "small"]
    assert (feddiff["steps"], feddiff["epochs"]) == (100, 20)
    assert feddiff["dp_sgd"] == {"epochs": 30, "norm": 2}
    assert feddiff["classifier"] == {"epochs": 5}
    assert {key: fedavg[key] for key in ("label", "epsilon", "rounds", "batch")} == {
        "label": "a",
        "epsilon": 3,
        "rounds": 10,
        "batch": 64,
    }
    assert fedpft["delta"] == "per_class"
    assert plan.scaled == 0.1


def test_floors() -> None:
    plan = _scaled(1e-6)
    assert plan.data.limit == max(RECORDS, 10 * PER_CLASS)
    assert plan.clients.count == CLIENTS
    assert _scaled(1e-6, data={"name": "cifar10", "split": {"private": 0.01}}).data.limit == 100 * RECORDS
    assert _scaled(1e-6, data={"name": "cifar100", "split": {"private": 1}}).data.limit == 100 * PER_CLASS
    assert _scaled(0.5, clients={"count": 3}).clients.count == 3
    domains = {"count": 15, "partition": "domains"}
    assert _scaled(0.1, clients=domains).clients.count == 15
    feddiff = next(iter(plan.methods[0].values()))
    assert feddiff["preset"] == ["tiny", "small"]
    assert (feddiff["steps"], feddiff["epochs"]) == (10, 1)


def test_the_resolved_plan_runs_as_it_is_and_says_what_it_is() -> None:
    first = resolve(_scaled(0.1), Path(), "plan.yaml")
    assert any("scaled by 0.1: at most 5000 training images, 10 clients" in text for text in first.warnings)
    again = resolve(parse_plan(first.resolved(), "plan.yaml"), Path(), "plan.yaml")
    assert again.resolved() == first.resolved()
    assert [cell.key for cell in again.cells] == [cell.key for cell in first.cells]
    record = RunRecord(plan=first.resolved(), environment={}, cells=())
    assert ("Scaled", "to 0.1 of the plan as it was written") in facts(record)


def test_one_changes_nothing() -> None:
    assert _scaled(1) == parse_plan(PLAN, "plan.yaml")


@pytest.mark.parametrize("factor", [0, -1, 1.5, math.nan])
def test_wrong_factors(factor: float) -> None:
    with pytest.raises(PlanError, match=r"--scale .*allowed: above 0, and at most 1"):
        _scaled(factor)


def test_a_plan_is_scaled_once() -> None:
    with pytest.raises(PlanError, match=r"scaled: given 0\.5; --scale takes a plan as it was written"):
        _scaled(0.1, scaled=0.5)


def test_wrong_components_are_named_as_ever() -> None:
    with pytest.raises(PlanError, match=r"methods\.0\.fedavg: colour: unknown key"):
        _scaled(0.1, methods=[{"fedavg": {"colour": 1}}])


@pytest.mark.parametrize("path", sorted(Path("configs/papers").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_plan_of_a_paper_can_be_scaled(path: Path) -> None:
    try:
        small = load_scenario(path, scale=0.02)
    except PlanError as error:
        # Images that are not at hand cannot be counted.
        assert "--scale 0.02: " in str(error)  # noqa: PT017
        return
    whole = load_scenario(path)
    assert len(small.methods) == len(whole.methods)
    records = sizes_of(small.plan, small.base)
    assert isinstance(records, str) or records.private <= 0.02 * 60_000 + 2000


def test_images_are_held_against_the_scaled_plan(tmp_path: Path) -> None:
    """Clients that the images are too few for as the plan was written, and not at a tenth."""
    np.savez(tmp_path / "own.npz", x=np.zeros((60, 8, 8, 1), np.uint8), y=np.arange(60) % 3)
    plan = {
        "name": "own",
        "data": {"name": "npz", "path": "own.npz", "split": {"private": 0.5, "test": 0.5}},
        "clients": {"count": 50},
        "backbone": {"name": "pixels"},
        "methods": [{"fedcgs": {}}],
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    given: list[tuple[Any, Path | None]] = [(plan, tmp_path), (tmp_path / "plan.yaml", None)]
    for each, base in given:
        with pytest.raises(PlanError, match="50 clients of at least 1 records"):
            as_scenario(each, (), base)
        assert as_scenario(each, (), base, 0.1).plan.clients.count == 5
    options = ["run", str(tmp_path / "plan.yaml"), "--dry-run"]
    shown = CliRunner().invoke(cli, options, standalone_mode=False)
    assert "50 clients of at least 1 records" in str(shown.exception)
    assert "5 clients" in CliRunner().invoke(cli, [*options, "--scale", "0.1"]).output
