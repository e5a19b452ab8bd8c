"""Records to put in the place of one, extreme in the space of features, not of images.

They are the largest norms along and against the records' mean, all coordinates at once (which finds clipping per
coordinate), single coordinates, angles that are worst for second moments, and duplicates. Methods that look at
images get images as extreme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.types import Floats, Images, Matrix

_LARGE = 1e3
"""Norm of what is put in, in multiples of the records' largest."""

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
    vector: Callable[[Floats, int, np.random.Generator], Matrix] | None
    image: Callable[[Images, np.random.Generator], Images]
    label: Label = "own"
    beside: Filling | None = None


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


def _unit(vector: Matrix) -> Matrix:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12), dtype=np.float64)


def _large(features: Floats, direction: Matrix) -> Matrix:
    norms = np.linalg.norm(features.astype(np.float64), axis=1)
    return np.asarray(_LARGE * max(1.0, float(norms.max(initial=0.0))) * _unit(direction), dtype=np.float64)


def _ones(sign: float) -> Callable[[Floats, int, np.random.Generator], Matrix]:
    return lambda features, _place, _rng: _large(features, np.full(features.shape[1], sign))


def _axis(sign: float, skipped: int) -> Callable[[Floats, int, np.random.Generator], Matrix]:
    def vector(features: Floats, _place: int, rng: np.random.Generator) -> Matrix:
        width = features.shape[1]
        own = np.zeros(width)
        own[(int(rng.integers(width)) + skipped) % width] = sign
        return _large(features, own)

    return vector


def _mean(sign: float) -> Callable[[Floats, int, np.random.Generator], Matrix]:
    def vector(features: Floats, place: int, _rng: np.random.Generator) -> Matrix:
        rest = np.delete(features.astype(np.float64), place, axis=0)
        return _large(features, sign * rest.mean(axis=0) if len(rest) else np.ones(features.shape[1]))

    return vector


def _angle(features: Floats, _place: int, rng: np.random.Generator) -> Matrix:
    """At 120 degrees to the vector of ones: the worst of replaced (x, x x') by calculus."""
    ones = _unit(np.ones(features.shape[1]))
    drawn: Matrix = rng.standard_normal((features.shape[1],))
    across = _unit(np.asarray(drawn - float(drawn @ ones) * ones))
    return _large(features, -0.5 * ones + np.sqrt(0.75) * across)


def _of_value(value: int) -> Callable[[Images, np.random.Generator], Images]:
    return lambda image, _rng: np.full_like(image, value)


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
_ANGLE = Filling(
    "a large vector at 120 degrees", _angle, lambda image, rng: rng.integers(0, 256, image.shape).astype(np.uint8)
)
_AXIS = Filling("one large coordinate", _axis(1.0, 0), _dot)
_OTHER_AXIS = Filling("another large coordinate", _axis(1.0, 1), lambda image, rng: 255 - _dot(image, rng))
_MINUS_AXIS = Filling("one large negative coordinate", _axis(-1.0, 0), lambda image, _rng: image[::-1])
_ALONG = Filling("a large vector along the mean", _mean(1.0), lambda image, _rng: image // 2)
_AGAINST = Filling("a large vector against the mean", _mean(-1.0), lambda image, _rng: 255 - image)
_SIGNS = Filling(
    "large coordinates of random signs",
    lambda features, _place, rng: _large(features, rng.choice([-1.0, 1.0], features.shape[1])),
    _checked,
)
_ZERO = Filling("the zero vector", lambda features, _place, _rng: np.zeros(features.shape[1]), _of_value(127))
_AGAIN = Filling(
    "a duplicate", lambda features, place, _rng: features[place - 1].astype(np.float64), lambda i, _r: i
)
