"""Pairing of audits with attacks: both name kinds of results, and neither names the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fedassay.contracts.facts import AttackFacts, AuditFacts, in_words
from fedassay.contracts.registry import attack_facts, every_audit
from fedassay.plan.schema import Component, Scenario
from fedassay.support.errors import PlanError
from fedassay.support.registry import entries

if TYPE_CHECKING:
    from fedassay.contracts.attack import Attack
    from fedassay.contracts.audit import Audit


def judged_by(audit: Component[Audit], attacks: Iterable[Component[Attack]]) -> list[Component[Attack]]:
    """The attacks with results that an audit judges, in their order."""
    return [attack for attack in attacks if audit.build.facts.judge(attack.build.facts)]


def unread(attacks: Sequence[Component[Attack]], audits: Sequence[Component[Audit]]) -> Iterator[str]:
    """A warning for each attack that no audit judges and no later attack goes on from.

    It is no error: an attack may be looked at by itself, through its notes and what it leaves to the cache.
    """
    for position, attack in enumerate(attacks):
        facts = attack.build.facts
        later = attacks[position + 1 :]
        if any(audit.build.facts.judge(facts) for audit in audits):
            continue
        if any(set(other.build.facts.takes) & set(facts.gives) for other in later):
            continue
        judges = [name for name, judge in every_audit().items() if judge.judge(facts)]
        instead = f"add {in_words(judges)} to audits" if judges else "no installed audit judges these"
        yield (
            f"results of the attack {attack.label} ({in_words(facts.gives)}) are not read: no audit of the plan "
            f"judges it; {instead}"
        )


def attacks_for(facts: AuditFacts) -> list[str]:
    """Names of the installed attacks that an audit can judge."""
    return [name for name, attack in installed_attacks() if facts.judge(attack)]


def message_attacks() -> list[str]:
    """Names of the installed attacks that need nothing but messages, those that say most first."""
    found = sorted((-len(facts.gives), name) for name, facts in installed_attacks() if not facts.needs)
    return [name for _, name in found]


def gallery_attacks() -> list[str]:
    """Names of the installed attacks that a gallery of candidates is enough for."""
    return sorted(name for name, facts in installed_attacks() if facts.takes_gallery)


def installed_attacks() -> Iterator[tuple[str, AttackFacts]]:
    """Names and facts of the installed attacks, without broken ones of other packages."""
    for name in entries("attack"):
        try:
            facts = attack_facts(name)
        except PlanError:
            continue
        yield name, facts


def bounds_in(scenario: Scenario) -> int:
    """Number of one-sided tests in the whole run, for the correction of confidence levels."""
    per_cell = 0
    for audit in scenario.audits:
        # `tests_per_cell` is for one entry of each attack that the audit judges; it tests every entry.
        names = Counter(attack.name for attack in judged_by(audit, scenario.attacks))
        facts = audit.build.facts
        per_cell += facts.tests_per_cell * max(names.values(), default=1) + facts.more_tests(audit.params)
    return max(1, per_cell * len(scenario.cells))
