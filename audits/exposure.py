"""The release that a positive control in the release's own shape is made of: one that is known to give records away.

The audited method is run without privacy, by its own `run`, on clients that hold one control record of a class each.
A class sum, a class mean and a component of a mixture is then a record's own feature. Its messages are seen through
the threat model of the cell, so that whatever reads the audited release reads this one on the same way.

Where clients are seen summed up only, one of them holds records and the others hold none; since a sum then holds one
record a class, the method is run several times on other records, and every run is a view of its own.

Controls are shared: cells of one seed that differ in epsilon alone get the same release, made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.audits.simulation import control_seeds
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import visible
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records, joined
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import View
from fedassay.support.errors import FedassayError, NotRunError

MOST_RUNS = 16
"""At most so many runs of a method whose clients are seen summed up only."""


@dataclass(frozen=True)
class Exposure:
    """One run of the method that gives its clients' records away, and what is seen of it.

    Attributes:
        clients: Who holds which control records; a client may hold none.
        outcome: Of the method.
        view: What the cell's threat model shows of it.
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


def exposures(context: AuditContext, records: int, *, least: int = 2) -> tuple[Exposure, ...]:
    """Releases that give about so many control records away: one, or several where clients are summed up.

    Args:
        context: The cell, whose method is run without privacy and whose threat model says what is seen.
        records: Records wanted; a client more is dealt rather than one too few. Fewer come back where the control
            role, or `MOST_RUNS` of them, holds no more.
        least: Fewer than this are no control.

    Raises:
        NotRunError: The control role is too small (by how many records, it says), or the method cannot be run.
    """
    alone = summed_only(context.view)
    key = f"exposure/{context.method_key}/{context.view.threat.model_dump_json()}/{records}/{alone}"
    kept = context.workplace.shared.get(key)
    if not isinstance(kept, tuple):
        dealt = dealt_clients(context, records)
        if alone:
            dealt = dealt[:MOST_RUNS]
        held = sum(len(client) for client in dealt)
        if held < least:
            raise NotRunError(_too_few(held, least, context))
        groups = [[client] for client in dealt] if alone else [dealt]
        kept = tuple(_run(context, group, (number,), alone) for number, group in enumerate(groups))
        context.workplace.shared[key] = kept
    return kept


def dealt_clients(context: AuditContext, records: int) -> list[Records]:
    """Clients of one control record of every class that the real ones hold, until `records` are dealt.

    Clients that are dealt first hold the same records however many follow; the last ones lack classes of which
    there are too few control records.
    """
    control = context.control
    held = np.unique(np.concatenate([client.labels for client in context.clients])) if context.clients else None
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


def exposed_clients(context: AuditContext, group: Sequence[Records], *path: str | int) -> tuple[Exposure, ...]:
    """Releases of clients that hold these control records: one, or one for each client where they are summed up.

    Args:
        context: See `exposures`.
        group: What each client holds.
        path: Names the release, for its random streams.

    Raises:
        NotRunError: The method cannot be run on them.
    """
    if summed_only(context.view):
        return tuple(_run(context, [client], (*path, i), True) for i, client in enumerate(group))
    return (_run(context, group, path, False),)


def _run(context: AuditContext, group: Sequence[Records], path: tuple[str | int, ...], alone: bool) -> Exposure:
    """Run the method on these clients; on one that holds records and others that hold none, where it takes that."""
    seeds = control_seeds(context, "exposure", *path)
    nobody = context.control.take(np.zeros(0, np.int64))
    named = [client.take(np.arange(len(client)), f"client/{i}") for i, client in enumerate(group)]
    total = max(len(context.clients), len(named))
    # A method may be set up for as many clients as the plan has, or refuse clients without records.
    padded = [*named, *(nobody.take(np.zeros(0, np.int64), f"client/{i}") for i in range(len(named), total))]
    attempts = [padded, named] if alone else [named, padded]
    reason = ""
    for clients in attempts:
        try:
            outcome = context.exposed(clients, seeds)
        except FedassayError as error:
            reason = reason or str(error)
            continue
        return Exposure(tuple(clients), outcome, visible(outcome, context.view.threat))
    raise NotRunError(f"the method could not be run without privacy on control records: {reason}")


def _too_few(held: int, least: int, context: AuditContext) -> str:
    return (
        f"the control role has {len(context.control)} records, of which {held} can be given away one a class and "
        f"client; a positive control in the release's own shape takes {least}: give data.split.control at least "
        f"{least - held} more"
    )
