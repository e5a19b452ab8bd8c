"""May it be deployed? Yes, no or not yet, in at most three sentences, the worst harm first, and what to do next.

A pure function of a record and a policy. Console, page, Markdown, `check`, SARIF, evidence and Python print this
object and add nothing to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedassay.records.facts import HarmKind
from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.answer.captured import doubts, is_captured
from fedassay.reports.answer.epsilons import Sweep, sweeps
from fedassay.reports.answer.next_step import NextStep, next_step
from fedassay.reports.answer.rows import (
    MARKS,
    AnswerRow,
    Word,
    decisive,
    row_of,
    word_of,
    worst_fault,
    worst_leak,
)
from fedassay.reports.decision.decision import Decision, Option, decide
from fedassay.reports.decision.standard import standard_policy
from fedassay.reports.gate.deltas import RULE as DELTA
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.gate.judging import judge
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.claims import claim_clause, claims, fault_clause, refuted
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import Leak, leaks
from fedassay.reports.words.numbers import DASH, short, significant
from fedassay.reports.words.sentences import NO_ATTACK, listed, sentence, who
from fedassay.reports.words.summary import distinct, silence, silent, silent_in
from fedassay.reports.words.untested import failed_attacks, not_fully_tested, not_sought, not_tested

_MOST = 3
"""Sentences of an answer."""

_AT_RISK = (
    ("worst_person_told", "person"),
    ("worst_client_told", "client"),
    ("worst_record", "record"),
)
"""Metrics for the share of runs in which the unit most at risk is inferred, with the name of the unit."""


@dataclass(frozen=True)
class Answer:
    """The answer to a run, to a method at an epsilon, or to captured messages.

    Attributes:
        answer: Yes, no, or not yet.
        policy: Name of the policy.
        sentences: At most three, the worst harm first; and the declared kinds that the arrays contradict.
        leak: The worst harm of what was asked for; None where none was found.
        unsought: Harms that were not looked for; a yes says so in its second sentence.
        untested: Attacks that apply and were not conclusive; empty where all were.
        failed: Attacks that fail on it whatever its noise, and the evidence in their place; empty without any.
        missed: The leak that the weakest silent audit may have missed; empty where something leaks.
        accuracy: Against no privacy and against the largest class; empty where none was measured.
        at_risk: Rate at which the unit most at risk is inferred; empty where no audit measured it.
        hides: The protection by the guarantee; empty where none holds.
        bares: Information that an attack read all the same, since no claim on records hides it; empty where none
            is known.
        next: The next step.
        rows: One a method, at its best epsilon, or at the one asked for.
        sweeps: The choice of epsilon, for methods that were run at several.
        decision: The policy's decision on every release, rule by rule.
    """

    answer: Word
    policy: str
    sentences: tuple[str, ...]
    leak: Leak | None = field(repr=False)
    unsought: tuple[HarmKind, ...]
    untested: str
    failed: str
    missed: str
    accuracy: str
    at_risk: str
    hides: str
    bares: str
    next: NextStep
    rows: tuple[AnswerRow, ...] = field(repr=False)
    sweeps: tuple[Sweep, ...] = field(repr=False)
    decision: Decision = field(repr=False)

    @property
    def headline(self) -> str:
        """The first sentence."""
        return self.sentences[0]

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join(self.sentences)

    @property
    def beside(self) -> tuple[str, ...]:
        """Sentences below the answer: what is open, the accuracy, the risk, the protection; nothing twice."""
        said = self.text.lower()
        every = (
            self.untested,
            self.failed,
            self.missed,
            self.accuracy,
            self.at_risk,
            sentence(self.hides),
            self.bares,
        )
        return tuple(words for words in every if words and words.rstrip(".").lower() not in said)

    @property
    def kind(self) -> str:
        """The common kind of all its epsilons; empty where kinds differ, or nothing is noised."""
        kinds = {row.of for row in self.rows if row.asked.finite}
        return kinds.pop() if len(kinds) == 1 else ""

    @property
    def notes(self) -> str:
        """Notes below its table: the meaning of its epsilons, dashes, bounds above a claim that holds."""
        gaps = any(DASH in (row.observed, row.accounted, row.accuracy, row.sends) for row in self.rows)
        notes = (
            _explained(self.kind) if any(row.asked.finite for row in self.rows) else "",
            "–: not measured." if gaps else "",
            "An observed ε above a claim that holds is within chance."
            if any(r.by_chance for r in self.rows)
            else "",
        )
        return " ".join(filter(None, notes))

    @property
    def mark(self) -> str:
        """A character for the answer."""
        return MARKS[self.answer][0]

    def as_dict(self) -> dict[str, Any]:
        """The answer for JSON."""
        harm = None if self.leak is None else self.leak.harm.model_dump(mode="json")
        return {
            "answer": self.answer,
            "policy": self.policy,
            "sentences": list(self.sentences),
            "harm": harm,
            "unsought": list(self.unsought),
            "untested": self.untested,
            "failed": self.failed,
            "missed": self.missed,
            "accuracy": self.accuracy,
            "at_risk": self.at_risk,
            "hides": self.hides,
            "bares": self.bares,
            "next": {"what": self.next.what, "command": self.next.command, "takes": self.next.takes},
            "methods": [
                {
                    "answer": row.answer,
                    "method": row.name,
                    "epsilon": row.asked.bare if row.asked.finite else "inf",
                    "delta": row.asked.delta,
                    "adjacency": row.asked.adjacency,
                    "unit": row.asked.unit,
                    "finding": row.finding,
                    "claimed": row.claimed,
                    "accounted": row.accounted,
                    "observed": row.observed,
                    "accuracy": row.accuracy,
                    "majority": row.majority,
                }
                for row in self.rows
            ],
            "epsilons": [sweep.clause for sweep in self.sweeps],
        }


def answer(
    record: RunRecord,
    policy: Policy | None = None,
    method: str | None = None,
    epsilon: float | None = None,
    judgements: Sequence[Judgement] | None = None,
) -> Answer:
    """The answer to a run.

    Args:
        record: The run.
        policy: Policy that it is held to; None: the shipped one that fits.
        method: Only the entries of this label or registered name.
        epsilon: Only the releases at this epsilon.
        judgements: As for `decide`.

    Raises:
        PlanError: The run has no such release.
    """
    held = policy or standard_policy(record)
    every = tuple(judge(record, held) if judgements is None else judgements)
    decision = decide(record, held, method, epsilon, every)
    everywhere = decision if epsilon is None else decide(record, held, method, None, every)
    subject = _subject(decision)
    word = _word(decision, subject)
    cells = [cell for option in decision.everything for cell in option.group.cells]
    either = [] if subject is not None or word != "yes" else _passing(decision)
    about: list[Option] = either if subject is None else [subject]
    unsought = not_sought(cell for option in about for cell in option.group.cells)
    told = list(_sentences(record, decision, subject, word))
    if word == "yes" and unsought:
        # A yes must state at once which harms were not looked for; "no attack" already says everything.
        told = [told[0], not_tested(unsought), *(each for each in told[1:] if each != sentence(NO_ATTACK))]
    said = tuple(dict.fromkeys(told))[:_MOST]
    return Answer(
        answer=word,
        policy=decision.policy,
        sentences=(*said, *doubts(record), *_lacking(record)),
        leak=next(iter(leaks(cells)), None),
        unsought=unsought,
        untested="" if subject is None else sentence(not_fully_tested(subject.group.cells)),
        failed=failed_attacks([cell for option in about for cell in option.group.cells]),
        missed=" ".join(filter(None, (_missed(decision, each) for each in about))),
        accuracy=_accuracy(subject),
        at_risk=_at_risk([cell for option in about for cell in option.group.cells] or cells),
        hides=". ".join(_hides(about)),
        bares=_bares([] if subject is None else subject.group.cells, _summed(record)),
        next=next_step(record, decision, subject, everywhere),
        rows=tuple(row_of(option, decision.deployment) for option in decision.options),
        sweeps=sweeps(decision),
        decision=decision,
    )


def _lacking(record: RunRecord) -> Iterator[str]:
    """Sentence on the cells that an unfinished run lacks: the answer is about the finished ones."""
    if (lacks := record.unfinished) is not None:
        total = len(lacks.cells) + len(record.cells)
        yield f"This run is not finished: {len(lacks.cells)} of {total} cells are missing."


def _explained(kind: str) -> str:
    """Explain an epsilon, of one kind or of the kinds in the rows."""
    change = f"{kind}," if "," in kind else kind or "the change beside it"
    return f"ε bounds how much {change} can alter what is sent: less is more private."


def _hides(about: Sequence[Option]) -> Iterator[str]:
    """Clauses on the protection by each guarantee, none for one that fails or lets records be published."""
    for each in about:
        hides = "" if _publishes(each) else row_of(each).hides
        if hides:
            yield f"The guarantee of {each.group.name} {hides}"


def _publishes(subject: Option) -> bool:
    """Whether the delta of a claim lets a whole record be published, so that it gives no protection."""
    return any(each.rule == DELTA and each.state == "broken" for each in subject.judgements)


def _passing(decision: Decision) -> list[Option]:
    """The best release of each method that passes."""
    return [option for option in decision.options if option.state == "pass"]


def _subject(decision: Decision) -> Option | None:
    """The release that the answer is about: the recommended one, or the only one; None: it is about all."""
    if decision.recommended is not None:
        return decision.recommended
    return decision.options[0] if len(decision.everything) == 1 else None


def _word(decision: Decision, subject: Option | None) -> Word:
    if subject is not None:
        return word_of(subject)
    states = {option.state for option in decision.options}
    if "pass" in states:
        return "yes"
    if "undecided" in states or not decision.options:
        return "not yet"
    if states == {None} and all(worst_leak(option) is None for option in decision.options):
        return "not yet"
    return "no"


def _sentences(record: RunRecord, decision: Decision, subject: Option | None, word: Word) -> Iterator[str]:
    """Sentences of the answer, the most important first; the caller takes as many as there is room for."""
    if not decision.everything:
        yield "Not yet: the run has no release to judge."
        return
    if subject is not None:
        yield from _of_release(record, decision, subject, word)
    else:
        yield _of_run(decision, word)
    others = [option for option in decision.everything if subject is None or option.group != subject.group]
    rest = list(_elsewhere(others, decision.everything))
    yield from rest[:1]
    if subject is None and word == "not yet":
        unclear = [option for option in decision.options if option.state == "undecided"]
        yield from (sentence(each.short) for option in unclear[:1] for each in decisive(option)[:1])
    closest = decision.closest if subject is None and word == "no" else None
    if closest is not None:
        fault, name = worst_fault(closest), closest.group.name
        if fault is None:
            yield f"What comes closest is {who(closest.group)}: {decisive(closest)[0].short}."
        else:
            own = f"{name} {fault_clause(fault)}."
            yield own if own in rest else f"What comes closest, {name}, {fault_clause(fault)}."
    yield from rest[1:]


def _of_release(record: RunRecord, decision: Decision, subject: Option, word: Word) -> Iterator[str]:
    """One release: the answer with its first reason, then the others."""
    captured = is_captured(record)
    name = "the messages" if captured else who(subject.group)
    subject_name = "the system" if captured else subject.group.name
    reasons = list(dict.fromkeys(_reasons(subject, subject_name)))
    first = ""
    if word == "yes":
        yield f"{_yes(decision, [subject], name, 'passes')}."
    else:
        open_ = not_fully_tested(subject.group.cells)
        unjudged = next(silence(subject.group), "the policy does not judge releases without noise")
        first = reasons[0] if reasons else open_ or unjudged
        lead = {"no": "No", "not yet": "Not yet"}[word]
        place = "" if captured or len(decision.everything) == 1 else f"{name}, "
        makes = (
            f"{subject_name} "
            if first == claim_clause(subject.group.cells[0]) and claims(subject.group.cells[0])
            else ""
        )
        yield f"{lead}: {place}{makes}{first}."
    yield from (sentence(reason) for reason in reasons if reason != first)
    if worst_leak(subject) is not None:
        return
    fault = worst_fault(subject)
    if fault is None:
        yield from _silence(decision, subject, word)
    elif fault.refuted:
        yield _beside_fault(subject)


def _yes(decision: Decision, passing: Sequence[Option], names: str, passes: str) -> str:
    """Sentence on a passed policy: whether the passing releases may be deployed."""
    if decision.deployment and any(worst_leak(option) is not None for option in passing):
        return f"Yes, under a policy that allows leaks: {names} {passes} the policy {decision.policy}"
    if decision.deployment:
        return f"Yes: {names} may be deployed under the policy {decision.policy}"
    return f"Yes, but not for deployment: {names} {passes} the policy {decision.policy}"


def _silence(decision: Decision, subject: Option, word: Word) -> Iterator[str]:
    """Sentences on a release without a found leak; beside others its name is given."""
    where = "" if len(decision.everything) == 1 else subject.group.label
    unasked = "the policy does not ask for it, but " if word == "yes" else ""
    yield from map(sentence, silence(subject.group, where, unasked))


def _beside_fault(subject: Option) -> str:
    """Sentence on leaks where a claim does not hold: a silent attack is no comfort then."""
    if not silent(subject.group):
        return "No attack settled whether records leak."
    return "The attacks that ran recovered nothing; without the claim, nothing bounds what others recover."


def _reasons(option: Option, name: str) -> Iterator[str]:
    """Reasons against deploying a release, the worst first: harms, the claim, then the policy's other rules."""
    found, fault = distinct(leaks(option.group.cells)), worst_fault(option)
    said = [harm_clause(leak) for leak in found]
    yield from said[:1]
    if fault is not None:
        yield f"{name} {fault_clause(fault)}"
    yield from said[1:]
    for judgement in decisive(option):
        if judgement.attack:
            continue  # all of these are one line below
        if judgement.short not in said and (fault is None or judgement.short != fault_clause(fault)):
            yield judgement.short


