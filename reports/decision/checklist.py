"""The rules of a policy, one a line, and what each comes to of every method, by a mark."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.reports.decision.decision import Decision, Option
from fedassay.reports.decision.words import ALWAYS, Rule
from fedassay.reports.gate.judgement import Mark
from fedassay.reports.words.sentences import who

_COLUMNS = 5
"""Methods that a table has room for."""

MARKS: dict[Mark | None, tuple[str, str]] = {
    "kept": ("✔", "kept"),
    "bounded by the claim": ("◇", "bounded by the claim"),
    "does not apply": ("–", "does not apply"),
    "not tested": ("○", "not tested"),
    "open": ("?", "open"),
    "broken": ("✖", "broken"),
    None: ("–", ""),
}
"""Display of each mark: a character, and words; nothing where the policy does not ask the rule."""


@dataclass(frozen=True)
class Line:
    """A rule and what it makes of the methods.

    Attributes:
        rule: The question of the rule.
        found: One a method; None where the policy does not ask it.
        about: The measured quantity; may be empty.
        why: Reason why it is broken or open, where there is one method; else empty.
    """

    rule: str
    found: tuple[Mark | None, ...]
    about: str
    why: str

    @property
    def characters(self) -> tuple[str, ...]:
        """The character of each method's mark."""
        return tuple(MARKS[mark][0] for mark in self.found)

    @property
    def marks(self) -> tuple[str, ...]:
        """One a method: a character and a word."""
        return tuple(" ".join(filter(None, MARKS[mark])) for mark in self.found)


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
    """Return a policy's rules and whether each is met; empty where it judges nothing of the run."""
    judged = [option for option in decision.options if option.state is not None]
    shown = judged[:_COLUMNS]
    lines = (_line(rule, decision, shown) for rule in (*decision.rules, *ALWAYS)) if shown else ()
    return Checklist(
        labels=tuple(option.group.label for option in shown),
        names=tuple(who(option.group) for option in shown),
        lines=tuple(line for line in lines if any(line.found)),
        further=len(judged) - len(shown),
    )


def _line(rule: Rule, decision: Decision, shown: list[Option]) -> Line:
    every = [(*option.judgements, *decision.of_run) for option in shown]
    found = tuple(map(rule.mark, every))
    why = ""
    if len(shown) == 1 and found[0] not in ("kept", None):
        why = next((each.short for each in every[0] if rule.has(each) and each.mark == found[0]), "")
    return Line(rule.words, found, rule.about, why)
