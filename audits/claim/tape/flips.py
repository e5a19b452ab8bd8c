"""The search for two neighbours at which one record changes what is done to all others.

A clip norm, a range, a scale or a centre that a client takes from its own records, as a quantile or rounded, is
the same on most neighbours of one data set. On the way from one data set to another, record by record, there are
two neighbours at which it is not. So every client's records are changed one after the other (made longer, shorter,
given another label, left out), and the half of the way on which its statistics move further is halved again, until
two neighbours are left: about log2 n replays a way, of all clients at once. Between two data sets that are k
records apart statistics may move by k times the sensitivity, which is held on the way as well.

Records that are made longer are long from the start: what clips them moves nothing on that way, and what follows
from their lengths stands out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.data.records import Records
from fedassay.privacy.tape import Key, TapeEntry
from fedassay.support.adjacency import Adjacency, class_counts_public, record_counts_public

Draws = Mapping[Key, TapeEntry]
Moved = Callable[[Draws, Draws, Mapping[str, float], str], Mapping[str, float]]
"""Holds what went into two sets of draws against what so many records apart may move, by sender, and says how far
each sender's have moved."""

_LONG, _SHORT, _FURTHER = 30.0, 1 / 300, 10.0
"""Features at the start of a way, in multiples of themselves, and by how much each record is made longer."""


@dataclass(frozen=True)
class Way:
    """A way from a client's records to others.

    Attributes:
        name: The change of each record, in words.
        start: The client at the start of the way.
        changed: That with its first k records changed.
        apart: Number of steps from neighbour to neighbour that one changed record takes.
    """

    name: str
    start: Callable[[Records], Records]
    changed: Callable[[Records, int], Records]
    apart: float


def ways(adjacency: Adjacency, classes: int) -> tuple[Way, ...]:
    """The ways that the adjacency allows; to replace a record is to remove one and to add one."""
    replaced = 1.0 if record_counts_public(adjacency) else 2.0
    longer = _scaled(_FURTHER)
    found = [
        Way("longer records", lambda client: _scaled(_LONG)(client, len(client)), longer, replaced),
        Way("short records", lambda client: _scaled(_SHORT)(client, len(client)), longer, replaced),
    ]
    if not class_counts_public(adjacency):
        found.append(Way("records of the next class", lambda client: client, _relabelled(classes), replaced))
    if not record_counts_public(adjacency):
        found.append(
            Way(
                "fewer records",
                lambda client: client,
                lambda client, count: client.take(np.arange(count, len(client))),
                1.0,
            )
        )
    return tuple(found)


def walk(
    way: Way,
    clients: Sequence[Records],
    chosen: frozenset[str],
    draw: Callable[[Sequence[Records], str], Draws],
    moved: Moved,
) -> None:
    """Follow one way down to two neighbours in each client.

    Args:
        way: The way.
        clients: Their records as they are.
        chosen: The clients that are followed.
        draw: From changed records of every client, and words, to their draws.
        moved: See `Moved`.
    """
    clients = [way.start(client) if client.name in chosen and len(client) else client for client in clients]
    sizes = {client.name: len(client) for client in clients if client.name in chosen and len(client)}
    # Somebody must hold a record: without any there is nothing to run.
    if way.apart == 1.0 and clients[0].name in sizes:
        sizes[clients[0].name] -= 1
    low, high = dict.fromkeys(sizes, 0), dict(sizes)
    ends = [_of_senders(_drawn(way, clients, each, draw)) for each in (low, high)]
    moving = True
    while moving and (apart := {name: high[name] - low[name] for name in sizes if high[name] - low[name] > 1}):
        middle = {name: (low[name] + high[name]) // 2 for name in sizes}
        found = _of_senders(_drawn(way, clients, middle, draw))
        own, rest = (
            moved(
                _of(one, apart),
                _of(two, apart),
                {name: way.apart * abs(ahead[name] - behind[name]) for name in apart},
                way.name,
            )
            for one, two, behind, ahead in ((ends[0], found, low, middle), (found, ends[1], middle, high))
        )
        # Where neither half moves at all, nothing on the way follows from the records.
        moving = any((*own.values(), *rest.values()))
        for name in apart:
            before = own.get(name, 0.0) >= rest.get(name, 0.0)
            (high if before else low)[name] = middle[name]
            ends[before][name] = found.get(name, {})


def _of_senders(draws: Draws) -> dict[str, Draws]:
    found: dict[str, dict[Key, TapeEntry]] = {}
    for key, entry in draws.items():
        found.setdefault(key.sender, {})[key] = entry
    return dict(found)


def _of(draws: Mapping[str, Draws], senders: Mapping[str, int]) -> Draws:
    return {key: entry for name in senders for key, entry in draws.get(name, {}).items()}


def _drawn(
    way: Way,
    clients: Sequence[Records],
    counts: Mapping[str, int],
    draw: Callable[[Sequence[Records], str], Draws],
) -> Draws:
    changed = [
        way.changed(client, counts[client.name]) if counts.get(client.name) else client for client in clients
    ]
    return draw(changed, way.name)


def _scaled(factor: float) -> Callable[[Records, int], Records]:
    """Features and images times a factor, images within their range."""

    def changed(client: Records, count: int) -> Records:
        images = client.images.copy()
        images[:count] = np.clip(factor * images[:count].astype(np.float64), 0, 255).astype(images.dtype)

        def features(_images: object) -> np.ndarray:
            own = client.features.copy()
            own[:count] *= factor
            return own

        return Records(client.name, images, client.labels, features, client.groups)

    return changed


def _relabelled(classes: int) -> Callable[[Records, int], Records]:
    def changed(client: Records, count: int) -> Records:
        labels = client.labels.copy()
        labels[:count] = (labels[:count] + 1) % classes
        return client.relabelled(labels)

    return changed
