"""Other records in the place of the clients', as far as the adjacency lets them differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.support.adjacency import Adjacency
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Ints

_MORE = 5
"""Records that a client has more, where the number is private."""


def other_records(
    context: AuditContext, adjacency: Adjacency, replay: int = 0, *, odd: bool = True
) -> tuple[Records, ...]:
    """Every client with other records: inverted images and moved features of somebody else's records.

    Labels are kept where they are public, and the number of records is where that is public. From the second
    replay on, every client has another size and another kind of labels in each: none, 1, half, one more, twice as
    many; some classes empty, one class alone, skewed, swapped. Somebody always holds records. Without `odd` ones
    sizes and labels are as in the first replay.
    """
    rng = context.seeds.numpy("tape", "other records", *((replay,) if replay else ()))
    kind = replay if odd else 0
    return tuple(
        _another(client, number, context, adjacency, rng, kind)
        for number, client in enumerate(context.data.clients)
    )


def with_others(client: Records, places: Ints, others: Records) -> Records:
    """A client with other records at some places, as many as there are places; groups stay."""
    images, labels = client.images.copy(), client.labels.copy()
    images[places], labels[places] = others.images, others.labels

    def features(_images: Images) -> Floats:
        own = client.features.copy()
        own[places] = others.features
        return own

    return Records(client.name, images, labels, features, client.groups)


def _size(own: int, number: int, replay: int) -> int:
    """Number of a client's records in a replay where the number is private."""
    if replay == 0:
        return own + _MORE
    sizes = (own + 1, own // 2, 2 * own, 1, own + 1, 0)
    kind = (number + replay) % len(sizes)
    # The first client never has none: without any record no statistic is made.
    return max(1, sizes[kind]) if number == 0 else sizes[kind]


def _labels(client: Records, size: int, kind: int, classes: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Labels of one of several kinds."""
    if kind == 1:
        return np.full(size, rng.integers(classes), np.int64)
    if kind == 2:
        return rng.integers(0, max(1, classes // 2), size).astype(np.int64)
    if kind == 3:
        return np.minimum(rng.geometric(0.6, size) - 1, classes - 1).astype(np.int64)
    if kind == 4 and len(client):
        return ((np.resize(client.labels, size) + 1) % classes).astype(np.int64)
    return rng.integers(0, classes, size).astype(np.int64)


def _another(
    client: Records,
    number: int,
    context: AuditContext,
    adjacency: Adjacency,
    rng: np.random.Generator,
    replay: int,
) -> Records:
    size = _size(len(client), number, replay) if adjacency == "add_remove" else len(client)
    source = _source(client, context.data.clients, context.data.test)
    chosen = rng.integers(0, len(source), size)
    labels = client.labels
    if adjacency != "replace_one_same_label":
        kind = (number + replay) % 5 if replay else 0
        labels = _labels(client, size, kind, context.data.classes, rng)
    noise_of = _moved(source, chosen, int(rng.integers(1 << 62)))
    groups = client.groups
    if groups is not None:
        # A person that joins it is at no other client.
        base = -1 - (_MORE + 2 * sum(map(len, context.data.clients))) * number
        groups = np.concatenate([groups[:size], base - np.arange(max(0, size - len(client)))])
    return Records(client.name, 255 - source.images[chosen], labels, noise_of, groups)


def _source(client: Records, clients: Sequence[Records], test: Records) -> Records:
    """Somebody else's records, in images of the same shape."""
    others = [each for each in clients if each.name != client.name and len(each)]
    like = [each for each in (*others, test) if each.images.shape[1:] == client.images.shape[1:]]
    return max(like, key=len) if like else client


def _moved(source: Records, chosen: NDArray[np.int64], seed: int) -> Callable[[object], NDArray[np.float32]]:
    """Features of records, moved at random: computed only where a method asks for features."""

    def features(_images: object) -> NDArray[np.float32]:
        own = source.features[chosen]
        if not len(own):
            return own
        noise = Seeds(0).numpy("tape", "features", seed).standard_normal(own.shape)
        spread = float(np.sqrt(np.mean(own.astype(np.float64) ** 2))) or 1.0
        return np.asarray(own + spread * noise, dtype=own.dtype)

    return features
