"""Records at the boundary of a client's domain, and clients with hardly any.

A branch that a usual record never takes may send anything without noise. So every client in turn gets a rare kind
of record, of another kind than the clients beside it: a record with a blank or saturated image, with the features
that the backbone makes of it; features that are zero, outsized by six factors, or no finite numbers; one record
again and again; a class with a single record, or one class alone; no record, one, two, and one or two of each
class. Only what the adjacency lets differ is changed: a method may refuse such records, but it may not send
something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.audits.claim.tape.neighbours import place_of
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.support.adjacency import Adjacency, class_counts_public, record_counts_public
from fedassay.support.errors import NotRunError
from fedassay.support.types import Floats, Images, Ints

_FACTORS = (1.5, 3.0, 10.0, 30.0, 100.0, 1000.0)
"""Norms of outsized features, in multiples of the records' largest."""

_FEW = 3
"""Replays at most where they take long: all kinds of records in so many clients as there are."""


@dataclass(frozen=True)
class _Given:
    """Sources of rare records: the backbone, the number of classes, and the parts that may differ."""

    encode: Callable[[Images], Floats]
    classes: int
    labels: bool
    sizes: bool


_Kind = Callable[[Records, _Given], Records | None]
"""From a client's records, at least one, to rare ones; None: the adjacency does not let these differ."""


@dataclass(frozen=True)
class World:
    """Records of every client, some of them rare.

    Attributes:
        clients: In their order.
        kinds: Rare kind of each client, in words, by its place.
    """

    clients: tuple[Records, ...]
    kinds: dict[int, str]

    @property
    def words(self) -> str:
        """Words on the kinds of rare records and their clients."""
        return ", ".join(f"{kind} at {self.clients[place].name}" for place, kind in self.kinds.items())


def boundary_worlds(context: AuditContext, adjacency: Adjacency, *, few: bool) -> Iterator[World]:
    """Worlds in which every client holds something rare.

    Args:
        context: Of the run.
        adjacency: The relation; parts that it makes public are left as they are.
        few: Make `_FEW` worlds at most, in which each kind is at some client, where there are clients enough; else
            every client gets every kind.
    """
    given = _Given(
        context.data.encode,
        context.data.classes,
        labels=not class_counts_public(adjacency),
        sizes=not record_counts_public(adjacency),
    )
    kinds = [(name, kind) for name, kind in _KINDS.items() if _applies(kind, context.data.clients, given)]
    clients = context.data.clients
    step = max(1, len(clients)) if few else 1
    shifts = range(0, len(kinds), step)
    for shift in list(shifts)[: _FEW if few else len(kinds)]:
        made, named = list(clients), {}
        for place, client in enumerate(clients):
            name, kind = kinds[(shift + place) % len(kinds)]
            own = kind(client, given) if len(client) else None
            if own is not None:
                made[place], named[place] = own, name
        # Without any record no statistic is made.
        if named and any(map(len, made)):
            yield World(tuple(made), named)
    held = [place for place, client in enumerate(clients) if len(client)]
    for place, (name, kind) in zip(held, _NO_NUMBERS.items(), strict=False):
        own = kind(clients[place], given)
        if own is not None:
            yield World((*clients[:place], own, *clients[place + 1 :]), {place: name})


def of_two_records(clients: Sequence[Records]) -> tuple[Records, ...]:
    """Clients cut to the record at their `place_of` and the one after it; the first is itself again if alone."""
    cut = []
    for number, client in enumerate(clients):
        place = place_of(client, number) if len(client) else 0
        cut.append(client.take(np.array([place, (place + 1) % len(client)])) if len(client) else client)
    return tuple(cut)


def alone(world: World, clients: Sequence[Records]) -> Iterator[World]:
    """Worlds with each of the rare clients of one, beside the others as they are."""
    for place, kind in world.kinds.items():
        made = list(clients)
        made[place] = world.clients[place]
        if len(world.kinds) > 1 and any(map(len, made)):
            yield World(tuple(made), {place: kind})


def _applies(kind: _Kind, clients: Sequence[Records], given: _Given) -> bool:
    return any(kind(client, given) is not None for client in clients if len(client))


