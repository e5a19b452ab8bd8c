"""`standard` in a plan's attacks and audits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedassay.contracts.registry import every_audit
from fedassay.plan.estimate import estimate
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Scenario, parse_plan
from fedassay.support.errors import PlanError
from fedassay.support.registry import entries


def _scenario(attacks: Any, audits: Any, **more: Any) -> Scenario:
    plan = {
        "name": "p",
        "data": {
            "name": "digits",
            "split": {"private": 0.3, "attacker": 0.3, "test": 0.2},
            "attributes": ["label"],
        },
        "backbone": {"name": "pixels"},
        "threat": {"server": "malicious"},
        "methods": ["fedcgs"],
        "attacks": attacks,
        "audits": audits,
        **more,
    }
    return resolve(parse_plan(plan, "plan.yaml"), Path(), "plan.yaml")


def test_standard_is_everything_that_the_plan_can_run() -> None:
    scenario = _scenario("standard", "standard")
    assert {attack.name for attack in scenario.attacks} == set(entries("attack"))
    assert {audit.name for audit in scenario.audits} == set(every_audit())
    assert all(not part.given for part in (*scenario.attacks, *scenario.audits))
    assert estimate(scenario).seconds


def test_what_the_plan_has_nothing_for_is_left_out() -> None:
    private = {"data": {"name": "digits", "split": {"private": 0.3, "test": 0.2}}, "threat": {}}
    names = {attack.name for attack in _scenario("standard", "standard", **private).attacks}
    assert "feature_diffusion" not in names
    assert "membership" in names
    unnamed = {"data": {"name": "digits", "split": {"private": 0.3, "attacker": 0.3, "test": 0.2}}}
    scenario = _scenario("standard", "standard", **unnamed)
    assert set(entries("attack")) - {attack.name for attack in scenario.attacks} == {"attribute_likelihood"}
    assert set(every_audit()) - {audit.name for audit in scenario.audits} == {"attribute_inference"}
    black = {"threat": {"backbone": "black_box"}}
    names = {attack.name for attack in _scenario("standard", [], **black).attacks}
    assert not {"feature_inversion", "trapped_sums"} & names


def test_audits_follow_the_attacks_and_attacks_that_go_on_from_others_come_after_them() -> None:
    scenario = _scenario(["label_distribution"], "standard")
    audits = {audit.name for audit in scenario.audits}
    assert {"message", "dp_claim", "ledger", "memorization"} <= audits
    assert not {"reconstruction", "inversion", "membership"} & audits
    names = [attack.name for attack in _scenario("standard", []).attacks]
    assert names.index("gram_factorization") < names.index("feature_diffusion")


def test_what_follows_takes_the_place_of_its_name() -> None:
    scenario = _scenario(["standard", {"membership": {"shadows": 4}}, {"membership": {"shadows": 8}}], "standard")
    given = [attack.given for attack in scenario.attacks if attack.name == "membership"]
    assert given == [{"shadows": 4}, {"shadows": 8}]
    assert len(scenario.attacks) == len(entries("attack")) + 1


@pytest.mark.parametrize(
    "attacks", [["membership", "standard"], ["standard", "standard"], [{"standard": {"shadows": 1}}]]
)
def test_standard_elsewhere_is_refused(attacks: list[Any]) -> None:
    with pytest.raises(PlanError, match=r"attacks\.\d: standard takes no parameters and stands first"):
        _scenario(attacks, [])
