"""What another run of a cell would take, and how its plan would be written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.contracts.registry import attack_facts
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.execution.coverage import coverage
from fedassay.plan.estimate import estimate
from fedassay.plan.next_run import NextRun, Part
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Scenario, parse_plan
from fedassay.plan.sizes import sizes_of
from fedassay.records.record import Controls, Coverage, Finding, NegativeControl, PositiveControl
from fedassay.reports.decision.steps import together
from fedassay.support.registry import entries

SPLIT = {"private": 0.3, "attacker": 0.3, "public": 0.1, "test": 0.2}


def _scenario(**more: Any) -> Scenario:
    plan = {
        "name": "p",
        "data": {"name": "digits", "split": SPLIT},
        "backbone": {"name": "small_cnn"},
        "privacy": {"epsilon": [1.0], "delta": 1e-5},
        "methods": ["fedcgs"],
        "attacks": [{"feature_diffusion": {"preset": "tiny"}}],
        "audits": ["reconstruction"],
        **more,
    }
    return resolve(parse_plan(plan, "plan.yaml"), Path(), "plan.yaml")


def _next(**more: Any) -> NextRun:
    scenario = _scenario(**more)
    sizes = sizes_of(scenario.plan, scenario.base)
    assert not isinstance(sizes, str)
    return NextRun(scenario, scenario.cells[0], sizes)


def test_a_run_again_takes_what_a_dry_run_of_it_says() -> None:
    another = _next()
    found = another.seconds([Part("attack", "feature_diffusion"), Part("audit", "reconstruction")])
    assert found is not None
    whole = estimate(another.scenario).seconds
    assert whole is not None
    # A dry run adds starting and the extraction of features.
    assert found[0] < whole < found[0] + 12
    assert 0 < found[1] < found[0], "what cells share is not paid twice"


@pytest.mark.parametrize("attack", sorted(entries("attack")))
def test_every_attack_can_be_added_and_takes_time(attack: str) -> None:
    found = _next().seconds([Part("attack", attack)])
    assert found is not None
    assert 0 < found[1] <= found[0]


@pytest.mark.parametrize("attack", [name for name in entries("attack") if attack_facts(name).stronger])
def test_a_stronger_form_is_a_valid_plan_and_takes_longer(attack: str) -> None:
    another = _next(attacks=[attack], audits=[])
    seen = [Part("attack", attack)]
    while (part := another.stronger(attack)) is not None:
        another = _next(attacks=[{attack: dict(part.changed)}], audits=[])
        seen.append(part)
    assert len(seen) > 1
    times = [
        _next(attacks=[{attack: dict(part.changed)}], audits=[]).seconds([Part("attack", attack)]) for part in seen
    ]
    assert times == sorted(times, key=lambda pair: pair or (0.0, 0.0))
    assert times[0] != times[-1]


def test_nothing_is_estimated_without_sizes_or_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    another = _next()
    assert replace(another, sizes=None).seconds([Part("attack", "membership")]) is None
    assert another.seconds([]) is None
    facts = attack_facts("membership")
    monkeypatch.setattr("fedassay.attacks.membership.attack.Membership.facts", replace(facts, cost=None))
    assert another.seconds([Part("attack", "membership")]) is None


def test_only_what_the_plan_lacks_is_said_to_be_needed() -> None:
    inversion = attack_facts("feature_inversion")
    assert _next().unmet(inversion) == []
    (need,) = _next(threat={"backbone": "black_box"}).unmet(inversion)
    assert "threat.backbone" in need
    assert _next().unmet(attack_facts("membership")) == []


def _view() -> View:
    sums = {kind: MessageField(np.ones((2, 3)), kind, exact()) for kind in ("class_means", "class_counts")}  # type: ignore[arg-type]
    return View((Message(0, "client/0", "server", sums),), 2, ThreatModel())


def test_everything_untried_and_undecided_of_a_plan_has_a_time_and_names_keys() -> None:
    another = _next()
    controls = Controls(
        positive=PositiveControl(release="r", caught=False), negative=NegativeControl(release="r", flagged=False)
    )
    weak = Finding(
        audit="reconstruction", attack="feature_diffusion", verdict="inconclusive", reason="r", controls=controls
    )
    audits = (type("Entry", (), {"name": "reconstruction"})(),)
    rows = coverage(_view(), [weak], attacks=another.scenario.attacks, audits=audits, another=another)
    open_ = {row.attack: row for row in rows}
    assert {"membership", "label_distribution", "feature_diffusion"} <= set(open_)
    assert all(row.seconds is not None and row.further_seconds is not None for row in rows)
    told = open_["feature_diffusion"].would_decide
    assert "attacks: feature_diffusion: preset: small" in told
    assert "data.split.attacker, now 0.3" in told
    assert "data.split.control, now a tenth" in told
    stronger = another.seconds(
        [Part("attack", "feature_diffusion", {"preset": "small"}), Part("audit", "reconstruction")]
    )
    assert stronger is not None
    assert open_["feature_diffusion"].seconds == pytest.approx(stronger[0], abs=0.1)


def test_what_cells_share_is_counted_once() -> None:
    rows = [Coverage(attack="a", status="not_run", seconds=100.0, further_seconds=10.0)] * 3
    assert together(rows) == pytest.approx(120.0)
    assert together([*rows, Coverage(attack="a", status="not_run")]) is None
    assert together([]) is None
