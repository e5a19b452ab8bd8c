"""What is missing is data from where it is known to the advice, and the advice, followed, changes the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedassay
from fedassay.contracts.sizes import Sizes
from fedassay.execution.apart import forget_runs
from fedassay.execution.coverage import would_decide
from fedassay.plan.changes import changed_plan
from fedassay.plan.next_run import NextRun
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Plan
from fedassay.records.facts import Change, Obstacle
from fedassay.records.record import Controls, Finding, NegativeControl, PositiveControl


def plan(control: float | None, **split: float) -> dict[str, Any]:
    shares = {"private": 0.1, "attacker": 0.2, "test": 0.2, "public": 0.05, **split}
    return {
        "name": "remedies",
        "seeds": [0],
        "data": {"name": "digits", "split": {**shares, **({} if control is None else {"control": control})}},
        "clients": {"count": 3, "partition": "iid"},
        "backbone": {"name": "pixels"},
        "privacy": {"epsilon": "inf", "delta": 1e-5},
        "methods": [{"fedncm": {}}],
        "attacks": [{"message_algebra": {}}],
        "audits": [{"message": {}}],
    }


def next_run(control: float | None, **split: float) -> NextRun:
    scenario = resolve(Plan.model_validate(plan(control, **split)), Path.cwd(), "plan")
    sizes = Sizes(
        private=180, attacker=360, public=90, test=360, control=int(1800 * (control or 0)), clients=3, classes=10,
        image=(8, 8, 1), width=64, backbone=0.0,
    )  # fmt: skip
    return NextRun(scenario, scenario.cells[0], sizes)


def missing(role: str, held: int, needed: int) -> Finding:
    """As where no end-to-end control could be made, and that of the attack alone was caught."""
    return Finding(
        audit="membership",
        attack="membership",
        verdict="inconclusive",
        reason="the words say nothing of it",
        controls=Controls(
            positive=PositiveControl(release="known", caught=True),
            negative=NegativeControl(release="nobody's", flagged=False),
        ),
        obstacle=Obstacle(kind="records_missing", role=role, held=held, needed=needed),
    )


def test_the_advice_is_what_is_missing_and_not_what_controls_suggest() -> None:
    words = would_decide(missing("control", 0, 60), next_run(0.0))
    assert words.startswith("60 more records of the control role (data.split.control")
    assert "private" not in words


@pytest.mark.parametrize(("held", "needed"), [(0, 60), (20, 60), (0, 2)])
def test_the_change_gives_as_many_records_as_are_needed(held: int, needed: int) -> None:
    run = next_run(held / 1800)
    remedy = run.remedy(missing("control", held, needed).obstacle)
    assert remedy is not None
    (change,) = remedy.changes
    assert change.key == "data.split.control"
    assert isinstance(change.after, float)
    assert needed <= 1800 * change.after <= 1.3 * needed + 4


def test_shares_that_would_exceed_the_data_make_room() -> None:
    run = next_run(0.05, private=0.4, attacker=0.3, test=0.2)
    remedy = run.remedy(missing("control", 90, 180).obstacle)
    assert remedy is not None
    after = {change.key: change.after for change in remedy.changes}
    total = sum(float(share) for share in after.values())
    assert total <= 1.0
    assert set(after) == {f"data.split.{role}" for role in ("control", "private", "attacker", "test", "public")}


def test_nothing_is_proposed_where_nobody_knows_how_many() -> None:
    run = next_run(0.05)
    assert run.remedy(None) is None
    assert run.remedy(Obstacle(kind="control_missed")) is None
    assert run.remedy(Obstacle(kind="records_missing", role="clients", held=9, needed=9)) is None


def test_a_parameter_that_is_too_small_gets_the_value_that_would_do() -> None:
    run = next_run(0.05)
    finding = missing("control", 1, 2).model_copy(
        update={
            "attack": "gram_factorization",
            "obstacle": Obstacle(kind="too_large", held=256, needed=259, key="max_records"),
        }
    )
    remedy = run.remedy(finding.obstacle, finding.attack)
    assert remedy is not None
    assert remedy.changes == (Change(key="attacks.gram_factorization.max_records", before=256, after=259),)
    assert would_decide(finding, run) == "attacks: gram_factorization: max_records: 259, now 256"
    plan = {"attacks": ["membership", {"gram_factorization": {"restarts": 3}}]}
    entry = changed_plan(plan, remedy.changes)["attacks"][1]
    assert entry == {"gram_factorization": {"restarts": 3, "max_records": 259}}


def test_where_clients_are_missing_the_advice_is_more_of_them() -> None:
    run = next_run(0.05)
    remedy = run.remedy(missing("clients", 3, 9).obstacle)
    assert remedy is not None
    assert [(change.key, change.after) for change in remedy.changes] == [("clients.count", 9)]
    assert would_decide(missing("clients", 3, 9), run) == "6 more clients (clients.count, now 3)"
    assert would_decide(missing("clients", 3, 9)) == "6 more clients (clients.count)"


def _too_weak(attack: str) -> Finding:
    finding = missing("control", 0, 60)
    missed = PositiveControl(release="known", caught=False)
    controls = finding.controls.model_copy(update={"positive": missed})
    return finding.model_copy(
        update={"attack": attack, "controls": controls, "obstacle": Obstacle(kind="control_missed")}
    )


def test_a_stronger_form_is_advised_of_attacks_that_have_one() -> None:
    run, weak = next_run(0.05), _too_weak("membership")
    assert would_decide(weak).startswith("more records (")
    assert would_decide(weak, run).startswith("more records (")
    assert would_decide(_too_weak("feature_diffusion")).startswith("a stronger attack (a larger preset), or more")


@pytest.mark.long
def test_the_advice_followed_changes_the_state(tmp_path: Path) -> None:
    first = fedassay.run(plan(0.0), tmp_path / "first", progress=False)
    open_ = [f for f in first.record.cells[0].findings if f.obstacle and f.obstacle.kind == "records_missing"]
    assert open_
    assert all(finding.verdict == "inconclusive" and finding.remedy is not None for finding in open_)
    changes = [change for finding in open_ if finding.remedy for change in finding.remedy.changes]
    control = max(float(change.after) for change in changes if change.key == "data.split.control")
    second = fedassay.run(plan(control), tmp_path / "second", progress=False)
    verdicts = {(f.audit, f.source, f.selection): f.verdict for f in second.record.cells[0].findings}
    for finding in open_:
        assert verdicts[finding.audit, finding.source, finding.selection] != "inconclusive", finding.source


GENERATOR = {
    "fedcvae": {
        "local_epochs": 3,
        "hidden": 32,
        "latent": 4,
        "classifier": {"bodies": "mlp", "local_epochs": 1, "width": 8},
    }
}


@pytest.mark.long
@pytest.mark.parametrize("private", [0.006, 0.03])
def test_the_advice_on_a_private_generator_followed_makes_it_silent(private: float, tmp_path: Path) -> None:
    """No client's records can be halved, or so few would not show a generator that knows all of them by heart."""
    given = plan(0.05, private=private, public=0.0)
    given.update(seeds=[300], clients={"count": 2, "partition": "iid"}, methods=[GENERATOR], attacks=[])
    given.update(audits=["memorization"], privacy={"epsilon": 1.0, "delta": 1e-5})
    (open_,) = fedassay.run(given, tmp_path / "first", progress=False).record.cells[0].findings
    assert open_.verdict == "inconclusive"
    assert open_.obstacle is not None
    assert (open_.obstacle.kind, open_.obstacle.role) == ("records_missing", "private")
    assert open_.remedy is not None
    followed = changed_plan(given, open_.remedy.changes)
    forget_runs()  # Else the second run would be in a worker, whose start takes longer than both.
    (decided,) = fedassay.run(followed, tmp_path / "second", progress=False).record.cells[0].findings
    assert decided.verdict == "no_leak_found", decided.reason
    assert decided.limit is not None
    assert 0 < decided.limit.value < 1