def _of_run(decision: Decision, word: Word) -> str:
    """The answer to several methods without a recommended one."""
    options = decision.options
    several = (
        f"none of the {len(options)} methods passes" if len(options) > 1 else f"{options[0].group.name} passes"
    )
    nowhere = "" if len(options) > 1 else " at no ε that was run"
    if word == "yes":
        names = listed(who(option.group) for option in _passing(decision))
        return f"{_yes(decision, _passing(decision), names, 'pass')}; what they protect differs."
    if word == "not yet" and any(option.state == "undecided" for option in options):
        first = next(option for option in options if option.state == "undecided")
        if len(options) == 1:
            return f"Not yet: under the policy {decision.policy}, {who(first.group)} is still open."
        return f"Not yet: no method passes the policy {decision.policy}, and {who(first.group)} is still open."
    if all(option.state is None for option in options):
        lead = "No" if word == "no" else "Not yet"
        return f"{lead}: no release of this run is in the scope of the policy {decision.policy}."
    fallen = sum(any(refuted(cell) for cell in option.group.cells) for option in decision.everything)
    false = f", and {fallen} claim{'s are' if fallen > 1 else ' is'} refuted" if fallen else ""
    return f"No: {several} the policy {decision.policy}{nowhere}{false}."


def _place(option: Option, everything: Sequence[Option]) -> str:
    """Name the release of a harm; a method without noise beside its private form is there for comparison."""
    private = any(each.group.label == option.group.label and each.group.asked.finite for each in everything)
    compared = private and not option.group.asked.finite
    return f"{'For comparison, in' if compared else 'In'} {who(option.group)}"


