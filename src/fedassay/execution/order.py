"""In which order cells and their audits are worked on: claims and algebra before what trains or searches.

What decides early is said early, unless the plan asks for its own order (`resources.order`). The order changes
nothing else: every stream of random numbers has a name, every attack knows what the plan's earlier attacks
recovered, and findings and cells stand in the plan's order whenever they came.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedassay.contracts.attack import Attack
from fedassay.contracts.registry import judges_the_claim
from fedassay.execution.cell_job import AttackAuditEntry, RunAuditEntry
from fedassay.plan.estimate import estimate
from fedassay.plan.next_run import NextRun, Part
from fedassay.plan.schema import Cell, Component, Scenario
from fedassay.records.record import Finding, Verdict
from fedassay.reports.words.harm_words import harm_words
from fedassay.reports.words.harms import harm_of, rank

_DECISIVE: dict[Verdict, str] = {
    "unsound": "claim refuted",
    "unsupported": "claim unsupported",
    "not_refuted": "claim not refuted",
    "sound": "claim holds",
}
"""Verdicts that settle a claim before the cell is done, as a line names them."""


@dataclass(frozen=True)
class Step:
    """One audit, on one attack where it judges attacks.

    Attributes:
        place: Place of its findings among those of the cell.
        audit: The audit.
        attack: The attack that it judges; None where it needs none, or where the plan has none that it judges.
    """

    place: int
    audit: RunAuditEntry | AttackAuditEntry
    attack: Component[Attack] | None


def steps_of(
    audits: Sequence[RunAuditEntry | AttackAuditEntry], attacks: Sequence[Component[Attack]]
) -> list[Step]:
    """Every step of a cell, in the plan's order."""
    pairs: list[tuple[RunAuditEntry | AttackAuditEntry, Component[Attack] | None]] = []
    for audit in audits:
        facts = audit.facts if isinstance(audit, AttackAuditEntry) else None
        own = [attack for attack in attacks if facts is not None and facts.judge(attack.build.facts)]
        pairs += [(audit, attack) for attack in own] or [(audit, None)]
    return [Step(place, audit, attack) for place, (audit, attack) in enumerate(pairs)]


def decisive_first(steps: Sequence[Step], another: NextRun | None) -> list[Step]:
    """The steps in the order of work: claims and attacks on messages alone, then the rest, cheap ones first.

    Args:
        steps: In the plan's order; equal steps keep it.
        another: Estimates the time of a step; None: unknown, and kinds alone decide.
    """
    if another is not None and another.scenario.plan.resources.order == "plan":
        return list(steps)

    def decides(step: Step) -> tuple[bool, float]:
        attack = step.attack
        early = judges_the_claim(step.audit.name) if attack is None else not attack.build.facts.needs
        parts = [Part("audit", step.audit.name)]
        if attack is not None:
            parts.insert(0, Part("attack", attack.name))
        seconds = None if another is None else another.seconds(parts)
        return not early, math.inf if seconds is None else seconds[0]

    return sorted(steps, key=decides)


def soonest_first(scenario: Scenario, device: str) -> list[Cell]:
    """The cells of a run in the order of work: of each seed those with a claim that is judged, then the rest.

    A claim is always decided, silence or a leak may take every attack; of either kind the methods that are
    estimated to be fastest there come first. Methods take turns: cells of one share what only their noise tells
    apart, and two workers on them at once would both compute it. Seeds stay together, since their cells share
    records and features.
    """
    if scenario.plan.resources.order == "plan":
        return list(scenario.cells)
    judged = any(judges_the_claim(audit.name) for audit in scenario.audits)
    seconds = estimate(scenario, device).cells

    def kind(cell: Cell) -> tuple[int, bool]:
        return cell.seed_index, not (judged and cell.privacy.private)

    def decides(cell: Cell) -> float:
        own = seconds[cell.key]
        return math.inf if own is None else own

    turns = Counter[tuple[int, bool, str]]()
    ordered = []
    for cell in sorted(scenario.cells, key=decides):
        ordered.append((*kind(cell), turns[*kind(cell), cell.method.label], cell))
        turns[*kind(cell), cell.method.label] += 1
    return [cell for *_, cell in sorted(ordered, key=lambda each: each[:3])]


class Teller:
    """Says the first findings of a cell that settle something, once each, while the rest is worked on."""

    def __init__(self, label: str, tell: Callable[[str], None]) -> None:
        """For the cell of a label; `tell` takes a line."""
        self._label, self._tell = label, tell
        self._said: set[str] = set()

    def hear(self, findings: Sequence[Finding]) -> None:
        """Take the findings of a step."""
        for finding in findings:
            words = _DECISIVE.get(finding.verdict)
            if words is not None:
                self._once(finding.verdict, f": {words}")
        shown = [(harm, each) for each in findings if each.verdict == "leak" and (harm := harm_of(each))]
        if shown:
            harm, finding = min(shown, key=lambda pair: rank(pair[0]))
            self._once(finding.audit, f" leaks: {harm_words(harm, finding)}")

    def _once(self, what: str, words: str) -> None:
        """Say something of a claim, or of what an audit found; several audits may judge one claim."""
        if what not in self._said:
            self._said.add(what)
            self._tell(f"{self._label}{words}")
