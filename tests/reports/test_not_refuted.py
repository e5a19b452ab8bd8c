"""A claim that was not refuted is no tested claim: in no format, under no policy, and in words of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedassay.records.record import Finding, RunRecord
from fedassay.reports import render
from fedassay.reports.gate.check import check_record
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.allowed import allowed
from fedassay.reports.words.claims import claim_clause
from fedassay.reports.words.verdicts import LOOKS, worst

OPEN = "whether the worst case is known is not known: no worst neighbours are given"


@pytest.fixture
def cell(build_cell: Any) -> Any:
    finding = Finding(audit="dp_claim", verdict="not_refuted", reason=OPEN)
    return build_cell(None, "fedpft", "fedpft", 1.0, 0, verdict="not_refuted", findings=(finding,))


def _record(cell: Any) -> RunRecord:
    return RunRecord(plan={"name": "p"}, environment={}, cells=(cell,))


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (Policy(name="p", claims="sound"), "undecided"),
        (Policy(name="p", must_conclude=("dp_claim",)), "undecided"),
        (Policy(name="p", forbidden_verdicts=("not_refuted",)), "broken"),
        (Policy(name="p", limit_of_detection={"dp_claim": 0.2}), "undecided"),
    ],
)
def test_no_policy_takes_it_for_a_tested_claim(cell: Any, policy: Policy, state: str) -> None:
    outcome = check_record(_record(cell), policy)
    assert state in [judgement.state for judgement in outcome.judgements]
    assert outcome.exit_code != 0


def test_it_is_not_disproved_either(cell: Any) -> None:
    assert check_record(_record(cell), Policy(name="p", claims="not_disproved")).judgements[0].state == "pass"


def test_its_rank_mark_and_colour_are_its_own() -> None:
    own = LOOKS["not_refuted"]
    for other, look in LOOKS.items():
        if other != "not_refuted":
            assert own.word != look.word
            assert own.mark != look.mark
            assert own.icon != look.icon
            assert own.tone != look.tone
            assert own.rank != look.rank
    assert worst(["sound", "not_refuted", "no_leak_found"]) == "not_refuted"
    assert worst(["not_refuted", "inconclusive"]) == "inconclusive"


def test_it_bounds_no_attack(cell: Any) -> None:
    silent = Finding(audit="membership", verdict="inconclusive", reason="too few")
    assert allowed(cell, silent) is None
    assert claim_clause(cell).endswith("the worst case of its mechanism is not known")


def test_it_arrives_in_every_format(cell: Any, tmp_path: Path) -> None:
    record = _record(cell)
    sarif, junit, markdown, page = (render(tmp_path, record, name) for name in ("sarif", "junit", "md", "html"))
    claims = [each for each in json.loads(sarif)["runs"][0]["results"] if "not refuted" in each["message"]["text"]]
    assert {(each["kind"], each["level"]) for each in claims} == {("open", "none")}
    errors = [error.get("message", "") for error in ElementTree.fromstring(junit).iter("error")]
    assert any("Not refuted" in words for words in errors)
    assert "Not refuted" in markdown
    assert "tone-open" in page
    assert "#i-ring" in page
