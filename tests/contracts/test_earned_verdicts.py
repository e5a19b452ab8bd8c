"""A verdict is earned: findings are made in one place, and none concludes without both controls."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import ClassVar

import pytest
from sources import parsed

from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.facts import AuditFacts
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.records.record import Controls, Finding, load_record
from fedassay.support import registry
from fedassay.support.types import Parameters

ROOT = Path(__file__).resolve().parents[2]
PLACES = [
    ROOT / "audits",
    *((ROOT / "src" / "fedassay" / name) for name in ("execution", "contracts", "exchange")),
]
MAKER = ROOT / "audits" / "verdict.py"
LADDER = ROOT / "audits" / "ladder.py"


def _makes_findings(tree: ast.AST) -> list[int]:
    """Lines that make a finding, or change the verdict of one that was made."""
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        named = ast.unparse(node.func)
        made = named.split(".")[-1] == "Finding" or (
            "Finding." in f"{named}." and named.split(".")[-1].startswith("model_")
        )
        copied = named.endswith("model_copy") and any(
            isinstance(part, ast.Constant) and part.value in ("verdict", "controls")
            for word in node.keywords
            for part in ast.walk(word.value)
        )
        if made or copied:
            lines.append(node.lineno)
    return lines


def test_findings_are_made_in_one_place() -> None:
    places = {path: _makes_findings(tree) for path, tree in parsed(r"Finding\b|model_copy", *PLACES)}
    assert {path for path, lines in places.items() if lines} == {MAKER}, places


@pytest.mark.parametrize(
    "line",
    [
        'Finding(audit="a", verdict="leak", reason="r")',
        'record.Finding(audit="a")',
        'Finding.model_construct(verdict="leak")',
        'finding.model_copy(update={"verdict": "leak"})',
    ],
)
def test_the_search_for_findings_sees_them(line: str) -> None:
    assert _makes_findings(ast.parse(line)) == [1]


def test_no_audit_names_a_verdict_of_an_attack() -> None:
    """Whether something is a leak is the ladder's to say; an audit hands over numbers.

    A claim is judged on grounds that have a verdict of their own, and `inconclusive` is one of them.
    """
    claims = {ROOT / "audits" / "evidence.py", *(ROOT / "audits" / "claim").rglob("*.py")}
    for path, tree in parsed(r"leak|inconclusive", ROOT / "audits"):
        if path in (MAKER, LADDER):
            continue
        forbidden = {"leak", "no_leak_found"} | (set() if path in claims else {"inconclusive"})
        for node in ast.walk(tree):
            named = isinstance(node, ast.Constant) and node.value in forbidden
            assert not named, f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} names a verdict"


def test_random_numbers_of_audits_come_from_seeds() -> None:
    for path, tree in parsed(r"default_rng|RandomState", ROOT / "audits"):
        for node in ast.walk(tree):
            drawn = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("default_rng", "RandomState"))
            assert not drawn, f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} has a generator of its own"


@pytest.mark.long
def test_functions_of_audits_are_short() -> None:
    for path, tree in parsed(r"\bdef\b", ROOT / "audits"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            where = f"{path.relative_to(ROOT)}: {node.name}"
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            assert len([name for name in names if name != "self"]) <= 8, where
            if path.parent.name != "claim":  # the tape replaces these
                assert (node.end_lineno or 0) - node.lineno < 60, where


class Toy(Parameters):
    """An audit of a third party that says leak and shows nothing for it."""

    facts: ClassVar[AuditFacts] = AuditFacts()

    def assess(self, result: AttackResult | None, context: AuditContext) -> list[Finding]:
        return [Finding(audit="toy", controls=Controls(), verdict="leak", reason="I say so")]


PLAN = """
name: toy
seeds: [0]
data: {name: digits, limit: 200}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods: [fedcgs]
audits: [toy, ledger]
"""


def test_an_audit_that_concludes_without_controls_fails_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import yaml

    monkeypatch.setitem(registry._registered, ("audit", "toy"), Toy)
    scenario = resolve(parse_plan(yaml.safe_load(PLAN), "toy.yaml"), tmp_path, "toy.yaml")
    out, record = run_scenario(scenario, tmp_path / "out", RunOptions(device="cpu"))
    (error,) = record.errors
    assert error.message.startswith("audit toy: the verdict leak without a positive control that was caught")
    assert "fedassay.audits.verdict.conclude" in error.message
    (cell,) = record.cells
    verdicts = {finding.audit: finding.verdict for finding in cell.findings}
    assert verdicts == {"toy": "not_run", "ledger": "not_run"}
    assert load_record(out) == record


def test_records_without_controls_are_still_read() -> None:
    old = '{"audit": "message", "verdict": "leak", "reason": "written before there were controls"}'
    assert Finding.model_validate_json(old).verdict == "leak"
