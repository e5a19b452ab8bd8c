"""Membership of whole clients: does a release reveal whether it used a client's records or a stranger's?

A client's participation is no secret from a server that receives its message; its records are. So a client is
swapped as a whole: for as many records that no client holds, label by label the same, by a fair coin in every run
of the method anew, as single records are (`fedassay.audits.membership.worst_record`). The two possible federations
differ in one replaced client, which a claim for clients speaks of, once under replacement and in two steps under
`add_remove`. A claim for records or persons allows what as many steps of it allow, which is soon everything: then
nothing is claimed of clients, and any inference is a leak.

Two tests at half of the level each: the client inferred most often, all bounds at once; and the guesses of all
clients together, as a lower bound on epsilon: their coins are the canaries of a one-run audit (Mahloujifar, Melis
and Chaudhuri 2024). Where so few clients in so few runs cannot show more than is allowed, the verdict is
`inconclusive`, with the number of runs that would suffice.

- `own`: the clients' own records against strangers'.
- `canaries`: clients of one image each, an image of independent pixels, against clients of its inverse, which is
  of another class where the adjacency lets a label change. The mean of identical records is an extreme point of
  what a client can add to a sum, where sensitivities are attained.
- `property`: clients that hold a share of their records of one class, against clients that hold none of it, by an
  adversary who knows none of their records (`fedassay.audits.membership.properties`).

Positive control: the same of one client of control records, as the method sends them without privacy in the form
in which it gives records away most. Negative: the same guesses against coins drawn after the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from fedassay.audits.membership.client_canaries import canary_clients, canary_guesses, emptied, smallest
from fedassay.audits.membership.judging import membership
from fedassay.audits.membership.properties import Property
from fedassay.audits.membership.separation import NOTHING, Allowed, allowed_by
from fedassay.audits.membership.swaps import Swaps
from fedassay.audits.membership.worst_record import Risk, known_swaps, risk_finding
from fedassay.audits.verdict import not_run
from fedassay.contracts.audit import AttackedContext
from fedassay.data.groups import units_of
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.types import Ints

Hold = Literal["own", "canaries", "property"]


def client_finding(context: AttackedContext, hold: Hold, most: int, runs: int) -> Finding:
    """The risk of the most exposed client, and of all together.

    Args:
        context: The method, the attack and the records.
        hold: Records that the swapped clients hold.
        most: Clients at most, the smallest ones.
        runs: Runs of the method; guesses are made on half of them.
    """
    try:
        return risk_finding(context, _own(context, most) if hold == "own" else _canaries(context, most), runs)
    except NotRunError as error:
        return not_run(membership("clients", hold), error.why)


def _own(context: AttackedContext, most: int) -> Risk:
    swaps = own_clients(context, most)
    told = known_swaps(context, "client", "one client of {records} control records, one of a label")
    allowed, remarks = allowed_of_client(context, swaps)
    about = f"{len(swaps.inside)} clients of {_sizes(swaps.inside)} records, against as many strangers'"
    return Risk("client", "own", swaps, told, allowed, (about, *remarks), "client_runs", pooled=True)


def _canaries(context: AttackedContext, most: int) -> Risk:
    swaps = canary_clients(context, smallest(context.data.clients, most))
    allowed, remarks = allowed_of_client(context, swaps)
    about = (
        f"{len(swaps.inside)} clients of {_sizes(swaps.inside)} records of one image of noise, against the "
        "inverse; the adversary reads every message along the direction in which the two differ"
    )
    return Risk(
        "client",
        "canaries",
        swaps,
        (swaps, "the same canary clients"),
        allowed,
        (about, *remarks),
        "client_runs",
        pooled=True,
        guess=canary_guesses,
    )


def own_clients(context: AttackedContext, most: int) -> Swaps:
    """The smallest clients' records, and as many of records that no client holds, label by label the same.

    Where there are too few of these, every client's part shrinks alike, but none becomes empty.

    Raises:
        NotRunError: No client has a record, or there is no stranger's record of one of their labels.
    """
    chosen = smallest(context.data.clients, most)
    unseen = context.data.test.without(*context.data.clients)
    if unseen.groups is not None and all(client.groups is not None for client in context.data.clients):
        there = np.concatenate([client.groups for client in context.data.clients if client.groups is not None])
        unseen = unseen.take(np.flatnonzero(~np.isin(unseen.groups, there)))
    rng = context.seeds.numpy("membership", "clients", "chosen")
    inside: list[list[Ints]] = [[] for _ in chosen]
    outside: list[list[Ints]] = [[] for _ in chosen]
    for label in range(context.data.classes):
        own = [rng.permutation(np.flatnonzero(context.data.clients[place].labels == label)) for place in chosen]
        pool = rng.permutation(np.flatnonzero(unseen.labels == label))
        scale = min(1.0, len(pool) / max(1, sum(map(len, own))))
        for number, places in enumerate(own):
            size = min(len(pool), max(int(len(places) > 0), int(len(places) * scale)))
            inside[number].append(places[:size])
            outside[number].append(pool[:size])
            pool = pool[size:]
    rows = [np.concatenate(parts).astype(np.int64) for parts in inside]
    if not all(len(each) for each in rows):
        raise NotRunError(f"{len(unseen)} records that no client holds are too few to stand in for clients")
    return Swaps(
        emptied(context.data.clients, chosen),
        tuple(context.data.clients[place].name for place in chosen),
        tuple(context.data.clients[place].take(own) for place, own in zip(chosen, rows, strict=True)),
        tuple(unseen.take(np.concatenate(parts).astype(np.int64)) for parts in outside),
        context.game.population,
    )


def property_finding(context: AttackedContext, asked: Property, runs: int) -> Finding:
    """Finding on how often clients with a property are identified.

    Args:
        context: The method, the attack and the records.
        asked: The property, and the clients.
        runs: Runs of the method; guesses are made on half of them.
    """
    allowed, remarks = allowed_of_client(context, asked.swaps)
    about = (
        f"{asked.words}, drawn anew in every run from records that no client holds; the adversary knows everybody "
        "else's records and none of these clients', and learns from clients made of its own records"
    )
    risk = Risk(
        "client",
        "property",
        asked.swaps,
        (asked.swaps, "the same clients"),
        allowed,
        (about, *remarks),
        "client_runs",
        pooled=True,
        guess=asked.guesses,
        drawn=True,
    )
    try:
        return risk_finding(context, risk, runs)
    except NotRunError as error:
        return not_run(membership("clients", "property"), error.why)


def allowed_of_client(context: AttackedContext, swaps: Swaps) -> tuple[Allowed | None, tuple[str, ...]]:
    """Return the claim's allowance for a replaced client, None where that is everything; and remarks on it."""
    claim = context.outcome.transcript.claim
    if not isinstance(claim, PrivacyClaim):
        return None, ()
    if claim.unit == "client":
        return allowed_by(claim, replaced=True), ()
    steps = max(
        len(units_of(each.labels, each.groups if claim.unit == "person" else None).labels)
        for each in (*swaps.inside, *swaps.outside)
    )
    # A claim for one person or record covers a client in as many steps as the client has persons or records.
    of_one = claim.model_copy(update={"unit": "record"})
    allowed = allowed_by(of_one, replaced=True, records=steps)
    words = f"({allowed.epsilon:g}, {allowed.delta:.3g}) for one replaced client of up to {steps} {claim.unit}s"
    if allowed.delta >= NOTHING:
        stated = f"({claim.epsilon:g}, {claim.delta:g}) is claimed for one {claim.unit}"
        return None, (f"nothing is claimed of a client of {steps} {claim.unit}s: {stated}",)
    return replace(allowed, words=words), ()


def _sizes(units: Sequence[Records]) -> str:
    sizes = sorted({len(each) for each in units})
    return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
