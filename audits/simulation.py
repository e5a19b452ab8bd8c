"""Releases for controls: of simulated clients, and of raw features.

A method's release of records that no client holds cannot leak anything about the private ones: the negative
control of questions about sets of reconstructions. Raw features leak most: they are the positive control of
attacks on features, and those of records that no client holds the negative one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import View
from fedassay.support.errors import NotRunError
from fedassay.support.seeds import Seeds


def fresh_clients(context: AuditContext, fresh: Records) -> tuple[Records, ...]:
    """Clients with the label counts of the real ones, dealt from fresh records.

    Where there are too few records of a class, all clients' shares of that class shrink alike, to no
    less than one record each while they last.

    Args:
        context: The cell of the imitated clients.
        fresh: Records of the private distribution that no client holds.

    Raises:
        NotRunError: There are too few fresh records for every client to hold one.
    """
    rng = context.seeds.numpy("simulation")
    chosen: list[list[int]] = [[] for _ in context.data.clients]
    for label in range(context.data.classes):
        pool = rng.permutation(np.flatnonzero(fresh.labels == label)).tolist()
        counts = np.array([int((client.labels == label).sum()) for client in context.data.clients])
        scale = min(1.0, len(pool) / max(1, counts.sum()))
        for position, count in enumerate(counts):
            wanted = max(1, int(count * scale)) if count else 0
            chosen[position] += pool[:wanted]
            pool = pool[wanted:]
    if not all(chosen):
        raise NotRunError(
            f"{len(fresh)} records that no client holds are too few to imitate {len(context.data.clients)} "
            f"clients; more records in the attacker role are needed"
        )
    return tuple(
        fresh.take(np.array(sorted(rows), np.int64), client.name)
        for rows, client in zip(chosen, context.data.clients, strict=True)
    )


def control_seeds(context: AuditContext, *path: str | int) -> Seeds:
    """Streams of what the cells of one seed share: their own would hang on which cell comes first."""
    return Seeds(context.seeds.seed or 0).child("controls", *path)


def raw_view(owners: Sequence[Records], context: AuditContext) -> View:
    """View of owners that send the features and labels of their records in the clear."""
    messages = [
        Message(
            0,
            records.name,
            SERVER,
            {
                "features": MessageField(records.features, "features", exact()),
                "labels": MessageField(records.labels, "labels", exact("labels")),
            },
        )
        for records in owners
        if len(records)
    ]
    return View(tuple(messages), context.data.classes, context.view.threat)


def noised(context: AuditContext) -> bool:
    """Whether anything that clients send went through a mechanism of privacy."""
    without = {"exact", "public", "derived"}
    sent = (item for message in context.outcome.transcript.from_clients() for item in message.fields.values())
    return any(item.release.mechanism not in without for item in sent)
