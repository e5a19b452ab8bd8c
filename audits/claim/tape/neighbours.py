"""Neighbouring records to hold declared sensitivities against: one record of a client, replaced again and again.

In every client one place is chosen: the only record of a class where there is one, else one of its rarest or of
its largest class. The fillings are extreme in the space of features, not of images: the largest norms along and
against the records' mean, all coordinates at once (which finds clipping per coordinate), single coordinates,
angles that are worst for second moments, duplicates. Methods that look at images get images as extreme. Any two
fillings of one place are neighbours under replacement, and the empty place is a neighbour of each where records
are added and removed.

Where the unit is a person or a client, all of its records are filled: alike, which is the worst for means of
records; and with pairs that cancel beside one that does not, which shows whether counts, sums and second moments
of a unit are clipped together or one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.data.records import Records
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Ints

Labels = tuple[int, ...]
"""Labels of the records of a unit, in their order."""

_LARGE = 1e3
"""Norm of what is put in, in multiples of the records' largest."""

_FAR = 1e4
"""By how much an image is out of range."""

Label = Literal["own", "absent", "rarest", "next", "after"]


@dataclass(frozen=True)
class Filling:
    """Replacement of a record.

    Attributes:
        name: In words.
        vector: From the client's features, the place and a generator to the features (d,) put there; None: the
            record is removed.
        image: From the client's image at that place and a generator to the image put there.
        label: Its class: its own, one that the client has no record of, its rarest, or one of the next two.
        beside: Further records of a unit of three or more, in pairs of opposite signs; None: the same.
    """

    name: str
    vector: Callable[[Floats, int, np.random.Generator], NDArray[np.float64]] | None
    image: Callable[[Images, np.random.Generator], Images]
    label: Label = "own"
    beside: Filling | None = None


