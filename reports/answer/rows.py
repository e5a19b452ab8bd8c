"""One row a method, at the epsilon that is best under the policy: what was found, is claimed and is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedassay.reports.decision.decision import Option, points
from fedassay.reports.decision.words import standing_in_words
from fedassay.reports.gate.judgement import Judgement, State
from fedassay.reports.gate.usefulness import majority
from fedassay.reports.words.claims import (
    ClaimFault,
    above_claim,
    claims,
    fault_clause,
    fault_of,
    ledger_stands,
    refuted,
)
from fedassay.reports.words.groups import Group, over_seeds
from fedassay.reports.words.harm_words import brief_words, harm_clause
from fedassay.reports.words.harms import Leak, leaks
from fedassay.reports.words.metrics import title
from fedassay.reports.words.numbers import DASH, beside, interval, short, significant, size
from fedassay.reports.words.sentences import NO_ATTACK, UNCLEAR
from fedassay.reports.words.summary import attacks_on, silence, silent
from fedassay.reports.words.verdicts import Tone
from fedassay.support.epsilon import Epsilon, largest

Word = Literal["yes", "no", "not yet"]

WORDS: dict[State, Word] = {"pass": "yes", "broken": "no", "undecided": "not yet"}

MARKS: dict[Word, tuple[str, Tone, str]] = {
    "yes": ("✔", "good", "check"),
    "no": ("✖", "bad", "octagon"),
    "not yet": ("?", "unsure", "question"),
}
"""Display of each answer: a character, a colour, an icon."""

DOES_NOT_HOLD = "does not hold"
"""Entry in place of the accounted epsilon where noise, sensitivity or the rest is not as declared."""

_FAULTS = {
    "noise": "claim refuted: too little noise",
    "sensitivity": "claim refuted: noise too small",
    "rest": "claim refuted: not all is noised",
    "exact": "claim refuted: sent without noise",
    "observed": "claim refuted by an attack",
    "accounted": "claim refuted: ε adds up to more",
    "unstated": "claim refuted",
}


@dataclass(frozen=True)
class AnswerRow:
    """A method entry at one epsilon, in words.

    Attributes:
        answer: Of the policy.
        name: The method entry.
        asked: Of it; infinite where nothing is noised.
        finding: The worst finding as a clause.
        brief: The same in at most five words.
        of: Kind of its epsilons: the unit and the relation.
        claimed: Claimed epsilon.
        accounted: Accounted epsilon; `does not hold` where the ledger does not.
        observed: Lower bound that an attack shows.
        by_chance: Whether that is above a claim that holds: of bounds at 95 %, one in 20 is, where noise is tight.
        accuracy: With its interval.
        measured: The accuracy as a number; None where it was not measured.
        majority: Accuracy of always naming the largest class.
        cost: Accuracy that privacy takes, in points.
        sends: Bytes up.
        hides: Records that the guarantee protects; empty where it does not hold or nothing is claimed.
        deployment: Whether the policy is one that decides a deployment.
    """

    answer: Word
    name: str
    asked: Epsilon
    finding: str
    brief: str
    of: str
    claimed: str
    accounted: str
    observed: str
    by_chance: bool
    accuracy: str
    measured: float | None
    majority: str
    cost: str
    sends: str
    hides: str
    deployment: bool = True

    @property
    def shown(self) -> str:
        """The answer as a table prints it: a policy that allows no deployment says no yes."""
        return "passes" if self.answer == "yes" and not self.deployment else self.answer

    @property
    def shown_epsilon(self) -> str:
        """Its epsilon, as a table prints it."""
        return short(self.asked.bare) if self.asked.finite else "no noise"

    @property
    def mark(self) -> str:
        """A character for the answer."""
        return MARKS[self.answer][0]

    @property
    def tone(self) -> Tone:
        """The colour of the answer."""
        return MARKS[self.answer][1]

    @property
    def icon(self) -> str:
        """The icon of the answer."""
        return MARKS[self.answer][2]


def row_of(option: Option, deployment: bool = True) -> AnswerRow:
    """The row of a method entry at one epsilon, under a policy that decides a deployment or another."""
    cells, group = option.group.cells, option.group
    finding, brief = _worst(option)
    fallen = any(refuted(cell) for cell in cells)
    holds = any(claims(cell) for cell in cells) and not fallen
    largest = over_seeds(cells, lambda cell: majority(cell).value, "not on record")
    return AnswerRow(
        answer=word_of(option),
        name=group.name,
        asked=group.asked,
        finding=finding,
        brief=brief,
        of=group.asked.kind.words,
        claimed=_largest(group, [cell.claimed for cell in cells]) if holds or fallen else "none",
        accounted=_largest(group, [cell.accounted for cell in cells])
        if all(map(ledger_stands, cells))
        else DOES_NOT_HOLD,
        observed=_largest(group, [cell.observed for cell in cells]),
        by_chance=holds and any(above_claim(cell) for cell in cells),
        accuracy=DASH
        if option.accuracy.value is None
        else f"{significant(option.accuracy.value)} {interval(option.accuracy, count=False)}".strip(),
        measured=option.accuracy.value,
        majority=significant(largest.value),
        cost=points(option.cost) if group.asked.finite else "",
        sends=DASH if option.bytes_up is None else size(option.bytes_up),
        hides=standing_in_words(*option.standing) if holds else "",
        deployment=deployment,
    )


def word_of(option: Option) -> Word:
    """The answer to one release; one that the policy does not judge is no where it leaks, and open elsewhere."""
    if option.state is not None:
        return WORDS[option.state]
    return "no" if worst_leak(option) is not None else "not yet"


def worst_leak(option: Option) -> Leak | None:
    """The worst harm of a release, over its seeds."""
    return next(iter(leaks(option.group.cells)), None)


def worst_fault(option: Option) -> ClaimFault | None:
    """Return the fault of its claim, over its seeds; None where it stands."""
    faults = [fault for cell in option.group.cells if (fault := fault_of(cell)) is not None]
    return min(faults, key=lambda fault: not fault.refuted, default=None)


def _worst(option: Option) -> tuple[str, str]:
    """The worst finding of a release, as a clause and in few words."""
    leak, fault = worst_leak(option), worst_fault(option)
    if leak is not None:
        return harm_clause(leak), brief_words(leak)
    if fault is not None:
        return fault_clause(fault), _FAULTS[fault.kind] if fault.refuted else "claim not supported"
    for judgement in decisive(option):
        return judgement.short, _in_few_words(judgement)
    words = next(silence(option.group), NO_ATTACK)
    tried = {finding.verdict for cell in option.group.cells for finding in attacks_on(cell)}
    if "inconclusive" in tried and words.startswith(UNCLEAR):
        return words, "not decided"
    return words, "no leak found" if silent(option.group) else NO_ATTACK


def decisive(option: Option) -> list[Judgement]:
    """Judgements that break the policy or leave it open, those broken for privacy first; none where it passes."""
    if option.state in (None, "pass"):
        return []
    found = [each for each in option.judgements if each.state == option.state]
    first = ("privacy", "coverage", "use") if option.state == "broken" else ("coverage", "privacy", "use")
    return sorted(found, key=lambda each: first.index("coverage" if each.about == "silence" else each.about))


def _in_few_words(judgement: Judgement) -> str:
    if judgement.about == "use":
        return "too little accuracy" if judgement.state == "broken" else "accuracy not certain"
    if judgement.about in ("coverage", "silence"):
        return judgement.short if len(judgement.short) <= 40 else "not all was tested"
    what = title(judgement.metric) if judgement.metric else "a privacy rule"
    return f"{what} {'breaks the limit' if judgement.state == 'broken' else 'not certain'}"


def _largest(group: Group, epsilons: Sequence[Epsilon | None]) -> str:
    """The largest over seeds; its kind stands with it where that is not the row's own."""
    found = largest(epsilons)
    return DASH if found is None else beside(found, group.asked)
