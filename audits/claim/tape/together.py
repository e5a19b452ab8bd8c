"""Distance by which one record moves the releases of all clients together.

A choice that all clients make alike, as by the set of classes that any of them holds, depends on all records: one
record that changes it moves every release. Usual data has many records of every class, so that no single record
changes it. The audit therefore relabels all clients' records of one class but one, and replaces or removes that
one. Nor do usual clients hold copies of each other's records, by which a client may know which of its own to leave
out: so every client is given a copy of one record, and one client's copy is replaced.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedassay.audits.claim.tape.coverage import Covered
from fedassay.audits.claim.tape.others import with_others
from fedassay.audits.claim.tape.replays import Replays
from fedassay.audits.claim.tape.streams import squared_distance
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.privacy.tape import Draw, Key, TapeEntry
from fedassay.support.adjacency import class_counts_public, record_counts_public

ROUNDING = 1e-3
"""Share of mu that a distance may be above it by rounding."""


def moved_together(replays: Replays, cells: Sequence[Covered], claim: PrivacyClaim, mu: float | None) -> str:
    """Return how far one record moves all releases, in words, if uncharged; empty where that is within mu.

    Args:
        replays: Replays of the run.
        cells: The protection of each noised field.
        claim: The privacy claim.
        mu: Total mu of the ledger where all noise is Gaussian; None: it is not.
    """
    clients = replays.context.data.clients
    held = [number for number, client in enumerate(clients) if len(client) > 1]
    if claim.unit != "record" or mu is None or not math.isfinite(mu) or not held:
        return ""
    largest = max(held, key=lambda number: len(clients[number]))
    # The first or the last client that holds a copy may be the one to send it.
    tried = (_last_of_a_class(replays.context, claim, largest), _copies(clients, claim, (held[0], held[-1])))
    for each in filter(None, tried):
        first = replays(each.clients).tape.draws
        for holder, without in each.without.items():
            moved = distance(cells, first, replays(without).tape.draws)
            if moved > mu * (1 + ROUNDING):
                return (
                    f"{each.record}, which {clients[holder].name} holds, moves the releases of all clients "
                    f"together by {moved:.4g}, above the declared mu of {mu:.4g}"
                )
    return ""


class _Held(NamedTuple):
    """The records of all clients with a certain record, and by its holder those without it or with another one."""

    record: str
    clients: tuple[Records, ...]
    without: dict[int, tuple[Records, ...]]


def _last_of_a_class(context: AuditContext, claim: PrivacyClaim, holder: int) -> _Held | None:
    """The only record of a class at any client; None where the classes that clients hold are public."""
    if class_counts_public(claim.adjacency) or context.data.classes < 2:
        return None
    label = int(context.data.clients[holder].labels[0])
    after = (label + 1) % context.data.classes
    bare = [each.relabelled(np.where(each.labels == label, after, each.labels)) for each in context.data.clients]
    labels = bare[holder].labels.copy()
    labels[0] = label
    own = bare[holder].relabelled(labels)
    without = bare[holder] if record_counts_public(claim.adjacency) else own.take(np.arange(1, len(own)))
    name = f"the only record of class {label} at any client"
    return _Held(name, _at(bare, holder, own), {holder: _at(bare, holder, without)})


def _copies(clients: Sequence[Records], claim: PrivacyClaim, holders: Sequence[int]) -> _Held:
    """A record that every client has a copy of; one client's is removed, or another one takes its place."""
    place = np.zeros(1, np.int64)
    record = clients[holders[0]].take(place)
    other = Records("", 255 - record.images, record.labels, lambda _images: -record.features)
    given = [with_others(each, place, record) if len(each) else each for each in clients]
    without = {
        holder: with_others(given[holder], place, other)
        if record_counts_public(claim.adjacency)
        else given[holder].take(np.arange(1, len(given[holder])))
        for holder in holders
    }
    worlds = {holder: _at(given, holder, own) for holder, own in without.items()}
    return _Held("a record that every client has a copy of", tuple(given), worlds)


def _at(clients: Sequence[Records], place: int, own: Records) -> tuple[Records, ...]:
    return tuple(own if number == place else each for number, each in enumerate(clients))


def distance(cells: Sequence[Covered], first: Mapping[Key, TapeEntry], second: Mapping[Key, TapeEntry]) -> float:
    """Return the distance between the inputs of all draws in two runs, in deviations of their noise.

    Inputs that leave only in a secure sum are added over its senders before its one noise is added.
    """
    total = 0.0
    summed: dict[object, list[tuple[Draw, Draw]]] = defaultdict(list)
    deviations: dict[object, float] = {}
    for number, covered in enumerate(cells):
        for entry in covered.draws if covered.deviation > 0 else ():
            one, two = first.get(entry.key), second.get(entry.key)
            if isinstance(one, Draw) and isinstance(two, Draw) and one.exact.shape == two.exact.shape:
                of_sum = covered.release.shares > 1
                where: object = replace(entry.key, sender="") if of_sum else (number, entry.key)
                summed[where].append((one, two))
                deviations[where] = covered.deviation
    for name, pairs in summed.items():
        one, two = pairs[0]
        moved = sum((b.exact - a.exact for a, b in pairs), np.zeros(one.shape))
        square = squared_distance(replace(one, exact=np.zeros(one.shape)), replace(two, exact=moved))
        total += square / deviations[name] ** 2
    return math.sqrt(total)
