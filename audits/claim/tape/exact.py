"""Fields that leave exactly: do the messages of two neighbours differ in them?

Where they do, one message distinguishes the neighbours with certainty, and no finite epsilon holds. It is decided
on messages: a number of records that no neighbour changes gives nothing away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.answers import Answer
from fedassay.audits.claim.tape.fillings import Filling, fillings
from fedassay.audits.claim.tape.neighbours import filled, labels_at, neighbours, place_of
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.transcript import SERVER, Transcript
from fedassay.support.adjacency import UNIT_WORDS, Adjacency, Unit

_NUMBERS = 6


def exact_answer(
    context: AuditContext, adjacency: Adjacency, names: Sequence[str], unit: Unit = "record"
) -> Answer | None:
    """Whether the values of fields that leave exactly differ between neighbours.

    Args:
        context: Of the run.
        adjacency: Of the claim.
        names: Fields that leave exactly and that the adjacency does not make public.
        unit: Of the claim.

    Returns:
        None where no value differs on the neighbours that were tried.

    Raises:
        NotRunError: There is no method that could be run again.
    """
    clients = context.data.clients
    number = max(range(len(clients)), key=lambda index: len(clients[index]), default=-1)
    if number < 0 or len(clients[number]) < 2:
        return None
    place = place_of(clients[number], number)
    label = labels_at(clients[number], place, unit)
    same = context.replay(clients, context.tape)
    for filling in _tried(adjacency):
        own = filled(clients[number], place, filling, context.data.classes, number, unit=unit)
        if not any(map(len, (own.records, *(c for i, c in enumerate(clients) if i != number)))):
            continue
        if not neighbours(label, own.label, adjacency):
            continue
        changed = tuple(own.records if index == number else client for index, client in enumerate(clients))
        other = context.replay(changed, context.tape)
        found = _differs(same.whole.transcript, other.whole.transcript, names)
        if found is not None:
            name, sender, words = found
            about = f"with {filling.name} in the place of {UNIT_WORDS[unit]} of {clients[number].name}"
            return Answer(
                "rest",
                "failed",
                f"{name.replace('_', ' ')} of {sender} leaves exactly: {words} {about}, so that one message "
                "decides with certainty",
                name,
            )
    return None


def _tried(adjacency: Adjacency) -> tuple[Filling, ...]:
    """The first two fillings: where a record is added or removed, its absence alone decides."""
    return fillings(adjacency)[:2]


def _differs(first: Transcript, second: Transcript, names: Sequence[str]) -> tuple[str, str, str] | None:
    for own, other in zip(first.messages, second.messages, strict=False):
        if own.sender == SERVER:
            continue
        for name in names:
            if name not in own.fields or name not in other.fields or own.fields[name].release.mechanism != "exact":
                continue
            one, two = own.fields[name].values, other.fields[name].values
            if one.shape != two.shape or one.tobytes() != two.tobytes():
                return name, own.sender, f"it is {_few(one, two)} on the records and {_few(two, one)}"
    return None


def _few(values: NDArray[np.generic], other: NDArray[np.generic]) -> str:
    """The numbers in which it differs from another array, a few of them."""
    own = values.reshape(-1)
    if values.shape == other.shape:
        own = own[own != other.reshape(-1)]
    shown = ", ".join(f"{float(value):.6g}" for value in own[:_NUMBERS].tolist())
    return f"[{shown}{', ...' if own.size > _NUMBERS else ''}]"
