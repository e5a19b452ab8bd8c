"""Shortcuts: measures that identify a class without its content, such as size, colours or brightness.

A class is named where 90 of 100 pairs of units, one of the class and one of the others, are in the same order by
such a measure. A Mann-Whitney test must also reject equality at level 0.001, shared among all tests. A unit is a
person, by the mean of the pictures of the class, or a picture where persons are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedassay.data.image_header import Header
from fedassay.data.pictures_seen import FEW_VALUES, Seen
from fedassay.support.types import Bools, Floats, Ints

LEVEL = 0.001
"""Level of all tests together."""
ORDERED = 0.9
"""Share of pairs in one order from which on a class is named."""
TEST = (
    f"Mann-Whitney test at level {LEVEL:g}, shared among all classes and measures, and {ORDERED:.0%} of pairs in "
    "one order"
)
_FEWEST = 3
"""Units of a class that are tested."""


class Shortcut(NamedTuple):
    """A class that such a measure separates from the others.

    Attributes:
        of: The class.
        what: The measure, in words.
        ordered: Share of pairs in one order.
        inside: Mean of the class's units.
        outside: Mean of the others'.
        share: Whether the measure is a share of pictures.
    """

    of: str
    what: str
    ordered: float
    inside: float
    outside: float
    share: bool


def shortcuts(
    labels: Ints, names: Sequence[str], persons: Ints | None, kinds: Sequence[Header], seen: Seen
) -> list[Shortcut]:
    """The classes that a measure separates from the others; of two classes, the first.

    Args:
        labels: Class of each picture that was seen, shape (m,).
        names: Of the classes.
        persons: The person of each, shape (m,), or None.
        kinds: Headers of all.
        seen: Their measurements.
    """
    from scipy.stats import mannwhitneyu

    measures = {what: values for what, values in _measures(kinds, seen).items() if np.ptp(values)}
    present = np.unique(labels)
    asked = present[:1] if len(present) == 2 else present
    found = []
    for number in asked.tolist():
        inside = labels == number
        for what, values in measures.items():
            ours, theirs = (_of_units(values[where], persons, where) for where in (inside, ~inside))
            if min(len(ours), len(theirs)) < _FEWEST:
                continue
            statistic, chance = mannwhitneyu(ours, theirs, method="asymptotic")
            share = float(statistic) / (len(ours) * len(theirs))
            ordered = max(share, 1 - share)
            if ordered >= ORDERED and chance < LEVEL / (len(asked) * len(measures)):
                shared = what.startswith(_SHARES)
                found.append(
                    Shortcut(names[number], what, ordered, float(ours.mean()), float(theirs.mean()), shared)
                )
    return sorted(found, key=lambda each: -each.ordered)


_SHARES = ("share of",)
"""Beginnings of the names of measures that are shares of pictures."""


def _measures(kinds: Sequence[Header], seen: Seen) -> Mapping[str, Floats]:
    sizes = np.array([kind.size for kind in kinds], np.float64).reshape(-1, 2)
    found = {
        "brightness": seen.brightness,
        "contrast": seen.contrast,
        "number of pixels": sizes.prod(axis=1),
        "shape (width by height)": sizes[:, 0] / sizes[:, 1],
        "depth (bits a channel)": np.array([kind.bits for kind in kinds], np.float64),
        "share of colour": np.array([not kind.grey for kind in kinds], np.float64),
        "share of masks (four grey values or fewer)": seen.masks.astype(np.float64),
    }
    formats = sorted({kind.format for kind in kinds} - {""})
    for name in formats[: -1 if len(formats) == 2 else None]:
        found[f"share of {name} files"] = np.array([kind.format == name for kind in kinds], np.float64)
    return found


def _of_units(values: Floats, persons: Ints | None, where: Bools) -> Floats:
    if persons is None:
        return values
    _, of = np.unique(persons[where], return_inverse=True)
    return np.bincount(of, weights=values) / np.bincount(of)


def odd_masks(labels: Ints, names: Sequence[str], seen: Seen) -> Iterator[str]:
    """Sentences on classes with some pictures that may be masks, while most of them are none."""
    for number in np.unique(labels).tolist():
        masks = int(seen.masks[labels == number].sum())
        held = int((labels == number).sum())
        if 0 < masks < held and np.median(seen.values[labels == number]) > 2 * FEW_VALUES:
            yield f"{masks:,} of {held:,} pictures of {names[number]} have four grey values or fewer: masks?"
