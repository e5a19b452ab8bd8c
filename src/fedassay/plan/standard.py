"""Meaning of `attacks: standard` and `audits: standard`: everything installed that can be run on the plan.

Whether an attack applies to a method's messages is known only in the run: then it says so, and a cell's coverage
holds the conclusive ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedassay.contracts.facts import AttackNeed
from fedassay.contracts.registry import attack_facts, every_audit
from fedassay.plan.schema import STANDARD, Plan
from fedassay.support.errors import PlanError
from fedassay.support.registry import entries

Entries = Sequence[Mapping[str, Mapping[str, Any]]]


def attack_entries(plan: Plan, where: str) -> Entries:
    """The plan's attacks; for `standard` all with needs that the plan meets, those that others build on first.

    Raises:
        PlanError: `standard` stands elsewhere than first.
    """
    if not _asked(plan.attacks, where):
        return plan.attacks
    found = []
    for name in entries("attack"):
        try:
            facts = attack_facts(name)
        except PlanError:
            continue  # another package's, and broken: that is said where it is asked for
        if all(meets(need, plan) for need in facts.needs):
            found.append((bool(facts.takes), bool(facts.needs), name))
    return _overridden([name for _, _, name in sorted(found)], plan.attacks)


def audit_entries(plan: Plan, attacks: Entries, where: str) -> Entries:
    """The plan's audits; for `standard` every one that judges nothing, or what an attack of the plan gives.

    Raises:
        PlanError: `standard` stands elsewhere than first.
    """
    if not _asked(plan.audits, where):
        return plan.audits
    known = set(entries("attack"))
    given = [attack_facts(name) for entry in attacks for name in entry if name in known]
    names = [
        name
        for name, facts in every_audit().items()
        if not facts.judges or any(facts.judge(attack) for attack in given)
    ]
    return _overridden(names, plan.audits)


def _asked(given: Entries, where: str) -> bool:
    """Whether a list begins with `standard`."""
    places = [number for number, entry in enumerate(given) if STANDARD in entry]
    if not places:
        return False
    if places != [0] or given[0][STANDARD]:
        raise PlanError(f"{where}.{places[-1]}: {STANDARD} takes no parameters and stands first in its list, once")
    return True


def meets(need: AttackNeed, plan: Plan) -> bool:
    """Whether a plan has what an attack needs; what only a run can tell is left to the run."""
    if need == "attacker_records":
        return plan.data.split.attacker > 0 or plan.data.attacker_from is not None
    if need == "malicious_server":
        return plan.threat.server == "malicious"
    if need == "attributes":
        return bool(plan.data.attributes)
    return need != "backbone_gradients" or (plan.threat.backbone != "black_box" and plan.data.features is None)


def _overridden(names: Sequence[str], given: Entries) -> Entries:
    """Entries with defaults; the plan's own entry replaces a default of the same name."""
    own = given[1:]
    named = {name for entry in own for name in entry}
    return (*({name: {}} for name in names if name not in named), *own)