def _elsewhere(options: Sequence[Option], everything: Sequence[Option]) -> Iterator[str]:
    """The worst leak of every kind of harm in other releases; then the refuted claims that leak nothing yet."""
    pairs = [(leak, option) for option in options for leak in leaks(option.group.cells)]
    pairs.sort(key=lambda pair: pair[0].order)
    named: list[Option] = []
    for kind in dict.fromkeys(leak.harm.kind for leak, _ in pairs):
        alike = [(leak, option) for leak, option in pairs if leak.harm.kind == kind]
        leak, option = next((pair for pair in alike if pair[1] not in named), alike[0])
        if option not in named:
            # A release with a worse harm than this kind is named by the worse one.
            leak = worst_leak(option) or leak
        yield f"{_place(option, everything)}, {harm_clause(leak)}."
        fault = worst_fault(option)
        if option not in named and fault is not None and fault.refuted:
            yield f"{option.group.name} {fault_clause(fault)}."
        named.append(option)
    for option in options:
        fault = worst_fault(option)
        if fault is not None and fault.refuted and worst_leak(option) is None:
            yield f"{option.group.name} {fault_clause(fault)}."


def _missed(decision: Decision, subject: Option | None) -> str:
    if subject is None or worst_leak(subject) is not None or any(refuted(cell) for cell in subject.group.cells):
        return ""
    return next(_silence(decision, subject, word_of(subject)), "")


