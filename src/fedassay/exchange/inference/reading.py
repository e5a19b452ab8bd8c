"""Conclusion about a field: the kinds that its arrays leave, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.exchange.kinds import FieldKind


@dataclass(frozen=True)
class Reading:
    """The kinds that a field may be, by its arrays.

    Attributes:
        kinds: One: the field's kind. Several: the arrays do not distinguish them. None: no kind fits.
        evidence: The reasons, in sentences.
        transposed: Whether the arrays hold the kind's rows as columns.
        records: Least number of records in the largest message under this reading; None: unknown.
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
    """Return the reading of a field that can be one kind alone."""
    return Reading((kind,), evidence, transposed)


def unsure(*kinds: FieldKind, why: str) -> Reading:
    """Return the reading of a field that may be several kinds, or none that is known."""
    return Reading(kinds, (why,))
