"""The first screen: a decision laid out for the page, for Markdown and for the console."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import shorten

from fedassay.plan.rates import in_words
from fedassay.records.record import RunRecord
from fedassay.reports.decision.decision import Decision, Option, points
from fedassay.reports.decision.words import grounds, standing_in_words
from fedassay.reports.gate.judgement import State
from fedassay.reports.words.numbers import interval, short, significant, size
from fedassay.reports.words.summary import first_clause, listed, strip
from fedassay.reports.words.verdicts import Tone

MARKS: dict[State | None, tuple[str, str, Tone, str]] = {
    "pass": ("✔", "Passes", "good", "check"),
    "undecided": ("?", "Undecided", "unsure", "question"),
    "broken": ("✖", "Does not pass", "bad", "octagon"),
    None: ("–", "Not judged", "none", "dash"),
}
"""How each state is shown: a character, a word, a colour, an icon."""

_WIDE = 200
"""Characters of a reason on the console; the report has all of it."""

_FEW = 3
"""Reasons and steps that a first screen has room for."""


@dataclass(frozen=True)
class Row:
    """An option in words.

    Attributes:
        state: What the policy says.
        name: The method entry.
        epsilon: Of the best release.
        why: What breaks the policy, or leaves it open; empty where it passes.
        further: How many more such reasons there are.
        accuracy: With its interval.
        cost: Accuracy that privacy takes, in points.
        sends: Bytes up.
        hides: What the guarantee is about.
        untested: Attacks that apply and were not concluded from; empty: all were; `not recorded` in old records.
        bare: What the same method entry gives away without privacy; empty where no leak was found, or nothing run.
    """

    state: State | None
    name: str
    epsilon: str
    why: tuple[str, ...]
    further: int
    accuracy: str
    cost: str
    sends: str
    hides: str
    untested: str
    bare: str

    @property
    def word(self) -> str:
        """The state in a word."""
        return MARKS[self.state][1]

    @property
    def tone(self) -> Tone:
        """Its colour."""
        return MARKS[self.state][2]

    @property
    def icon(self) -> str:
        """Its icon."""
        return MARKS[self.state][3]


@dataclass(frozen=True)
class Screen:
    """A first screen in words.

    Attributes:
        answer: The recommendation, or the reason for none.
        policy: Name of the policy.
        rules: The policy in words.
        rows: One a method entry.
        steps: What would decide the rest: to do, why, and how long it takes.
        more_steps: How many more there are.
        grounds: What the decision rests on.
        state: Of the whole run.
    """

    answer: str
    policy: str
    rules: tuple[str, ...]
    rows: tuple[Row, ...]
    steps: tuple[tuple[str, str, str], ...]
    more_steps: int
    grounds: tuple[str, ...]
    state: State


def screen(record: RunRecord, decision: Decision) -> Screen:
    """The first screen of a run."""
    return Screen(
        answer=decision.answer,
        policy=decision.policy,
        rules=decision.rules,
        rows=tuple(_row(record, option) for option in decision.options),
        steps=tuple(
            (step.what, step.why, "" if step.seconds is None else f"about {in_words(step.seconds)}")
            for step in decision.steps[:_FEW]
        ),
        more_steps=max(0, len(decision.steps) - _FEW),
        grounds=grounds(record),
        state=decision.state,
    )


def _row(record: RunRecord, option: Option) -> Row:
    accuracy, group = option.accuracy, option.group
    why = option.why
    if option.state is None:
        # What the policy does not judge is shown beside the rest, and what it gives away must not go unsaid.
        why = tuple(line.said for line in strip(record) if line.group == group)
    return Row(
        state=option.state,
        name=group.name,
        epsilon=short(group.epsilon),
        # Why something is open is an audit's whole reason, with its numbers and advice: both stand below.
        why=tuple(first_clause(words) if option.state == "undecided" else words for words in why[:1]),
        further=max(0, len(why) - 1),
        accuracy="not measured"
        if accuracy.value is None
        else f"{significant(accuracy.value)} {interval(accuracy, count=False)}".strip(),
        cost=points(option.cost) if group.epsilon != float("inf") else "no privacy asked for",
        sends="not measured" if option.bytes_up is None else size(option.bytes_up),
        hides=standing_in_words(*option.standing) if group.epsilon != float("inf") else "nothing is hidden",
        untested=_untested(record, option),
        bare="" if option.state is None else _bare(record, group.label),
    )


def _bare(record: RunRecord, label: str) -> str:
    """The largest leak of a method entry without privacy, as the strip words it."""
    for line in strip(record):
        if line.group.label == label and line.group.epsilon == float("inf") and line.verdict == "leak":
            return line.leaks
    return ""


def _untested(record: RunRecord, option: Option) -> str:
    if option.untested:
        return f"not fully tested: {listed(name.replace('_', ' ') for name, _ in option.untested)}"
    if any(cell.coverage for cell in option.group.cells):
        return "every attack that applies was conclusive"
    return "no attack that applies is on record"


def decision_text(shown: Screen) -> Iterable[str]:
    """The first screen as lines of plain text, for a terminal."""
    yield shorten(shown.answer, _WIDE, placeholder=" …")
    yield f"Held to the policy {shown.policy}: {'; '.join(shown.rules)}."
    for row in shown.rows:
        mark = MARKS[row.state][0]
        yield f"{mark} {row.name} at ε = {row.epsilon}: {row.word.lower()}"
        for why in row.why:
            yield f"    {shorten(why, _WIDE, placeholder=' …')}" + (
                f" ({row.further} more)" if row.further else ""
            )
        if row.bare:
            yield f"    without privacy: {shorten(row.bare, _WIDE, placeholder=' …')}"
        yield f"    accuracy {row.accuracy}; cost of privacy: {row.cost}; sends {row.sends}; {row.untested}"
    for what, _, takes in shown.steps:
        yield f"Next: {what}" + (f" ({takes})" if takes else "")
    if shown.more_steps:
        yield f"Next: {shown.more_steps} more, in the report"
    yield from shown.grounds
