"""What is concluded of a field: the kinds that its arrays leave, and why."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.exchange.kinds import FieldKind


@dataclass(frozen=True)
class Reading:
    """The kinds that a field may be, by its arrays.

    Attributes:
        kinds: One: that is what it is. Several: the arrays do not tell these apart. None: no kind fits.
        evidence: Why, in sentences.
        transposed: Whether the arrays hold the kind's rows as columns.
        records: How many records the reading makes of the largest message, at least; None: nothing says.
    """

    kinds: tuple[FieldKind, ...]
    evidence: tuple[str, ...]
    transposed: bool = False
    records: float | None = None

    @property
    def kind(self) -> FieldKind | None:
        """The only kind left, or None."""
        return self.kinds[0] if len(self.kinds) == 1 else None


Readings = dict[str, Reading]


def sure(kind: FieldKind, *evidence: str, transposed: bool = False) -> Reading:
    """A field that is one kind."""
    return Reading((kind,), evidence, transposed)


def unsure(*kinds: FieldKind, why: str) -> Reading:
    """A field that may be several kinds, or none that is known."""
    return Reading(kinds, (why,))
