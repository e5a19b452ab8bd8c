"""Epsilon with its kind: a number, a delta, a relation between neighbours and a unit of privacy.

Two epsilons of different kinds cannot be added, compared, sorted or drawn on one axis: the type has no such
operation. The functions below compare epsilons of one kind and refuse all else. The bare number is available as
`bare` alone: for accountants, for output to programs, and for an axis of one kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fedassay.support.adjacency import Adjacency, Unit


class UnlikeKindsError(TypeError):
    """Epsilons of different kinds were compared."""


_DIFFER: dict[Adjacency, str] = {
    "add_remove": "added or removed",
    "replace_one": "replaced",
    "replace_one_same_label": "replaced, same label",
}


@dataclass(frozen=True)
class Kind:
    """The kind of a guarantee: the adjacency, unit and delta that its epsilon refers to."""

    adjacency: Adjacency
    unit: Unit
    delta: float

    @property
    def words(self) -> str:
        """The difference between neighbours, as printed after a number; without delta."""
        return f"one {self.unit} {_DIFFER[self.adjacency]}"


@dataclass(frozen=True, repr=False)
class Epsilon:
    """An epsilon of a kind; it has no order, no sum and no format without its kind.

    Attributes:
        bare: The number alone; infinite where nothing is guaranteed.
        delta: In [0, 1].
        adjacency: The relation between neighbours.
        unit: The unit of privacy.
        how: The conversion that it comes from; empty where it was not converted.
    """

    bare: float
    delta: float
    adjacency: Adjacency
    unit: Unit
    how: str = field(default="", compare=False)

    @property
    def kind(self) -> Kind:
        """The adjacency, unit and delta of this epsilon."""
        return Kind(self.adjacency, self.unit, self.delta)

    @property
    def standing(self) -> tuple[Adjacency, Unit]:
        """The adjacency and the unit protected, without delta."""
        return self.adjacency, self.unit

    @property
    def finite(self) -> bool:
        """Whether anything is guaranteed."""
        return math.isfinite(self.bare)

    def like(self, bare: float) -> Epsilon:
        """Another number of this kind, such as a bound that was found against it."""
        return replace(self, bare=bare, how="")

    def at_delta(self, delta: float) -> Epsilon:
        """The same guarantee at a larger delta, which it implies.

        Raises:
            ValueError: The delta is smaller: nothing follows.
        """
        if delta < self.delta:
            raise ValueError(f"an epsilon at delta {self.delta:g} says nothing of the smaller delta {delta:g}")
        return self if delta == self.delta else replace(self, delta=delta, how=f"from delta {self.delta:g}")

    def __str__(self) -> str:
        return f"{self.bare:.4g} ({self.kind.words}{f'; {self.how}' if self.how else ''})"

    def __repr__(self) -> str:
        return f"Epsilon({self.bare:g}, delta={self.delta:g}, adjacency={self.adjacency!r}, unit={self.unit!r})"


def of_kind(epsilons: Iterable[Epsilon]) -> dict[Kind, tuple[Epsilon, ...]]:
    """Return the epsilons by kind, in their order: those of one kind may be compared."""
    found: dict[Kind, list[Epsilon]] = {}
    for each in epsilons:
        found.setdefault(each.kind, []).append(each)
    return {kind: tuple(alike) for kind, alike in found.items()}


def numbers(epsilons: Iterable[Epsilon]) -> list[float]:
    """The numbers of epsilons of one kind, for an axis or an order.

    Raises:
        UnlikeKindsError: There are several kinds.
    """
    kinds = of_kind(epsilons)
    if len(kinds) > 1:
        said = "; ".join(f"{kind.words}, delta {kind.delta:g}" for kind in kinds)
        raise UnlikeKindsError(f"epsilons of unlike kinds cannot be held against each other: {said}")
    return [each.bare for alike in kinds.values() for each in alike]


def largest(epsilons: Iterable[Epsilon | None]) -> Epsilon | None:
    """Return the largest of one kind; None for an empty input.

    Raises:
        UnlikeKindsError: There are several kinds.
    """
    known = [each for each in epsilons if each is not None]
    held = numbers(known)
    return known[held.index(max(held))] if known else None


def smallest(epsilons: Iterable[Epsilon]) -> Epsilon | None:
    """Return the smallest of one kind; None for an empty input.

    Raises:
        UnlikeKindsError: There are several kinds.
    """
    known = list(epsilons)
    held = numbers(known)
    return known[held.index(min(held))] if known else None


def ascending(epsilons: Iterable[Epsilon]) -> list[Epsilon]:
    """The epsilons of one kind, the smallest first.

    Raises:
        UnlikeKindsError: There are several kinds.
    """
    known = list(epsilons)
    return [each for _, each in sorted(zip(numbers(known), known, strict=True), key=lambda pair: pair[0])]


def exceeds(one: Epsilon, other: Epsilon, slack: float = 1.0) -> bool:
    """Whether `one` is larger than `slack` times `other`, of the same kind.

    Raises:
        UnlikeKindsError: They are of unlike kinds.
    """
    left, right = numbers([one, other])
    return left > right * slack


def at_one_delta(epsilons: Sequence[Epsilon]) -> list[Epsilon]:
    """Return guarantees at the largest of their deltas, which each of them implies, as members of one order."""
    delta = max((each.delta for each in epsilons), default=0.0)
    return [each.at_delta(delta) for each in epsilons]
