"""Distance by which one record moves the releases of all clients together.

A choice that all clients make alike, as by the set of classes that any of them holds, depends on all records: one
record that changes it moves every release. Usual data has many records of every class, so that no single record
changes it. The audit therefore relabels all clients' records of one class but one, and replaces or removes that
one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedassay.audits.claim.tape.coverage import Covered
from fedassay.audits.claim.tape.replays import Replays
from fedassay.audits.claim.tape.streams import squared_distance
from fedassay.exchange.release import PrivacyClaim
from fedassay.privacy.tape import Draw, Key, TapeEntry
from fedassay.support.adjacency import class_counts_public, record_counts_public

ROUNDING = 1e-3
"""Share of mu that a distance may be above it by rounding."""


def last_of_a_class(replays: Replays, cells: Sequence[Covered], claim: PrivacyClaim, mu: float | None) -> str:
    """Return how far the only record of a class at any client moves all releases, in words, if uncharged.

    The sentence is empty where that is within mu, or the classes that clients hold are public.

    Args:
        replays: Replays of the run.
        cells: The protection of each noised field.
        claim: The privacy claim.
        mu: Total mu of the ledger where all noise is Gaussian; None: it is not.
    """
    context = replays.context
    if claim.unit != "record" or class_counts_public(claim.adjacency) or context.classes < 2:
        return ""
    source = max(range(len(context.clients)), key=lambda number: len(context.clients[number]))
    if mu is None or not math.isfinite(mu) or len(context.clients[source]) < 2:
        return ""
    label = int(context.clients[source].labels[0])
    after = (label + 1) % context.classes
    bare = [each.relabelled(np.where(each.labels == label, after, each.labels)) for each in context.clients]
    labels = bare[source].labels.copy()
    labels[0] = label
    held = bare[source].relabelled(labels)
    without = bare[source] if record_counts_public(claim.adjacency) else held.take(np.arange(1, len(held)))
    first, second = (
        replays(tuple(own if n == source else each for n, each in enumerate(bare))).tape.draws
        for own in (held, without)
    )
    moved = distance(cells, first, second)
    if moved <= mu * (1 + ROUNDING):
        return ""
    return (
        f"the only record of class {label} at any client, which {held.name} holds, moves the releases of all "
        f"clients together by {moved:.4g}, above the declared mu of {mu:.4g}"
    )


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
