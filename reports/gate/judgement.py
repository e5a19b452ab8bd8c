"""Judgement of one rule of a policy on one cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

State = Literal["pass", "broken", "undecided"]

Basis = Literal["measured", "claim", "nothing", "untested"]
"""Basis of a state: a measurement; a sound claim's bound; nothing, as the rule does not apply; or no test."""

Mark = Literal["broken", "not tested", "open", "bounded by the claim", "kept", "does not apply"]
"""Outcomes of a rule, the worst first. Where several are merged the worst stands for all."""


@dataclass(frozen=True)
class Judgement:
    """Judgement of one rule on one cell.

    Attributes:
        rule: The rule, such as `maximum observed`.
        cell: The cell, in words; empty where the rule is about the run.
        state: `pass`, `broken` or `undecided`.
        why: In plain words, without the cell.
        brief: The same in one short clause; empty where `why` is short enough.
        about: `use`: on a model's accuracy. `coverage`: on the attacks that were run. `silence`: on leaks that an
            audit may have missed. `privacy`: the rest.
        metric: The metric that the rule bounds; empty where it bounds none.
        attack: The attack that must be covered; empty where the rule asks for no single one.
        basis: Basis of the state. A rule that passes without an applying attack is `untested`: the policy may
            allow that, but the rule must not look better than one that was put to every attack.
    """

    rule: str
    cell: str
    state: State
    why: str
    brief: str = ""
    about: Literal["privacy", "coverage", "silence", "use"] = "privacy"
    metric: str = ""
    attack: str = ""
    basis: Basis = "measured"

    @property
    def mark(self) -> Mark:
        """The rule's mark: a rule that does not apply is not kept, and a bound is no measurement."""
        if self.state == "broken":
            return "broken"
        if self.state == "undecided":
            return "not tested" if self.basis == "untested" else "open"
        return _PASSED[self.basis]

    @property
    def short(self) -> str:
        """The reason in one clause."""
        return self.brief or self.why

    @property
    def sentence(self) -> str:
        """The cell and the reason, as one sentence."""
        return f"{self.cell}: {self.why}" if self.cell else self.why


_PASSED: dict[Basis, Mark] = {
    "measured": "kept",
    "claim": "bounded by the claim",
    "nothing": "does not apply",
    "untested": "not tested",
}


def worst_mark(marks: Iterable[Mark]) -> Mark | None:
    """The worst of some marks; None where there are none."""
    return min(marks, key=get_args(Mark).index, default=None)