def _accuracy(subject: Option | None) -> str:
    """Sentence on a model's accuracy, against that without privacy and that of naming the largest class."""
    if subject is None or subject.accuracy.value is None:
        return ""
    row = row_of(subject)
    beside = [f"{row.majority} by always naming the largest class"] if row.majority != DASH else []
    if subject.cost.value is not None and subject.group.asked.finite:
        beside.insert(0, f"{significant(subject.accuracy.value + subject.cost.value / 100)} without privacy")
    return f"Accuracy {row.accuracy}" + (f"; {', '.join(beside)}." if beside else ".")


def _summed(record: RunRecord) -> bool:
    """Whether nothing was seen of clients but what is summed over them."""
    threat = record.plan.get("threat") if isinstance(record.plan, dict) else None
    return isinstance(threat, dict) and threat.get("view") == "aggregate"


def _bares(cells: Sequence[CellRecord], summed: bool) -> str:
    """Sentence on the accuracy of label counts of whole clients without a leak: no claim on records hides them."""
    holds = "all clients together hold" if summed else "a client holds"
    for cell in cells:
        for finding in silent_in(cell):
            told, guess = (side.get("total_variation") for side in (finding.metrics, finding.baseline))
            if told is None or guess is None or told.value is None or guess.value is None:
                continue
            if told.value < guess.value:
                off, public = (short(round(100 * each, 1)) for each in (told.value, guess.value))
                return (
                    f"It does not hide how many records of each label {holds}: the server's estimate is off by "
                    f"{off} points, and by {public} where it guesses the public shares."
                )
    return ""


def _at_risk(cells: Sequence[CellRecord]) -> str:
    """Sentence on the rate at which participation of the unit most at risk is inferred."""
    for name, whose in _AT_RISK:
        known = [
            metric.value
            for cell in cells
            for finding in cell.findings
            if (metric := finding.metrics.get(name)) is not None and metric.value is not None
        ]
        if known:
            share = short(100 * max(known))
            return f"The {whose} most at risk is told to be in or out in {share} % of runs; 50 % is guessing."
    return ""
