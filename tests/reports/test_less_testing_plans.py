"""Plans run again without an attack, an audit, a control or half of the records do not look better."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from less_testing import POLICIES, no_limit_shrinks, no_line_becomes_nothing_found, nothing_becomes_good

import fedassay
from fedassay.contracts.registry import attack_facts, audit_facts
from fedassay.records.record import RunRecord
from fedassay.reports.words.summary import strip

SPLIT = {"private": 0.3, "attacker": 0.3, "test": 0.2, "public": 0.05, "control": 0.1}
DIGITS = {"name": "digits", "limit": 400, "split": SPLIT}
SHADOWS = {"membership": {"shadows": 4}}
CLAIM = {"dp_claim": {"mechanism_trials": 500, "replays": 8}}
INVERSION = {"feature_inversion": {"steps": 20, "max_vectors": 8, "directions": 1}}


def plan(method: Any, attacks: list[Any], audits: list[Any]) -> dict[str, Any]:
    return {
        "name": "less",
        "data": DIGITS,
        "clients": {"count": 3, "partition": "iid"},
        "backbone": {"name": "pixels"},
        "privacy": {"epsilon": "inf", "delta": 1e-3},
        "methods": [method],
        "attacks": attacks,
        "audits": audits,
    }


SUMMED = {"fedcgs": {"secure_aggregation": "all"}}
PLANS = {
    "mixture": plan({"fedpft": {"components": 1}}, ["message_algebra", SHADOWS], ["message", "membership"]),
    "statistics": plan("fedcgs", ["gram_factorization", "message_algebra"], ["message"]),
    "secure sum": plan(SUMMED, ["gram_factorization", "message_algebra"], ["message"]),
    "recovered vectors": plan("fed3r", ["gram_factorization", INVERSION], ["message", "inversion"]),
    "heads": plan("one_shot_ridge", [SHADOWS], ["membership"]),
    "class means": plan("fedncm", ["gallery", "message_algebra"], ["message", "membership"]),
    "clipped sums under a claim": plan(
        {"fedcgs": {"epsilon": 2}}, ["message_algebra", "gallery"], ["message", "membership", CLAIM]
    ),
    "features of own networks": plan(
        {"fedlog": {"rounds": 1, "width": 9}}, ["message_algebra", "label_distribution"], ["message"]
    ),
    # Of 120 images the limit lies near a half, where one test more in the run decides what is said.
    "generators": plan(
        {"feddiff": {"preset": "tiny", "epochs": 2}},
        ["message_algebra"],
        ["message", {"memorization": {"samples_per_record": 1}}],
    )
    | {"data": {**DIGITS, "limit": 800}},
    "gradients": plan("fedsgd", ["gradient_inversion", "label_distribution"], ["message", "inversion"]),
}

SAME_TESTS = ("control", "records")
"""What may be left out of a plan that asks as many tests."""


def name_of(entry: Any) -> str:
    return next(iter(entry)) if isinstance(entry, dict) else str(entry)


def judging(attacks: list[Any], audits: list[Any]) -> list[Any]:
    """The audits that judge one of the attacks, or judge none: a plan refuses others."""
    given = [attack_facts(name_of(each)) for each in attacks]
    found = [(each, audit_facts(name_of(each))) for each in audits]
    return [each for each, facts in found if facts and (not facts.judges or any(map(facts.judge, given)))]


def less(full: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Plans with less testing, each after what it lacks."""
    for attack in full["attacks"]:
        kept = [each for each in full["attacks"] if each is not attack]
        if audits := judging(kept, full["audits"]):
            yield name_of(attack), {**full, "attacks": kept, "audits": audits}
    for audit in full["audits"]:
        kept = [each for each in full["audits"] if each is not audit]
        if kept:
            yield name_of(audit), {**full, "audits": kept}
    data = full["data"]
    yield "control", {**full, "data": {**data, "split": {**SPLIT, "control": 0.0}}}
    yield "records", {**full, "data": {**data, "limit": data["limit"] // 2}}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_tests_less_does_not_look_better(name: str, tmp_path: Path) -> None:
    full = fedassay.run(PLANS[name], tmp_path / "full", progress=False)
    assert not full.record.errors, full.record.errors
    assert any(finding.verdict != "not_run" for cell in full.record.cells for finding in cell.findings)
    cases: list[tuple[str, RunRecord]] = []
    for number, (lost, changed) in enumerate(less(PLANS[name])):
        record = fedassay.run(changed, tmp_path / str(number), progress=False).record
        # A run of fewer tests corrects its levels for fewer, and may see smaller leaks.
        if lost in SAME_TESTS:
            no_limit_shrinks(full.record, lost, record)
        if lost in {row.attack for cell in full.record.cells for row in cell.coverage}:
            assert all(lost in line.untested for line in strip(record)), lost
        cases.append((lost, record))
    for policy in POLICIES:
        nothing_becomes_good(full.record, cases, policy)
    no_line_becomes_nothing_found(full.record, cases)
