"""Neighbouring records to hold declared sensitivities against: one record of a client, replaced again and again.

In every client one place is chosen: the only record of a class where there is one, else one of its rarest or of
its largest class. What is put there is extreme where features are made, not where images are: the largest norms
along and against the records' mean, all coordinates at once (which finds clipping per coordinate), single
coordinates, angles that are worst for second moments, duplicates. Methods that look at images get images as
extreme. Any two fillings of one place are neighbours under replacement, and the empty place is a neighbour of each
where records are added and removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.data.records import Records
from fedassay.support.adjacency import Adjacency
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images

_LARGE = 1e3
"""Norm of what is put in, in multiples of the records' largest."""

_FAR = 1e4
"""By how much an image is out of range."""

Label = Literal["own", "absent", "rarest", "next"]


@dataclass(frozen=True)
class Filling:
    """What is put in the place of a record.

    Attributes:
        name: In words.
        vector: From the client's features, the place and a generator to the features (d,) put there; None: the
            record is removed.
        image: From the client's image at that place and a generator to the image put there.
        label: Which class it has: its own, one that the client has no record of, its rarest, or the next one.
    """

    name: str
    vector: Callable[[Floats, int, np.random.Generator], NDArray[np.float64]] | None
    image: Callable[[Images, np.random.Generator], Images]
    label: Label = "own"


@dataclass(frozen=True)
class Changed:
    """A client with one place filled.

    Attributes:
        records: The client's records.
        place: Where.
        label: Of what is there; None where nothing is.
    """

    records: Records
    place: int
    label: int | None

    @property
    def identities(self) -> NDArray[np.int64]:
        """Places that the records have in the unchanged client, for the coins that neighbours share."""
        own = np.arange(len(self.records) + (self.label is None))
        return np.delete(own, self.place) if self.label is None else own


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


def fillings(adjacency: Adjacency) -> tuple[Filling, ...]:
    """What is tried, the strongest first."""
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


def neighbours(first: int | None, second: int | None, adjacency: Adjacency) -> bool:
    """Whether two fillings of one place are, by their labels; None: the place is empty."""
    if adjacency == "add_remove":
        return (first is None) != (second is None)
    return None not in (first, second) and (adjacency == "replace_one" or first == second)


def filled(
    client: Records, place: int, filling: Filling, classes: int, number: int, *, far: bool = False
) -> Changed:
    """A client with something else in the place of one record.

    Args:
        client: As it is.
        place: Which record.
        filling: What is put there.
        classes: C.
        number: Of the client, which coordinates and signs follow from.
        far: Put an image there whose values no camera gives, for methods that make features of their own.
    """
    if filling.vector is None:
        return Changed(client.take(np.delete(np.arange(len(client)), place)), place, None)
    vector = filling.vector
    labels, images = client.labels.copy(), client.images.copy()
    labels[place] = _label(client, place, filling.label, classes)
    image = filling.image(client.images[place], Seeds(0).numpy("neighbours", number))
    if far:
        # Out of the range of the type, which the methods that make features of images do not ask for.
        floats: NDArray[Any] = images.astype(np.float32)
        floats[place] = _FAR * (image.astype(np.float32) - 127.5)
        images = floats
    else:
        images[place] = image

    def features(_images: Images) -> Floats:
        own = client.features.copy()
        own[place] = vector(client.features, place, Seeds(0).numpy("neighbours", number)).astype(own.dtype)
        return own

    return Changed(Records(client.name, images, labels, features), place, int(labels[place]))


def _label(client: Records, place: int, rule: Label, classes: int) -> int:
    own = int(client.labels[place])
    counts = np.bincount(client.labels, minlength=classes)
    absent, present = np.flatnonzero(counts == 0), np.flatnonzero(counts)
    if rule == "absent" and len(absent):
        return int(absent[0])
    if rule == "rarest":
        return int(present[np.argmin(counts[present])])
    return own if rule == "own" else (own + 1) % classes


def _at(filling: Filling, label: Label) -> Filling:
    words = {
        "own": "",
        "absent": " of an absent class",
        "rarest": " of the rarest class",
        "next": " of another class",
    }
    return Filling(filling.name + words[label], filling.vector, filling.image, label)


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
"""What is put in the place of a record of every class."""
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
