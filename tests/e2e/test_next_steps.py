"""Every step that a report offers as a change of the plan, applied, removes what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedassay
from fedassay.plan.changes import changed_plan
from fedassay.reports.answer.answer import answer
from fedassay.reports.decision.steps import Step

DATA = {"name": "digits", "limit": 400}
SPLIT = {"private": 0.3, "attacker": 0.3, "test": 0.2, "public": 0.05, "control": 0.1}


def plan(
    attacks: list[Any],
    audits: list[Any],
    epsilon: float | str = "inf",
    method: Any = "fedncm",
    **split: float,
) -> dict[str, Any]:
    return {
        "name": "next",
        "data": {**DATA, "split": {**SPLIT, **split}},
        "clients": {"count": 3, "partition": "iid"},
        "backbone": {"name": "pixels"},
        "privacy": {"epsilon": epsilon, "delta": 1e-3},
        "methods": [method],
        "attacks": attacks,
        "audits": audits,
    }


def _steps(run: fedassay.Run) -> list[Step]:
    return [step for step in answer(run.record).decision.steps if step.changes]


def _applied(run: fedassay.Run, folder: Path) -> int:
    """Apply each step by itself, and see that it is gone afterwards; how many there were."""
    steps = _steps(run)
    for number, step in enumerate(steps):
        after = fedassay.run(changed_plan(run.record.plan, step.changes), folder / str(number), progress=False)
        assert step.what not in [each.what for each in answer(after.record).decision.steps], step.what
        for change in step.changes:
            if change.key == "attacks":
                tried = {row.attack: row.status for cell in after.record.cells for row in cell.coverage}
                assert tried.get(str(change.after), "does not apply") != "not_run", step.what
    return len(steps)


@pytest.mark.long
def test_an_attack_that_the_plan_left_out_is_added_with_the_audit_that_judges_it(tmp_path: Path) -> None:
    first = fedassay.run(
        plan([{"label_distribution": {}}, {"membership": {"shadows": 4}}], ["message", "membership"]),
        tmp_path / "first",
        progress=False,
    )
    step = next(
        step for step in _steps(first) if any(change.after == "message_algebra" for change in step.changes)
    )
    changed = changed_plan(first.record.plan, step.changes)
    # What the plan says of other attacks stays.
    assert [next(iter(entry)) if isinstance(entry, dict) else entry for entry in changed["attacks"]] == [
        "label_distribution",
        "membership",
        "message_algebra",
    ]
    assert changed["attacks"][1]["membership"]["shadows"] == 4
    after = fedassay.run(changed, tmp_path / "after", progress=False)
    assert step.what not in [each.what for each in _steps(after)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "fewest"),
    [
        (plan(["message_algebra"], ["message"]), 5),
        (plan(["message_algebra"], ["message", "dp_claim"], 1.0), 6),
        (plan(["label_distribution", "message_algebra"], ["message"], private=0.5, attacker=0.2, control=0.0), 2),
        (plan(["message_algebra"], ["message"], 2.0, "fedcgs"), 3),
        (plan(["label_distribution"], ["message", "dp_claim"], 8.0, "fedcgs"), 3),
        (plan([{"membership": {"shadows": 4}}], ["membership"], "inf", "one_shot_ridge"), 2),
        (plan(["message_algebra"], ["message"], "inf", {"fedpft": {"components": 1}}), 3),
        (plan(["message_algebra"], ["dp_claim"], 3.0, {"fedpft": {"components": 1, "counts": "noised"}}), 3),
        (plan(["gram_factorization"], ["message"], "inf", "fed3r"), 2),
        (plan(["message_algebra"], ["message"], 1.0, {"fedlog": {"rounds": 1}}), 2),
    ],
    ids=[
        *("attacks", "epsilon", "records", "second moments", "weak claim", "membership"),
        *("mixture", "noised mixture", "factored", "own bodies"),
    ],
)
def test_every_step_applied_removes_what_it_says(made: dict[str, Any], fewest: int, tmp_path: Path) -> None:
    first = fedassay.run(made, tmp_path / "first", progress=False)
    assert _applied(first, tmp_path) >= fewest
