"""Releases that are known to give records away, for end-to-end positive controls.

The audited method is run without privacy, by its own `run`, on clients that hold one control record of a class
each. A class sum, a class mean and a component of a mixture is then a record's own feature. Its messages are seen
through the threat model of the cell, so that what reads the audited release reads this one in the same way.

Where clients are seen summed up only, one of them holds records and the others hold none; since a sum then holds
one record a class, the method is run several times on other records, and every run is a view of its own. What an
attack recovers from several records at once (a Gram matrix) is asked of clients as large as the audited ones.

Controls are shared: cells of one seed that differ in epsilon alone get the same release, made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedassay.audits.simulation import control_seeds
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import visible
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records, joined
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import View
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.types import Ints

MOST_RUNS = 16
"""Maximum number of runs of a method where clients are seen summed up only."""


@dataclass(frozen=True)
class NonPrivateRelease:
    """One run of the method that gives its clients' records away, and what is seen of it.

    Attributes:
        clients: The clients, with the control records that each holds; a client may hold none.
        outcome: Of the method.
        view: The view of it under the cell's threat model.
    """

    clients: tuple[Records, ...]
    outcome: Outcome
    view: View

    @property
    def records(self) -> Records:
        """The exposed records of all clients, in their order."""
        return joined("control", self.clients)


def summed_only(view: View) -> bool:
    """Whether nothing is seen of clients but what is summed over them."""
    seen = view.from_clients()
    return bool(seen) and all(message.sender == AGGREGATE for message in seen)


def nonprivate_releases(
    context: AuditContext, records: int, *, least: int = 2, as_large: bool = False, single: bool = False
) -> tuple[NonPrivateRelease, ...]:
    """Releases that give about so many control records away: one, or several where clients are summed up.

    Args:
        context: The cell: its method is run without privacy, and its threat model determines the view.
        records: Records wanted; a client more is dealt rather than one too few. Fewer come back where the control
            role, or `MOST_RUNS` of them, holds no more.
        least: Fewer than this are no control.
        as_large: Clients are of the sizes of the real ones, not of one record a class.
        single: Clients are of one record, which a sum over all classes then gives away.

    Raises:
        NotRunError: The control role is too small (by how many records, it says), or the method cannot be run.
    """
    alone = summed_only(context.view)
    if as_large and alone:
        least = max(least, sum(len(client) for client in context.data.clients))
    # The least number is part of the key: the order of the audits must not matter.
    key = f"exposure/{context.release_key}/{records}/{alone}/{as_large}/{single}/{least}"

    def make() -> tuple[NonPrivateRelease, ...]:
        groups = _groups(context, records, alone, "as_large" if as_large else "single" if single else "class")
        held = sum(len(client) for group in groups for client in group)
        if held < least:
            total = len(context.data.control)
            words = _too_few(held, least, context)
            raise NotRunError(words, role="control", held=total, needed=total + least - held)
        return tuple(_run(context, group, number, alone) for number, group in enumerate(groups))

    return context.data.once(key, make)


def _groups(
    context: AuditContext, records: int, alone: bool, size: Literal["class", "single", "as_large"]
) -> list[list[Records]]:
    """The clients that hold records, by the run of the method that they take part in."""
    if size == "as_large":
        return [clients_as_large(context, sum(map(len, context.data.clients)) if alone else records)]
    dealt = dealt_clients(context, records)
    if size == "single":
        whole = [client.take(np.array([row])) for client in dealt for row in range(len(client))]
        dealt = [client.take(np.arange(1), f"client/{i}") for i, client in enumerate(whole)]
    return [[client] for client in dealt[:MOST_RUNS]] if alone else [dealt]


def dealt_clients(context: AuditContext, records: int) -> list[Records]:
    """Clients of one control record of every class that the real ones hold, until `records` are dealt.

    Clients that are dealt first hold the same records however many follow; the last ones lack classes with too few
    control records.
    """
    control = context.data.control
    held = (
        np.unique(np.concatenate([client.labels for client in context.data.clients]))
        if context.data.clients
        else None
    )
    usable = np.unique(control.labels) if held is None else held
    order = control_seeds(context, "exposure", "records").numpy().permutation(len(control))
    by_class = [order[control.labels[order] == label] for label in usable]
    clients: list[Records] = []
    dealt = 0
    while dealt < records:
        rows = [rows[len(clients)] for rows in by_class if len(rows) > len(clients)]
        if not rows:
            break
        clients.append(control.take(np.array(rows, np.int64), f"client/{len(clients)}"))
        dealt += len(rows)
    return clients


def clients_as_large(context: AuditContext, records: int) -> list[Records]:
    """Clients of control records, as large as the real ones in their order, until `records` are dealt.

    A client's classes are those of the real one as far as control records of them last. Real clients that are
    larger than what is left are passed over.
    """
    control = context.data.control
    left = control_seeds(context, "exposure", "as large").numpy().permutation(len(control))
    clients: list[Records] = []
    dealt = 0
    for real in context.data.clients:
        if dealt >= records:
            break
        if not 0 < len(real) <= len(left):
            continue
        chosen = _like(real, control, left)
        clients.append(control.take(left[chosen], f"client/{len(clients)}"))
        left = np.delete(left, chosen)
        dealt += len(real)
    return clients


def _like(real: Records, control: Records, left: Ints) -> Ints:
    """Places in `left` of as many records as a client has, of its classes first."""
    labels = control.labels[left]
    own = [
        np.flatnonzero(labels == label)[: int((real.labels == label).sum())] for label in np.unique(real.labels)
    ]
    chosen = np.concatenate(own)
    others = np.setdiff1d(np.arange(len(left)), chosen)
    return np.concatenate([chosen, others])[: len(real)]


def nonprivate_clients(
    context: AuditContext, group: Sequence[Records], name: str
) -> tuple[NonPrivateRelease, ...]:
    """Releases of clients that hold these control records: one, or one for each client where they are summed up.

    Args:
        context: See `nonprivate_releases`.
        group: Records of each client.
        name: Of the release, for its random streams.

    Raises:
        NotRunError: The method cannot be run on them.
    """
    if summed_only(context.view):
        return tuple(_run(context, [client], f"{name}/{number}", True) for number, client in enumerate(group))
    return (_run(context, group, name, False),)


def _run(context: AuditContext, group: Sequence[Records], number: int | str, alone: bool) -> NonPrivateRelease:
    """Run the method on these clients, beside others without records where only their sum is seen."""
    seeds = control_seeds(context, "exposure", number)
    nobody = context.data.control.take(np.zeros(0, np.int64))
    named = [client.take(np.arange(len(client)), f"client/{i}") for i, client in enumerate(group)]
    total = max(len(context.data.clients), len(named))
    # A method may be set up for as many clients as the plan has, or refuse clients without records.
    padded = [*named, *(nobody.take(np.zeros(0, np.int64), f"client/{i}") for i in range(len(named), total))]
    attempts = [padded, named] if alone else [named, padded]
    reason = ""
    for clients in attempts:
        try:
            outcome = context.method.run_nonprivate(clients, seeds)
        except FedassayError as error:
            reason = reason or str(error)
            continue
        return NonPrivateRelease(tuple(clients), outcome, visible(outcome, context.view.threat))
    raise NotRunError(f"the method could not be run without privacy on control records: {reason}")


def _too_few(held: int, least: int, context: AuditContext) -> str:
    return (
        f"of the {len(context.data.control)} records of the control role, {held} can be given away; an end-to-end "
        f"positive control takes {least}: give data.split.control at least {least - held} more"
    )
