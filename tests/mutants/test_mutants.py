"""The catalogue of broken methods is whole and applies; a few entries are run. All of them: `make mutants`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from catalogue import SCOPES, Edit, Mutant, mutants, plans
from copies import PACKAGE, apply
from score import Judged, outcome_of, run_all, table, verdict_of

ENTRIES = mutants()
LEAKY = [entry for entry in ENTRIES if entry.kind == "leaky"]
HONEST = [entry for entry in ENTRIES if entry.kind == "honest" and entry.edits]
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
        assert entry.plan in plans(), entry.name
        assert entry.scope in SCOPES, entry.name
        assert entry.what.endswith("."), entry.name
        if entry.kind == "leaky":
            assert entry.reason, entry.name
            assert not re.search(entry.reason, ""), entry.name


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.edits], ids=lambda entry: entry.name)
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


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judged]:
    crashing = Edit("methods/fedcgs/method.py", "whole = noise is None", "whole = 1 / 0 + noise is None")
    idle = Edit("methods/fedcgs/method.py", "whole = noise is None", "whole = noise  is None")
    bare = next(entry for entry in ENTRIES if entry.name == "fedcgs: unchanged")
    entries = [*SUBSET, bare, _mutant(crashing), replace(_mutant(idle), name="idle")]
    return {item.name: item for item in run_all(entries, tmp_path_factory.mktemp("mutants"), jobs=2)}


@pytest.mark.parametrize("name", [entry.name for entry in SUBSET])
def test_leaky_methods_are_found_and_honest_ones_are_not(name: str, judged: dict[str, Judged]):
    found = judged[name]
    assert found.right, (found.outcome, found.reasons)


def test_a_run_that_fails_is_neither_found_nor_missed(judged: dict[str, Judged]):
    assert judged["made up"].outcome == "error"
    assert "ZeroDivisionError" in " ".join(judged["made up"].reasons)


def test_an_edit_without_effect_is_no_leak(judged: dict[str, Judged]):
    assert judged["fedcgs: unchanged"].outcome == "passed"
    assert judged["idle"].outcome == "no effect"
    assert judged["fedcgs-sums-unnoised"].sent != judged["fedcgs: unchanged"].sent
