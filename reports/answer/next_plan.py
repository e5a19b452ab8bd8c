"""The plan of a run with the change that decides most."""

from __future__ import annotations

from pathlib import Path

from fedassay.plan.changes import changed_plan
from fedassay.records.record import load_record
from fedassay.reports.answer.answer import answer
from fedassay.reports.document.plan_notes import plan_of, plan_yaml
from fedassay.reports.gate.policy import Policy
from fedassay.support.errors import PlanError


def next_plan(run: Path, policy: Policy | None, method: str | None = None, epsilon: float | None = None) -> str:
    """The plan of a run with the changes that the answer advises, or else with those that decide most, as YAML.

    Raises:
        PlanError: Nothing is known to change, there is no such release, or the run is of captured messages.
    """
    record = load_record(run)
    if "transcript" in plan_of(record):
        raise PlanError(f"{run}: it audits captured messages, which have no plan; allowed: the run of a plan")
    found = answer(record, policy, method, epsilon)
    advised = [
        (found.next.what, found.next.changes),
        *((each.what, each.changes) for each in found.decision.steps),
    ]
    what, changes = next((each for each in advised if each[1]), ("", ()))
    if not changes:
        raise PlanError(f"{run}: no change of its plan is known to decide more under the policy {found.policy}")
    changed = record.model_copy(update={"plan": changed_plan(record.plan, changes)})
    return f"# {what[:1].upper()}{what[1:].rstrip('.')}.\n{plan_yaml(changed)}"
