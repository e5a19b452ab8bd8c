"""The result of one test of what was received."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

LEVEL = 0.005
"""Of every test; those that draw at random take `DRAWS` and find only what none of these reaches."""

DRAWS = 199


@dataclass(frozen=True)
class Tested:
    """One test.

    Attributes:
        rule: Its name.
        about: The field, or fields, that it looked at.
        found: Whether it speaks against the server.
        p: Its p-value; None where it needs none.
        text: One sentence.
    """

    rule: str
    about: str
    found: bool
    p: float | None
    text: str

    def as_dict(self) -> dict[str, Any]:
        """The test as a JSON object."""
        return asdict(self)


def p_of(reached: int) -> float:
    """The p-value of something that so many of `DRAWS` draws reach."""
    return (1 + reached) / (DRAWS + 1)
