"""What one rule of a policy says about one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["pass", "broken", "undecided"]


@dataclass(frozen=True)
class Judgement:
    """What one rule says about one cell.

    Attributes:
        rule: The rule, such as `maximum observed`.
        cell: The cell, in words; empty where the rule is about the run.
        state: `pass`, `broken` or `undecided`.
        why: In plain words, without the cell.
        brief: The same in one short clause; empty where `why` is short enough.
        about: `use`: on what a model can do. `coverage`: on what was tried. `silence`: on what an audit
            that found nothing may have missed. `privacy`: the rest.
        metric: That the rule bounds; empty where it bounds none.
        attack: Whose coverage the rule asks for; empty where it asks for no single one.
    """

    rule: str
    cell: str
    state: State
    why: str
    brief: str = ""
    about: Literal["privacy", "coverage", "silence", "use"] = "privacy"
    metric: str = ""
    attack: str = ""

    @property
    def short(self) -> str:
        """Why, in one clause."""
        return self.brief or self.why

    @property
    def sentence(self) -> str:
        """The cell and why."""
        return f"{self.cell}: {self.why}" if self.cell else self.why
