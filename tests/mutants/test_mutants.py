"""The catalogue of broken methods is whole and applies; a few entries are run. All of them: `make mutants`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from broken import Said, outcome_of_attack
from catalogue import SCOPES, UNCHANGED, Concern, Edit, Mutant, attack_plans, mutants, plan_of, plans, unjudged
from copies import PACKAGE, apply
from score import Judged, outcome_of, run_all, table, verdict_of

ENTRIES = mutants()
LEAKY = [entry for entry in ENTRIES if entry.kind == "leaky"]
HONEST = [entry for entry in ENTRIES if entry.kind == "honest" and entry.edits]
BROKEN = [entry for entry in ENTRIES if entry.kind == "attack" and entry.fault != UNCHANGED]
SUBSET = [entry for entry in ENTRIES if entry.subset]


def _mutant(*edits: Edit, kind: Literal["leaky", "honest"] = "leaky", reason: str = r"\bA\b") -> Mutant:
    return Mutant("made up", kind, "fault", "what", "fedcgs", edits, reason, "all", False, False)


def test_there_are_enough_of_each_sort():
    assert len(LEAKY) >= 60
    assert len(HONEST) >= 20
    assert sum(entry.scope != "all" for entry in LEAKY) >= 10
    assert sum(entry.blind for entry in LEAKY) >= 20
    assert {plans()[entry.plan]["method"] for entry in LEAKY} == {plan["method"] for plan in plans().values()}


def test_entries_are_told_apart_and_complete():
    names = [re.sub(r"\W+", "-", entry.name) for entry in ENTRIES]
    assert len(set(names)) == len(names)
    done = [(entry.plan, entry.edits) for entry in ENTRIES]
    assert len(set(done)) == len(done)
    for entry in ENTRIES:
        assert entry.plan in (attack_plans() if entry.kind == "attack" else plans()), entry.name
        assert entry.scope in SCOPES, entry.name
        assert entry.what.endswith("."), entry.name
        if entry.kind == "leaky":
            assert entry.reason, entry.name
            assert not re.search(entry.reason, ""), entry.name


def test_broken_attacks_say_which_findings_they_concern_and_use_every_plan():
    assert {entry.plan for entry in BROKEN} == set(attack_plans())
    for entry in BROKEN:
        assert entry.edits, entry.name
        for pattern in (entry.concern.source, entry.concern.selection, entry.concern.label):
            re.compile(pattern)


def test_a_plan_of_attacks_is_merged_into_what_all_plans_share():
    plan = plan_of("attacks-gram")
    assert plan["clients"] == {"count": 12, "partition": "iid"}
    assert plan["data"]["name"] == "digits"
    assert plan["audits"] == [{"message": {}}]


def _said(verdict: str, source: str = "raw", selection: str = "all", reason: str = "SSIM 0.9") -> Said:
    return Said("fedcgs | inf | 1e-05 | 0", "reconstruction", "diffusion", source, selection, verdict, reason)


def test_what_becomes_of_a_broken_attack():
    def outcome(broken: list[Said], intact: list[Said], concern: Concern | None = None) -> str:
        return outcome_of_attack(concern or Concern(attack="diffusion"), broken, intact)[0]

    leak, clear = _said("leak"), _said("no_leak_found")
    failed, unclear = _said("not_run", "", ""), _said("inconclusive")
    assert outcome([clear], [leak]) == "missed"
    assert outcome([clear], [clear]) == "missed"
    assert outcome([unclear], [leak]) == outcome([unclear], [clear]) == outcome([failed], [leak]) == "found"
    assert outcome([_said("leak", reason="SSIM 0.8")], [leak]) == "found"
    assert outcome([leak], [leak]) == "no effect"
    assert outcome([], [leak]) == "missed"
    assert outcome([unclear], [leak, _said("leak", "means")]) == "found"
    assert outcome([leak], [leak, _said("leak", "means")]) == "missed"
    assert outcome([unclear], [unclear]) == outcome([clear], []) == "no baseline"
    assert outcome([clear], [leak], Concern(attack="another")) == "no baseline"


def test_a_concern_names_source_selection_and_label_as_a_whole():
    intact = [_said("leak", "raw"), _said("no_leak_found", "raw_means")]
    broken = [_said("inconclusive", "raw"), _said("no_leak_found", "raw_means")]
    for concern, outcome in (
        (Concern(attack="diffusion"), "missed"),
        (Concern(attack="diffusion", source="raw"), "found"),
        (Concern(audit="reconstruction", source="raw.*"), "missed"),
        (Concern(audit="reconstruction", label="fed"), "no baseline"),
    ):
        assert outcome_of_attack(concern, broken, intact)[0] == outcome


@pytest.mark.parametrize(
    "entry", [entry for entry in (*ENTRIES, *unjudged()) if entry.edits], ids=lambda entry: entry.name
)
def test_every_edit_still_applies(entry: Mutant, tmp_path: Path):
    for file in {edit.file for edit in entry.edits}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((PACKAGE / file).read_text(encoding="utf-8"), encoding="utf-8")
    for edit in entry.edits:
        apply(edit, tmp_path)


@pytest.mark.parametrize("old", ["import", "no such text in this file"])
def test_an_edit_of_text_that_does_not_occur_once_is_refused(old: str, tmp_path: Path):
    (tmp_path / "one.py").write_text("import os\nimport sys\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"one\.py: occurs [02] times"):
        apply(Edit("one.py", old, "x"), tmp_path)


def test_what_a_verdict_is_worth():
    leaky, honest = _mutant(), _mutant(kind="honest", reason="")
    assert outcome_of(leaky, "unsound", ["A carries no noise"]) == "found"
    assert outcome_of(leaky, "unsupported", ["what leaves adds up to 3"]) == "wrong reason"
    assert outcome_of(_mutant(reason="class_counts"), "unsound", ["class counts leave exactly"]) == "found"
    assert outcome_of(leaky, "sound", ["A"]) == "missed"
    assert outcome_of(leaky, "inconclusive", ["A"]) == "inconclusive"
    assert outcome_of(honest, "sound", [""]) == "passed"
    assert outcome_of(honest, "unsupported", [""]) == "flagged"
    assert outcome_of(honest, "error", [""]) == "error"


def test_the_worst_verdict_of_any_cell_counts():
    def finding(audit: str, verdict: str, reason: str) -> dict[str, str]:
        return {"audit": audit, "verdict": verdict, "reason": reason}

    cells = [
        {"findings": [finding("dp_claim", "sound", "fine"), finding("message", "unsound", "not asked")]},
        {"findings": [finding("dp_claim", "unsupported", "one"), finding("ledger", "unsound", "two")]},
    ]
    verdict, reasons = verdict_of({"errors": [], "cells": cells})
    assert (verdict, set(reasons)) == ("unsound", {"one", "two"})
    assert verdict_of({"errors": [], "cells": cells[:1]}) == ("sound", ("fine",))
    assert verdict_of({"errors": ["no"], "cells": cells})[0] == "error"


def test_the_subset_has_both_kinds():
    assert sum(entry.kind == "leaky" for entry in SUBSET) >= 8
    assert sum(entry.kind == "honest" for entry in SUBSET) >= 4


def test_the_table_counts():
    said = [
        Judged("one", "leaky", "less noise", "client", True, "unsound", "found", ("A",), 1.0),
        Judged("two", "leaky", "less noise", "all", False, "sound", "missed", ("",), 1.0),
        Judged("three", "honest", "order", "all", False, "unsound", "flagged", ("",), 1.0),
    ]
    shown = table(said)
    assert re.search(r"^less noise +2 +1 +0 +1 +0$", shown, re.MULTILINE)
    assert "honest variations: 1, flagged 1, not judged 0" in shown
    assert [item.right for item in said] == [True, False, False]


def test_the_table_counts_broken_attacks_and_what_their_plans_find_unbroken():
    rest = ("all", False, "ran")
    said = [
        Judged("p: unchanged", "attack", UNCHANGED, *rest, "passed", (), 1.0, "", (_said("leak"), _said("leak"))),
        Judged("one", "attack", "flipped", *rest, "found", (), 1.0),
        Judged("two", "attack", "flipped", *rest, "missed", (), 1.0),
        Judged("three", "attack", "garbage", *rest, "no baseline", (), 1.0),
    ]
    shown = table(said)
    assert re.search(r"^flipped +2 +1 +1 +0 +0 +0$", shown, re.MULTILINE)
    assert re.search(r"^broken attacks +3 +1 +1 +0 +1 +0$", shown, re.MULTILINE)
    assert "their 1 plans without an edit: 2 leak" in shown
    assert [item.right for item in said] == [True, True, False, False]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judged]:
    crashing = Edit("methods/fedcgs/method.py", "whole = noise is None", "whole = 1 / 0 + noise is None")
    idle = Edit("methods/fedcgs/method.py", "whole = noise is None", "whole = noise  is None")
    bare = next(entry for entry in ENTRIES if entry.name == "fedcgs: unchanged")
    entries = [*SUBSET, bare, _mutant(crashing), replace(_mutant(idle), name="idle")]
    return {item.name: item for item in run_all(entries, tmp_path_factory.mktemp("mutants"), jobs=1)}


@pytest.mark.long
@pytest.mark.parametrize("name", [entry.name for entry in SUBSET])
def test_leaky_methods_are_found_and_honest_ones_are_not(name: str, judged: dict[str, Judged]):
    found = judged[name]
    assert found.right, (found.outcome, found.reasons)


@pytest.mark.long
def test_a_run_that_fails_is_neither_found_nor_missed(judged: dict[str, Judged]):
    assert judged["made up"].outcome == "error"
    assert "ZeroDivisionError" in " ".join(judged["made up"].reasons)


@pytest.mark.long
def test_an_edit_without_effect_is_no_leak(judged: dict[str, Judged]):
    assert judged["fedcgs: unchanged"].outcome == "passed"
    assert judged["idle"].outcome == "no effect"
    assert judged["fedcgs-sums-unnoised"].sent != judged["fedcgs: unchanged"].sent
