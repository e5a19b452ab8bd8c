"""The rules of a policy, one a line, and what each makes of every method: kept, broken or open."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.reports.decision.decision import Decision, Option
from fedassay.reports.decision.words import ALWAYS, Rule
from fedassay.reports.gate.judgement import State
from fedassay.reports.words.sentences import who

_COLUMNS = 5
"""Methods that a table has room for."""

MARKS: dict[State | None, tuple[str, str]] = {
    "pass": ("✔", "kept"),
    "broken": ("✖", "broken"),
    "undecided": ("?", "open"),
    None: ("–", ""),
}
"""How each state is shown: a character, a word; a dash where a rule does not apply."""


@dataclass(frozen=True)
class Line:
    """A rule and what it makes of the methods.

    Attributes:
        rule: What it asks.
        states: One a method; None where the rule does not apply.
        about: What is measured; may be empty.
        why: Why it is broken or open, where there is one method; else empty.
    """

    rule: str
    states: tuple[State | None, ...]
    about: str
    why: str

    @property
    def characters(self) -> tuple[str, ...]:
        """One a method."""
        return tuple(MARKS[state][0] for state in self.states)

    @property
    def marks(self) -> tuple[str, ...]:
        """One a method: a character and a word."""
        return tuple(" ".join(filter(None, MARKS[state])) for state in self.states)


@dataclass(frozen=True)
class Checklist:
    """A policy, rule by rule.

    Attributes:
        labels: The method entries.
        names: The same, each at the epsilon that is best under the policy.
        lines: The rules that apply to any of them.
        further: Methods that it has no room for.
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    lines: tuple[Line, ...]
    further: int


def checklist(decision: Decision) -> Checklist:
    """What a policy asks, and whether it is met; empty where it judges nothing of the run."""
    judged = [option for option in decision.options if option.state is not None]
    shown = judged[:_COLUMNS]
    lines = (_line(rule, decision, shown) for rule in (*decision.rules, *ALWAYS)) if shown else ()
    return Checklist(
        labels=tuple(option.group.label for option in shown),
        names=tuple(who(option.group) for option in shown),
        lines=tuple(line for line in lines if any(line.states)),
        further=len(judged) - len(shown),
    )


def _line(rule: Rule, decision: Decision, shown: list[Option]) -> Line:
    every = [(*option.judgements, *decision.of_run) for option in shown]
    states = tuple(map(rule.state, every))
    why = ""
    if len(shown) == 1 and states[0] in ("broken", "undecided"):
        why = next(each.short for each in every[0] if rule.has(each) and each.state == states[0])
    return Line(rule.words, states, rule.about, why)
