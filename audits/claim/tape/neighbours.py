"""Neighbouring records to hold declared sensitivities against: one record of a client, replaced again and again.

In every client one place is chosen: the only record of a class where there is one, else one of its rarest or of
its largest class, and it is filled (`fedassay.audits.claim.tape.fillings`). Any two fillings of one place are
neighbours under replacement, and the empty place is a neighbour of each where records are added and removed.

Where the unit is a person or a client, all of its records are filled: alike, which is the worst for means of
records; and with pairs that cancel beside one that does not, which shows whether counts, sums and second moments
of a unit are clipped together or one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.fillings import Filling, Label
from fedassay.data.records import Records
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Ints

Labels = tuple[int, ...]
"""Labels of the records of a unit, in their order."""

_FAR = 1e4
"""By how much an image is out of range."""


@dataclass(frozen=True)
class Changed:
    """A client with one unit filled.

    Attributes:
        records: The client's records.
        place: Of the unit among the client's units, in their order.
        units: Number of units in the unchanged client.
        label: Labels of the unit's records; None where there is no unit.
    """

    records: Records
    place: int
    units: int
    label: Labels | None

    @property
    def identities(self) -> NDArray[np.int64]:
        """Places that the units have in the unchanged client, for the coins that neighbours share."""
        own = np.arange(self.units)
        return np.delete(own, self.place) if self.label is None else own


def unit_at(client: Records, place: int, unit: Unit) -> Ints:
    """Places of all records of the unit that a record belongs to."""
    if unit == "client":
        return np.arange(len(client))
    if unit == "record" or client.groups is None:
        return np.array([place])
    return np.flatnonzero(client.groups == client.groups[place])


def labels_at(client: Records, place: int, unit: Unit) -> Labels:
    """Labels of the records of that unit."""
    return tuple(client.labels[unit_at(client, place, unit)].tolist())


def place_in_class(client: Records, number: int) -> int | None:
    """The first record of a class, counted through; None where the client has none of it."""
    found = np.flatnonzero(client.labels == number)
    return int(found[0]) if len(found) else None


def place_of(client: Records, number: int) -> int:
    """The place that is filled in a client, by a rule that does not look at what comes of it."""
    counts = np.bincount(client.labels)
    present = np.flatnonzero(counts)
    label = present[np.argmax(counts[present])] if number % 3 == 2 else present[np.argmin(counts[present])]
    return int(np.flatnonzero(client.labels == label)[-1 if number % 2 else 0])


def neighbours(first: Labels | None, second: Labels | None, adjacency: Adjacency) -> bool:
    """Whether two fillings of one place are, by their labels; None: the place is empty."""
    if adjacency == "add_remove":
        return (first is None) != (second is None)
    return None not in (first, second) and (adjacency == "replace_one" or first == second)


def filled(
    client: Records,
    place: int,
    filling: Filling,
    classes: int,
    number: int,
    *,
    far: bool = False,
    unit: Unit = "record",
) -> Changed:
    """A client with something else in the place of one record, or of all records of the unit that it belongs to.

    Args:
        client: As it is.
        place: Position of the record.
        filling: The replacement.
        classes: C.
        number: Of the client, which coordinates and signs follow from.
        far: Put an image there with values that no camera gives, for methods with features of their own.
        unit: Unit of privacy of the neighbours.
    """
    chosen = unit_at(client, place, unit)
    row, units = _row(client, place, unit)
    if filling.vector is None:
        return Changed(client.take(np.setdiff1d(np.arange(len(client)), chosen)), row, units, None)
    labels, images = client.labels.copy(), client.images.copy()
    # Out of the range of the type, which the methods that make features of images do not ask for.
    changed: NDArray[Any] = images.astype(np.float32) if far else images
    vectors: dict[int, Callable[[], NDArray[np.float64]]] = {}
    # Pairs cancel within a class: they are of one, or of neighbours in the order of the labels.
    anchor = None if filling.beside is None or filling.beside.label == "own" else int(chosen[0])
    ordered = chosen if filling.beside is None else chosen[np.argsort(client.labels[chosen], kind="stable")]
    for each, (own, sign) in zip(ordered.tolist(), _spread(filling, len(chosen)), strict=True):
        labels[each] = _label(client, each if anchor is None else anchor, own.label, classes)
        image = own.image(client.images[each], Seeds(0).numpy("neighbours", number))
        image = image if sign >= 0 else 255 - image
        changed[each] = _FAR * (image.astype(np.float32) - 127.5) if far else image
        vectors[each] = partial(_vector, own, sign, client, each, number)

    def features(_images: Images) -> Floats:
        own = client.features.copy()
        for each, vector in vectors.items():
            own[each] = vector().astype(own.dtype)
        return own

    records = Records(client.name, changed, labels, features, client.groups)
    return Changed(records, row, units, tuple(labels[chosen].tolist()))


def _vector(filling: Filling, sign: float, client: Records, place: int, number: int) -> NDArray[np.float64]:
    """Features of what is put in one place."""
    assert filling.vector is not None
    return sign * filling.vector(client.features, place, Seeds(0).numpy("neighbours", number))


def _spread(filling: Filling, records: int) -> list[tuple[Filling, float]]:
    """Filling of each record of a unit, and its sign: first the pairs that cancel, then the rest."""
    beside = filling.beside
    if beside is None or records < 3:
        return [(filling, 1.0)] * records
    pairs = (records - 1) // 2
    # With an even number of records one is left over, which is nothing but a label.
    left = [(beside, 0.0)] * (records - 1 - 2 * pairs)
    return [*[(beside, 1.0), (beside, -1.0)] * pairs, *left, (filling, 1.0)]


def _row(client: Records, place: int, unit: Unit) -> tuple[int, int]:
    """Place of a unit among a client's, and how many these are."""
    if unit == "client":
        return 0, 1
    if unit == "record" or client.groups is None:
        return place, len(client)
    numbers = np.unique(client.groups)
    return int(np.searchsorted(numbers, client.groups[place])), len(numbers)


def _label(client: Records, place: int, rule: Label, classes: int) -> int:
    own = int(client.labels[place])
    counts = np.bincount(client.labels, minlength=classes)
    absent, present = np.flatnonzero(counts == 0), np.flatnonzero(counts)
    if rule == "absent" and len(absent):
        return int(absent[0])
    if rule == "rarest":
        return int(present[np.argmin(counts[present])])
    return own if rule == "own" else (own + (2 if rule == "after" else 1)) % classes
