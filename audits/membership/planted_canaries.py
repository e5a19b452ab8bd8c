"""Canaries of the membership audit, and the networks that are trained on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import visible
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.models import ScoringModel
from fedassay.support.errors import DataError, NotRunError
from fedassay.support.seeds import Seeds

LEAST = 20
"""Canaries that anything can be shown with, at least."""


def make_canaries(context: AuditContext, count: int, rng: np.random.Generator) -> Records:
    """Test images, each at most once and none of a client's, under labels that are not theirs."""
    free = context.data.test.without(*context.data.clients)
    chosen = rng.permutation(len(free))[:count]
    if len(chosen) < LEAST:
        raise NotRunError(
            f"{len(chosen)} canaries; at least {LEAST} are needed, from records of the test role",
            role="test",
            held=len(chosen),
            needed=LEAST,
        )
    return mislabelled(free.take(np.sort(chosen)), context.data.classes, rng)


def mislabelled(records: Records, classes: int, rng: np.random.Generator) -> Records:
    """The records under labels that are not theirs."""
    labels = (records.labels + rng.integers(1, classes, size=len(records))) % classes
    return replace(records.relabelled(labels), name="canaries")


def canary_network(
    context: AuditContext,
    run: Callable[[Sequence[Records], Seeds], Outcome],
    owner: Records,
    records: Records,
    seeds: Seeds,
    *,
    alone: bool = False,
) -> ScoringModel:
    """The last classifier that the owner, or else the server, sends in a run on these records of its own.

    Args:
        context: The other clients, and the threat model.
        run: The method.
        owner: The client.
        records: Its records.
        seeds: Of the run.
        alone: Whether the other clients hold nothing.
    """
    others = [client.take(np.zeros(0, np.int64)) if alone else client for client in context.data.clients]
    clients = [records if client.name == owner.name else client for client in others]
    try:
        models = visible(run(clients, seeds), context.view.threat).models
    except DataError as error:
        raise NotRunError(f"the method cannot be run on records with canaries: {error}") from None
    own = {number: model for (sender, number), model in models.items() if sender == owner.name}
    seen = own or {number: model for (_, number), model in models.items()}
    if not seen:
        raise NotRunError("the threat model sees no classifier")
    return seen[max(seen)]
