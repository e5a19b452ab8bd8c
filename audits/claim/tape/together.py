"""Distance by which one record moves the releases of all clients together.

A choice that clients make alike, as by the classes that any of them holds, is no client's own: the record that
tips it moves every release. Other records of usual data hold all classes, and tip nothing. So all clients' records
of one class get another label but one record, which is then replaced or removed.
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

    Empty where that is within mu, or the classes that clients hold are public.

    Args:
        replays: Of the run.
        cells: What protects each noised field.
        claim: What is claimed.
        mu: What the ledger adds up to where all is Gaussian; None: it is not.
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
    """Between what two runs put into all draws, in deviations of their noise.

    What leaves in a secure sum alone adds up over its senders before its one noise is added.
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