@dataclass(frozen=True)
class Changed:
    """A client with one unit filled.

    Attributes:
        records: The client's records.
        place: Of the unit among the client's units, in their order.
        units: How many there are in the unchanged client.
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


def fillings(adjacency: Adjacency, unit: Unit = "record") -> tuple[Filling, ...]:
    """Fillings that are tried, the strongest first."""
    tried = _of_records(adjacency)
    if unit == "record":
        return tried
    moved: tuple[Label, Label] = ("own", "own") if adjacency == "replace_one_same_label" else ("next", "after")
    return (*tried[:3], _beside(_ONES, _AXIS, moved[0]), _beside(_MINUS_ONES, _OTHER_AXIS, moved[1]), *tried[3:])


def _of_records(adjacency: Adjacency) -> tuple[Filling, ...]:
    """Fillings in the place of one record."""
    if adjacency == "replace_one_same_label":
        return (
            _ONES,
            _MINUS_ONES,
            _ANGLE,
            _AXIS,
            _AGAINST,
            _OTHER_AXIS,
            _SIGNS,
            _ZERO,
            _ALONG,
            _MINUS_AXIS,
            _AGAIN,
        )
    if adjacency == "replace_one":
        moved = (_at(_MINUS_ONES, "next"), _ANGLE, _at(_AXIS, "absent"), _at(_AGAINST, "rarest"))
        return (_ONES, *moved, _OTHER_AXIS, _MINUS_ONES, _at(_SIGNS, "next"), _ZERO, _ALONG, _MINUS_AXIS, _AGAIN)
    added = (_ONES, _at(_AXIS, "absent"), _MINUS_ONES, _at(_SIGNS, "rarest"), _AGAINST, _at(_ZERO, "next"))
    return (_EMPTY, *added, _ALONG, _MINUS_AXIS, _at(_AGAIN, "absent"), _ANGLE)


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


def _at(filling: Filling, label: Label) -> Filling:
    words = {
        "own": "",
        "absent": " of an absent class",
        "rarest": " of the rarest class",
        "next": " of another class",
        "after": " of the class after",
    }
    return Filling(filling.name + words[label], filling.vector, filling.image, label)


def _beside(filling: Filling, pairs: Filling, label: Label) -> Filling:
    """A filling of units of several records, with other records that cancel."""
    words = f"pairs of opposite records beside {filling.name}"
    return Filling(words, filling.vector, filling.image, filling.label, _at(pairs, label))


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12), dtype=np.float64)


def _large(features: Floats, direction: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(features.astype(np.float64), axis=1)
    return np.asarray(_LARGE * max(1.0, float(norms.max(initial=0.0))) * _unit(direction), dtype=np.float64)


def _ones(sign: float) -> Callable[[Floats, int, np.random.Generator], NDArray[np.float64]]:
    return lambda features, _place, _rng: _large(features, np.full(features.shape[1], sign))


def _axis(sign: float, skipped: int) -> Callable[[Floats, int, np.random.Generator], NDArray[np.float64]]:
    def vector(features: Floats, _place: int, rng: np.random.Generator) -> NDArray[np.float64]:
        width = features.shape[1]
        own = np.zeros(width)
        own[(int(rng.integers(width)) + skipped) % width] = sign
        return _large(features, own)

    return vector


def _mean(sign: float) -> Callable[[Floats, int, np.random.Generator], NDArray[np.float64]]:
    def vector(features: Floats, place: int, _rng: np.random.Generator) -> NDArray[np.float64]:
        rest = np.delete(features.astype(np.float64), place, axis=0)
        return _large(features, sign * rest.mean(axis=0) if len(rest) else np.ones(features.shape[1]))

    return vector


def _angle(features: Floats, _place: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """At 120 degrees to the vector of ones: the worst of replaced (x, x x') by calculus."""
    ones = _unit(np.ones(features.shape[1]))
    drawn: NDArray[np.float64] = rng.standard_normal((features.shape[1],))
    across = _unit(np.asarray(drawn - float(drawn @ ones) * ones))
    return _large(features, -0.5 * ones + np.sqrt(0.75) * across)


def _signs(features: Floats, _place: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return _large(features, rng.choice([-1.0, 1.0], features.shape[1]))


def _of_value(value: int) -> Callable[[Images, np.random.Generator], Images]:
    return lambda image, _rng: np.full_like(image, value)


def _noisy(image: Images, rng: np.random.Generator) -> Images:
    return np.asarray(rng.integers(0, 256, image.shape), dtype=np.uint8)


def _dot(image: Images, rng: np.random.Generator) -> Images:
    found = np.zeros_like(image)
    found.reshape(-1)[int(rng.integers(found.size))] = 255
    return found


def _checked(image: Images, _rng: np.random.Generator) -> Images:
    places = np.add.outer(np.arange(image.shape[0]), np.arange(image.shape[1]))
    return np.asarray(np.broadcast_to((255 * (places % 2))[:, :, None], image.shape), dtype=np.uint8)


SAME_LABEL = Filling("all coordinates large", _ones(1.0), _of_value(255))
"""Filling in the place of a record of every class."""
_EMPTY = Filling("no record", None, _of_value(0))
_ONES = SAME_LABEL
_MINUS_ONES = Filling("all coordinates large and negative", _ones(-1.0), _of_value(0))
_ANGLE = Filling("a large vector at 120 degrees", _angle, _noisy)
_AXIS = Filling("one large coordinate", _axis(1.0, 0), _dot)
_OTHER_AXIS = Filling("another large coordinate", _axis(1.0, 1), lambda image, rng: 255 - _dot(image, rng))
_MINUS_AXIS = Filling("one large negative coordinate", _axis(-1.0, 0), lambda image, _rng: image[::-1])
_ALONG = Filling("a large vector along the mean", _mean(1.0), lambda image, _rng: image // 2)
_AGAINST = Filling("a large vector against the mean", _mean(-1.0), lambda image, _rng: 255 - image)
_SIGNS = Filling("large coordinates of random signs", _signs, _checked)
_ZERO = Filling("the zero vector", lambda features, _place, _rng: np.zeros(features.shape[1]), _of_value(127))
_AGAIN = Filling(
    "a duplicate", lambda features, place, _rng: features[place - 1].astype(np.float64), lambda i, _r: i
)
