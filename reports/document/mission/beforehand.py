"""The mission's table before a run: which entries will be empty, and why, in the words of the table itself.

What a method sends it declares (`MethodFacts.sends`); of one that declares nothing it is known when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import every_audit, judges_the_claim
from fedassay.plan.schema import Cell, Scenario
from fedassay.plan.wiring import judged_by
from fedassay.reports.document.audits import title_of
from fedassay.reports.document.mission.lines import copies_audit, image_audits, members_audit
from fedassay.reports.document.mission.reasons import NO_CLAIM, NOT_RUN, OWN_FEATURES, unread
from fedassay.reports.document.mission.shown import SAMPLES
from fedassay.reports.words.numbers import short

MEASURED = "measured"
UNKNOWN = "seen when run"
ASKED = "asked"


@dataclass(frozen=True)
class Beforehand:
    """A row: a method, its epsilon, and for every column whether it will be measured, or why not in two words."""

    method: str
    epsilon: str
    entries: tuple[str, ...]


def columns() -> tuple[str, ...]:
    """The headings of the entries."""
    return (*map(title_of, image_audits()), "Copies", "Members", "Claim")


def beforehand(scenario: Scenario) -> tuple[Beforehand, ...]:
    """The rows of a plan; none where no audit of it is about images."""
    audits = {audit.name for audit in scenario.audits}
    if not audits & set(image_audits()):
        return ()
    rows: dict[tuple[str, str], Beforehand] = {}
    for cell in scenario.cells:
        name, epsilon = cell.method.label, short(cell.privacy.epsilon)
        rows.setdefault((name, epsilon), Beforehand(name, epsilon, tuple(_entries(scenario, cell))))
    return tuple(rows.values())


def _entries(scenario: Scenario, cell: Cell) -> Iterator[str]:
    for audit in (*image_audits(), copies_audit(), members_audit()):
        yield _entry(scenario, cell, audit)
    if not cell.privacy.private:
        yield NO_CLAIM
    else:
        yield ASKED if any(judges_the_claim(audit.name) for audit in scenario.audits) else NOT_RUN


def _entry(scenario: Scenario, cell: Cell, audit: str) -> str:
    chosen = next((each for each in scenario.audits if each.name == audit), None)
    facts = every_audit().get(audit)
    if chosen is None or facts is None:
        return NOT_RUN
    method = cell.method.build.facts
    if not facts.judges:
        return _by_itself(facts, method.sends)
    attacks = judged_by(chosen, scenario.attacks)
    if not method.sends:
        return UNKNOWN
    applying = [attack for attack in attacks if attack.build.facts.applies(method.sends)]
    if not applying:
        samples = "generator" in method.sends and any(each.name == copies_audit() for each in scenario.audits)
        first = audit == image_audits()[0]
        return SAMPLES if samples and first else unread([attack.name for attack in attacks], facts)
    # Images are made from the backbone's features; what is noised may be of networks that everybody can train.
    if method.own_features and audit in image_audits():
        return UNKNOWN if cell.privacy.private else OWN_FEATURES
    return MEASURED


def _by_itself(facts: AuditFacts, sends: tuple[str, ...]) -> str:
    """An audit that attacks by itself: one of generators needs one."""
    if "generator" not in facts.needs or "generator" in sends:
        return MEASURED
    return unread([], facts) if sends else UNKNOWN
