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
    """

    rule: str
    cell: str
    state: State
    why: str

    @property
    def sentence(self) -> str:
        """The cell and why."""
        return f"{self.cell}: {self.why}" if self.cell else self.why
