"""Audits and attacks find each other by the kinds of results, and what nobody reads is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedassay.cli import cli
from fedassay.contracts.registry import attack_facts
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Scenario, parse_plan
from fedassay.plan.wiring import bounds_in, judged_by, message_attacks

PLAN: dict[str, Any] = {
    "name": "p",
    "data": {"name": "digits", "limit": 200},
    "clients": {"count": 2},
    "backbone": {"name": "pixels"},
    "methods": ["fedcgs"],
}


def _scenario(attacks: list[Any], audits: list[Any]) -> Scenario:
    return resolve(parse_plan({**PLAN, "attacks": attacks, "audits": audits}, "plan"), Path(), "plan")


@pytest.mark.parametrize(
    ("attacks", "audits", "unread"),
    [
        (["message_algebra"], ["message"], []),
        (["message_algebra"], ["ledger"], ["message_algebra"]),
        (["message_algebra", "label_distribution"], [], ["message_algebra", "label_distribution"]),
        (["membership", "message_algebra"], ["message"], ["membership"]),
        # Vectors are handed to the attacks after it that go on from them, not to those before it.
        (["gram_factorization", "feature_diffusion"], ["reconstruction"], []),
        (["feature_diffusion", "gram_factorization"], ["reconstruction"], ["gram_factorization"]),
        (["label_distribution", "feature_diffusion"], ["reconstruction"], ["label_distribution"]),
    ],
)
def test_an_attack_that_nobody_reads_is_said(attacks: list[str], audits: list[str], unread: list[str]) -> None:
    warnings = _scenario(attacks, audits).warnings
    assert len(warnings) == len(unread)
    for name, warning in zip(unread, warnings, strict=True):
        assert f"the attack {name} (" in warning
        assert "to audits" in warning


@pytest.mark.long
def test_it_is_printed_before_a_run_and_noted_in_its_record(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(json.dumps({**PLAN, "attacks": ["label_distribution"], "audits": ["ledger"]}))
    dry = CliRunner().invoke(cli, ["run", str(plan), "--dry-run"], standalone_mode=False)
    assert "results of the attack label_distribution (" in dry.output
    run = CliRunner().invoke(cli, ["run", str(plan), "-o", str(tmp_path / "out")], standalone_mode=False)
    assert "results of the attack label_distribution (" in run.output
    quiet = ["run", str(plan), "-o", str(tmp_path / "quiet"), "--quiet"]
    assert "are not read" not in CliRunner().invoke(cli, quiet, standalone_mode=False).output
    cell = json.loads((tmp_path / "out" / "record.json").read_text())["cells"][0]
    assert any("results of the attack label_distribution (" in note for note in cell["notes"])


def test_a_plan_whose_attacks_are_read_has_no_note(tmp_path: Path) -> None:
    scenario = _scenario(["message_algebra"], ["message"])
    _, record = run_scenario(scenario, tmp_path / "out", RunOptions(quiet=True))
    assert not any("are not read" in note for cell in record.cells for note in cell.notes)


def test_audits_judge_every_attack_of_their_kinds() -> None:
    attacks = ["gram_factorization", "feature_diffusion", "label_distribution", "message_algebra"]
    scenario = _scenario(attacks, ["reconstruction", "message", "dp_claim"])
    judged = [[attack.name for attack in judged_by(audit, scenario.attacks)] for audit in scenario.audits]
    assert judged == [["feature_diffusion"], ["gram_factorization", "label_distribution", "message_algebra"], []]


def test_tests_are_counted_for_every_entry_of_an_attack() -> None:
    once = bounds_in(_scenario(["feature_diffusion"], ["reconstruction"]))
    twice = bounds_in(_scenario(["feature_diffusion", {"feature_diffusion": {"steps": 5}}], ["reconstruction"]))
    assert twice == 2 * once
    assert bounds_in(_scenario([], ["ledger"])) == 1
    # So is a test that a parameter asks for.
    plain, more = (bounds_in(_scenario(["membership"], [{"membership": {"records": k}}])) for k in (0, 8))
    assert more == plain + 1


def test_attacks_on_messages_need_nothing_else() -> None:
    found = message_attacks()
    assert found[0] == "message_algebra"
    assert {"gradient_inversion", "gram_factorization", "head_inversion", "label_distribution"} <= set(found)
    assert not {name for name in found if set(attack_facts(name).needs) & {"attacker_records", "membership_game"}}
