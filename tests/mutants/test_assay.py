"""The page on the assay itself is made by its script, and false alarms are counted as they are defined."""

from __future__ import annotations

import json
import math
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from assay import (
    FAULTS,
    HEAD,
    LIMITS,
    NOTICED,
    ROOMS,
    SENSITIVITY,
    SPECIFICITY,
    UNMEASURED,
    faults,
    noticed,
    page,
    situations,
)
from broken import Said
from specificity import still_conclusive, summary

PAGE = Path(__file__).resolve().parents[2] / "docs" / "assay.md"


def _row(kind: str, outcome: str, fault: str = "less noise", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "outcome": outcome, "fault": fault, "findings": [], **more}


def test_the_page_has_the_form_that_its_script_gives() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for part in (*HEAD, situations(), *SENSITIVITY, *FAULTS, *NOTICED, *SPECIFICITY, *LIMITS):
        assert part in text
    bare = page([], None, "")
    heads = [
        line for line in bare.splitlines() if line.startswith(("#", "| what", "| which", "| folder", "| audit"))
    ]
    assert [
        line for line in text.splitlines() if line.startswith(("#", "| what", "| which", "| folder", "| audit"))
    ] == heads


def test_what_was_not_measured_is_said() -> None:
    assert page([], None, "").count(UNMEASURED) > 10


def test_the_page_counts_by_fault() -> None:
    rows = [_row("leaky", "found"), _row("leaky", "wrong reason"), _row("attack", "found", "flipped")]
    limits = [
        ("membership", "share", "record", "copied", 0.1),
        ("membership", "share", "client", "copied", 0.9),
        ("membership", "share", "training_record", "copied", 0.2),
        ("membership", "epsilon", "", "", 2.0),
    ]
    rows += [_row("honest", "flagged"), _row("attack", "passed", "unchanged")]
    rows += [_row("attack", "found", f"rare {number}") for number in range(8)]
    made = page(rows, {"audits": {}, "alarms": [], "limits": limits, "runs": ["a 1"]}, "numpy 1")
    assert "| methods that leak | less noise | 2 | 1 | 1 of 2 (at most 97.5 %) | 0 |" in made
    assert "| **broken attacks** | all | 9 | 9 | 0 of 9 (at most 28.3 %) | 0 |" in made
    assert "Kinds of faults: 1 of methods that leak, 9 of broken attacks." in made
    assert "| honest variations of methods | 1 | 0 | 1 of 1 (at most 100 %) | 0 of 1 (0 %) |" in made
    assert "| membership | share | records | copied | 1 | 0.1 | 0.1 | 0.1 |" in made
    assert "| membership | share | clients | copied | 1 | 0.9 | 0.9 | 0.9 |" in made
    assert "| membership | share | training records | copied | 1 | 0.2 | 0.2 | 0.2 |" in made
    assert "| membership | epsilon | a run | not said | 1 | 2 | 2 | 2 |" in made


def test_the_figures_are_of_a_revision_of_this_repository() -> None:
    """A page whose figures nobody can measure again says nothing of the code beside it."""
    found = re.search(r"^revision ([0-9a-f]{12}), ", PAGE.read_text(encoding="utf-8"), re.M)
    assert found is not None
    git = ["git", "-C", str(PAGE.parents[1])]
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, check=False)
    if shallow.stdout.strip() != b"false":
        pytest.skip("the whole history is not here")
    assert subprocess.run([*git, "merge-base", "--is-ancestor", found[1], "HEAD"], check=False).returncode == 0


def _record(verdict: str, accounted: Any, exact: bool, **finding: Any) -> dict[str, Any]:
    held = {"audit": "message", "attack": None, "source": None, "selection": None, "reason": "", "controls": {}}
    cell = {"label": "a", "epsilon": 1.0, "delta": 1e-5, "seed": 0, "privacy": {"accounted": accounted}}
    rows = [{"kind": "class_counts", "exact": exact}]
    found = {**held, "verdict": verdict, **finding}
    return {"plan": {"name": "p", "seeds": [0]}, "cells": [{**cell, "ledger": rows, "findings": [found]}]}


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (_record("no_leak_found", 1.0, False), "clear"),
        (_record("inconclusive", 1.0, False), "undecided"),
        (_record("not_run", 1.0, False, obstacle={"kind": "nothing_to_read"}), "idle"),
        (_record("not_run", 1.0, False, obstacle={"kind": "not_possible"}), "undecided"),
        (_record("inconclusive", 1.0, False, obstacle={"kind": "nothing_to_read"}), "undecided"),
        (_record("leak", 1.0, False), "alarms"),
        (_record("unsound", 1.0, False, audit="dp_claim"), "alarms"),
        (_record("unsupported", 1.0, False, audit="dp_claim"), "alarms"),
        (_record("leak", "inf", True), "aside"),
        (_record("unsupported", "inf", True, audit="dp_claim"), "aside"),
        (_record("leak", 1.0, True, attack="label_distribution"), "aside"),
        (_record("leak", 1.0, True, attack="membership"), "alarms"),
        (_record("leak", 1.0, False, attack="label_distribution"), "alarms"),
    ],
)
def test_what_is_a_false_alarm(record: dict[str, Any], kind: str) -> None:
    total = summary([record])["total"]
    assert total.pop("findings") == 1
    assert {name for name, count in total.items() if count} == {kind}


