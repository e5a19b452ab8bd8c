"""Methods that share an axis of epsilon: those of one relation, and those that can be converted to it.

A guarantee of another relation is added up again for the axis's own, from what the record says was released, by
the accountant of every ledger (`fedassay.exchange.ledger.account`). A line that is converted says so by name; one
that cannot be has an axis of its own. The converted number is what the release adds up to under that relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fedassay.exchange.ledger import account
from fedassay.exchange.recount import transcript_of
from fedassay.records.basis import Released
from fedassay.reports.document.mission.lines import Line
from fedassay.support.epsilon import Epsilon, Kind, largest
from fedassay.support.errors import FedassayError

_MOST_SLOW = 12
"""Largest number of rows without a closed form of the privacy loss: each takes a second or two to account."""


@dataclass(frozen=True)
class Placed:
    """A row of the table at its place on an axis.

    Attributes:
        line: The row.
        at: Position on the axis; infinite beyond the break.
        converted: Whether the number is not the one that was asked of the method.
    """

    line: Line
    at: Epsilon
    converted: bool


@dataclass(frozen=True)
class Axis:
    """Rows that share an axis.

    Attributes:
        kind: Kind of its epsilons.
        placed: In the order of the table.
    """

    kind: Kind
    placed: tuple[Placed, ...]


def axes(found: Sequence[Line]) -> tuple[Axis, ...]:
    """As few axes as hold all rows, the one with most rows first; none without a finite epsilon.

    Rows without noise guarantee nothing, whatever their relation: they stand beyond the break of every axis that
    has their method, and of the first one where their method has none.
    """
    finite = [line for line in found if line.group.asked.finite]
    slow = sum(not _is_gaussian(line) for line in finite) > _MOST_SLOW
    left, made = list(finite), []
    while left:
        kinds = dict.fromkeys(line.group.asked.kind for line in left)
        options = [
            (kind, [at for line in left if (at := _placed(line, kind, slow)) is not None]) for kind in kinds
        ]
        kind, placed = max(options, key=lambda option: len(option[1]))
        made.append((kind, placed))
        taken = {id(each.line) for each in placed}
        left = [line for line in left if id(line) not in taken]
    private = {line.group.label for line in finite}
    out = []
    for number, (kind, placed) in enumerate(made):
        held = {each.line.group.label for each in placed}
        known = {id(each.line): each for each in placed}
        for line in found:
            own = line.group.label in held or (number == 0 and line.group.label not in private)
            if not line.group.asked.finite and own:
                known[id(line)] = Placed(line, line.group.asked, converted=False)
        out.append(Axis(kind, tuple(known[id(line)] for line in found if id(line) in known)))
    return tuple(out)


def _is_gaussian(line: Line) -> bool:
    """Whether a release is accounted in closed form."""
    return all(cell.privacy.mu is not None for cell in line.group.cells)


def _placed(line: Line, kind: Kind, slow: bool) -> Placed | None:
    """A row on an axis of a kind; None where nothing follows for that kind, or it would take long to say."""
    asked = line.group.asked
    if asked.kind == kind:
        return Placed(line, asked, converted=False)
    if slow and not _is_gaussian(line):
        return None
    held = [cell.released for cell in line.group.cells]
    if asked.unit != kind.unit or asked.delta != kind.delta or any(each is None for each in held):
        return None
    found = [_accounted(each.model_dump_json(), kind) for each in held if each is not None]
    known = [each for each in found if each is not None and each.finite]
    most = largest(known)
    return None if most is None or len(known) < len(held) else Placed(line, most, converted=True)


@lru_cache(maxsize=256)
def _accounted(held: str, kind: Kind) -> Epsilon | None:
    """Account a release under another relation; None where that is not possible."""
    try:
        sent = transcript_of(Released.model_validate_json(held))
        return account(sent, kind.adjacency, kind.delta, kind.unit).total
    except (FedassayError, ValueError):
        return None
