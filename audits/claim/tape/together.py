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
from fedassay.audits.claim.tape.replays import Replays
from fedassay.audits.claim.tape.streams import squared_distance
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.privacy.tape import Draw, Key, TapeEntry
from fedassay.support.adjacency import class_counts_public, record_counts_public
from fedassay.support.types import Floats, Images

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
    clients = replays.context.clients
    held = [number for number, client in enumerate(clients) if len(client) > 1]
    if claim.unit != "record" or mu is None or not math.isfinite(mu) or not held:
        return ""
    largest = max(held, key=lambda number: len(clients[number]))
    pairs = [_last_of_a_class(replays.context, claim, largest)]
    # The first or the last client that holds a copy may be the one to send it.
    pairs += [_copies(replays.context, claim, source) for source in dict.fromkeys((held[0], held[-1]))]
    for pair in filter(None, pairs):
        first, second = (replays(world).tape.draws for world in pair.worlds)
        moved = distance(cells, first, second)
        if moved > mu * (1 + ROUNDING):
            return (
                f"{pair.record}, which {clients[pair.source].name} holds, moves the releases of all clients "
                f"together by {moved:.4g}, above the declared mu of {mu:.4g}"
            )
    return ""


class _Pair(NamedTuple):
    """The records of all clients with a record of one client, and without it or with another one."""

    source: int
    record: str
    worlds: tuple[tuple[Records, ...], tuple[Records, ...]]


def _last_of_a_class(context: AuditContext, claim: PrivacyClaim, source: int) -> _Pair | None:
    """The only record of a class at any client; None where the classes that clients hold are public."""
    if class_counts_public(claim.adjacency) or context.classes < 2:
        return None
    label = int(context.clients[source].labels[0])
    after = (label + 1) % context.classes
    bare = [each.relabelled(np.where(each.labels == label, after, each.labels)) for each in context.clients]
    labels = bare[source].labels.copy()
    labels[0] = label
    held = bare[source].relabelled(labels)
    without = bare[source] if record_counts_public(claim.adjacency) else held.take(np.arange(1, len(held)))
    first, second = (_at(bare, source, own) for own in (held, without))
    return _Pair(source, f"the only record of class {label} at any client", (first, second))


def _copies(context: AuditContext, claim: PrivacyClaim, source: int) -> _Pair:
    """A record that every client has a copy of; one client's is removed, or another one takes its place."""
    own = context.clients[source]
    image, feature, label = own.images[0], own.features[0], int(own.labels[0])
    given = [_with_first(each, image, feature, label) for each in context.clients]
    other = _with_first(own, 255 - image, -feature, label)
    without = other if record_counts_public(claim.adjacency) else own.take(np.arange(1, len(own)))
    return _Pair(source, "a record that every client has a copy of", (tuple(given), _at(given, source, without)))


def _at(clients: Sequence[Records], place: int, own: Records) -> tuple[Records, ...]:
    return tuple(own if number == place else each for number, each in enumerate(clients))


def _with_first(client: Records, image: Images, feature: Floats, label: int) -> Records:
    """A client with something else in the place of its first record."""
    if not len(client):
        return client
    images, labels = client.images.copy(), client.labels.copy()
    images[0], labels[0] = image, label

    def features(_images: Images) -> Floats:
        found = client.features.copy()
        found[0] = feature
        return found

    return Records(client.name, images, labels, features, client.groups)


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