def test_what_does_not_apply_is_neither_judged_nor_unjudged() -> None:
    counts = {"findings": 10, "alarms": 0, "undecided": 3, "idle": 2, "clear": 5, "aside": 0}
    alarm = {"plan": "specificity-digits", "cell": "fedcgs | 1.0 | 1e-05 | 3", "reason": "told"}
    sweep = {"audits": {"message": counts}, "alarms": [alarm], "limits": [], "runs": ["digits 3"]}
    made = page([], sweep, "numpy 1")
    assert "| digits | fedcgs, 1.0, 1e-05, 3 | told |" in made
    assert "| findings of message | 10 | 2 | 0 of 5 (at most 45.1 %) | 3 of 8 (38 %) |" in made
    assert "Sweep of honest methods (data and seed of each run): digits 3." in made


def test_only_the_sweep_is_measured_again() -> None:
    """All other figures stay with the revision that they are of, however often that is done."""
    rows = [_row("leaky", "found"), _row("honest", "flagged"), _row("attack", "passed", "unchanged")]
    first = page(rows, None, "revision 1", [_drawn("leaks", "fedcgs", 1, outcome="found", verdict="unsound")])
    kept = first
    for number in (2, 3):
        counts = {"findings": number, "alarms": 0, "undecided": 0, "idle": 0, "clear": number, "aside": 0}
        sweep = {
            "audits": {"message": counts},
            "alarms": [],
            "limits": [("message", "share", "client", "", number)],
            "runs": ["a 1"],
        }
        kept = page([], sweep, f"revision {number}", kept=kept)
    assert "| findings of message | 3 | 0 | 0 of 3" in kept
    assert "| message | share | clients | not said | 1 | 3 | 3 | 3 |" in kept
    assert "All but the sweep of honest methods: revision 1\n" in kept
    assert "revision 2" not in kept
    for line in first.splitlines():
        if line.startswith("|") and UNMEASURED not in line:
            assert line in kept


def test_all_but_the_faults_by_a_generator_are_measured_again() -> None:
    drawn = [_drawn("leaks", "fedcgs", 1, outcome="found", verdict="unsound")]
    first = page([_row("leaky", "missed")], None, "revision 1\n\nGenerated faults: revision 0.", drawn)
    sweep = {"audits": {}, "alarms": [], "limits": [], "runs": ["a 1"]}
    made = page([_row("leaky", "found")], sweep, "revision 2", kept=first)
    assert "| **methods that leak** | all | 1 | 1 | 0 of 1 (at most 95 %) | 0 |" in made
    for line in faults(drawn):
        assert line in made
    assert "revision 2" in made
    assert "revision 1" not in made
    assert made.count("Generated faults: revision 0.") == 1


def test_how_much_stays_conclusive() -> None:
    old = {"cell": "c", "audit": "message", "attack": "a", "source": "raw", "selection": "all"}
    now = [Said("c", "message", "a", "raw", "all", "inconclusive", "too few")]
    other = {**old, "source": "means"}
    found = still_conclusive([old, other], [*now, Said("c", "message", "a", "means", "all", "leak", "r")])
    assert (found["formerly"], found["still"], found["share"]) == (2, 1, 0.5)
    assert found["lost"] == [{**old, "reason": "too few"}]
    assert math.isnan(still_conclusive([], now)["share"])
    assert json.dumps(found)


def _drawn(status: str, case: str, number: int, **more: Any) -> dict[str, Any]:
    edit = {"file": "a.py", "old": str(number), "new": "x"}
    return {"name": f"fault {number}", "operator": "cast", "case": case, "status": status, "edit": edit, **more}


def test_generated_faults_are_counted_once_and_survivors_are_named() -> None:
    found = {"outcome": "found", "verdict": "unsound"}
    rows = [
        _drawn("leaks", "fedcgs", 1, **found),
        _drawn("leaks", "fedcgs", 1, **found),
        _drawn("crash", "fedcgs", 2),
    ]
    rows += [_drawn("leaks", "fedcgs", 3, outcome="missed", verdict="sound"), _drawn("equal", "gram", 4)]
    rows += [_drawn("crippled", "gram", 5, outcome="found", verdict="not_run", first="missed")]
    made = "\n".join(faults(rows))
    assert "| **methods that leak** | all | 3 | 1 | 0 | 0 | 2 | 1 `unsound` | 1 of 2 (at most 97.5 %) |" in made
    assert "| crippled attacks | cast | 2 | 0 | 1 | 0 | 1 | 1 `not_run` | 0 of 1 (at most 95 %) |" in made
    assert "found since" in made
    assert "| `fault 5` | not_run |" in made
    assert "| `fault 3` | sound | not argued |" in made


def test_shares_that_tests_notice_leave_out_equivalents_by_name() -> None:
    held = tomllib.loads(ROOMS.read_text(encoding="utf-8"))
    made = "\n".join(noticed())
    for room, row in held.items():
        judged = row["drawn"] - row["unclear"] - len(row["equivalent"])
        assert row["before"] <= row["after"] <= judged
        assert f"| `{room}/` | all | {row['drawn']} | {len(row['equivalent'])} |" in made
        assert all(row["equivalent"].values())
        if "last" in row:
            last = row["last"]
            fit = last["drawn"] - last["equivalent"] - last["unclear"]
            assert f"{last['noticed']} of {fit} (" in made
    for row in held.values():
        assert row["after"] >= 0.9 * (row["drawn"] - row["unclear"] - len(row["equivalent"]))