def _with(
    client: Records,
    *,
    images: Images | None = None,
    labels: Ints | None = None,
    features: Callable[[Floats], Floats] | None = None,
) -> Records:
    """A client with some of its records changed; features are computed only where a method asks for them."""
    return Records(
        client.name,
        client.images if images is None else images,
        client.labels if labels is None else labels,
        lambda _images: client.features if features is None else features(client.features.copy()),
        client.groups,
    )


def _filled(value: int, *, all_of_them: bool = False) -> _Kind:
    """One image of one value, or all, with the features that the backbone makes of it."""

    def kind(client: Records, given: _Given) -> Records:
        changed = slice(None) if all_of_them else slice(0, 1)
        images = client.images.copy()
        images[changed] = value

        def features(own: Floats) -> Floats:
            try:
                own[changed] = given.encode(images[:1])[0]
            except NotRunError:
                own[changed] = own.max(axis=0) if value else 0
            return own

        return _with(client, images=images, features=features)

    return kind


def _of_zeros(client: Records, _given: _Given) -> Records:
    def features(own: Floats) -> Floats:
        own[0] = 0
        return own

    return _with(client, features=features)


def _outsized(client: Records, _given: _Given) -> Records:
    """Longer than any other record by several factors, one record each; images of the largest contrast."""
    count = min(len(client), len(_FACTORS))
    images = client.images.copy()
    images[:count] = np.where(images[:count] > 127, 255, 0)

    def features(own: Floats) -> Floats:
        norms = np.linalg.norm(own.astype(np.float64), axis=1)
        largest = float(norms.max(initial=0.0)) or 1.0
        for row, factor in enumerate(_FACTORS[:count]):
            along = own[row] / norms[row] if norms[row] else np.full(own.shape[1], own.shape[1] ** -0.5)
            own[row] = factor * largest * along
        return own

    return _with(client, images=images, features=features)


def _not_finite(value: float) -> _Kind:
    def kind(client: Records, _given: _Given) -> Records:
        def features(own: Floats) -> Floats:
            own[0, 0] = value
            return own

        return _with(client, features=features)

    return kind


def _again_and_again(client: Records, _given: _Given) -> Records:
    images = np.repeat(client.images[:1], len(client), axis=0)
    return _with(client, images=images, features=lambda own: np.repeat(own[:1], len(own), axis=0))


def _lone(client: Records, given: _Given) -> Records | None:
    """A class of one record beside a class of all others."""
    if not given.labels or given.classes < 2:
        return None
    labels = np.full(len(client), client.labels[0], np.int64)
    labels[-1] = (client.labels[0] + 1) % given.classes
    return _with(client, labels=labels)


def _one_class(client: Records, given: _Given) -> Records | None:
    return _with(client, labels=np.full(len(client), given.classes - 1, np.int64)) if given.labels else None


def _first(count: int) -> _Kind:
    def kind(client: Records, given: _Given) -> Records | None:
        return client.take(np.arange(min(count, len(client)))) if given.sizes else None

    return kind


def _of_each_class(count: int) -> _Kind:
    def kind(client: Records, given: _Given) -> Records | None:
        if not given.sizes:
            return None
        found = [np.flatnonzero(client.labels == label)[:count] for label in range(given.classes)]
        return client.take(np.concatenate(found))

    return kind


_KINDS: dict[str, _Kind] = {
    "a blank image": _filled(0),
    "a saturated image": _filled(255),
    "outsized records": _outsized,
    "no record": _first(0),
    "one record of each class": _of_each_class(1),
    "a record alone in its class": _lone,
    "features of zeros": _of_zeros,
    "one record again and again": _again_and_again,
    "one record": _first(1),
    "two records of each class": _of_each_class(2),
    "one class alone": _one_class,
    "blank images alone": _filled(0, all_of_them=True),
    "two records": _first(2),
}
"""Kinds of rare records, first those that most branches depend on."""

_NO_NUMBERS: dict[str, _Kind] = {
    "a record that is no number": _not_finite(np.nan),
    "a record that is infinite": _not_finite(np.inf),
}
"""Kinds that many methods refuse: tried at one client each, so that the others' rare records are not refused with
it."""
