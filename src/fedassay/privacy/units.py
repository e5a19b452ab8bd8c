"""The contribution of a person or a client to a sum over records: the mean of its clipped records.

Let phi(x, y) be the contribution of one record to a statistic, all of it as one vector: (e_y, e_y kron x, x x^T)
for counts, class sums and second moment. A unit with records S adds the mean of phi over S, so the statistic is a
weighted sum over records, with weights 1 / |S|. The mean lies in the convex hull of contributions of single
records, and a convex distance over a convex hull is largest at its extreme points. Replacing or removing a unit
therefore moves the statistic no further than replacing or removing one record does. Every joint sensitivity of
`fedassay.privacy.sensitivities` holds for units unchanged; it is attained by units of equal records. (With the
labels held fixed, record for record, the difference of two units is a mean of differences that keep their labels.)

Two things do not carry over. Clipping every statistic of a unit by itself (its count to 1, its sum of x to 1, its
sum of x x^T to 1) leaves the hull: counts and second moments can then belong to some records and sums to others,
and replace_one reaches sqrt(8) where sqrt(6) is charged. And a unit has records of several classes, so releases
over single classes do not compose in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.support.errors import DataError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Matrix


def members(groups: Ints) -> list[Ints]:
    """Places of every unit's records, in order of the units' numbers.

    Args:
        groups: Unit of each record, shape (n,).
    """
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order])) + 1
    return [np.asarray(part, np.int64) for part in np.split(order, starts)] if len(order) else []


def contribution_weights(groups: Ints, largest: int | None, seeds: Seeds) -> Matrix:
    """Return the weight of every record in a sum over records, so that each unit adds the mean of its records.

    The records of a unit that count are drawn from a stream named by the unit alone: for two data sets that differ
    in one unit, the draws of all other units are equal. The draw is public; the sensitivity holds for any.

    Args:
        groups: Unit of each record, shape (n,).
        largest: Largest number of a unit's records that count; None: all.
        seeds: Root of the draws.

    Returns:
        Shape (n,), float64: one over the unit's number of records that count, 0 for the others.

    Raises:
        ValueError: `largest` is below 1.
    """
    if largest is not None and largest < 1:
        raise ValueError(f"largest must be at least 1 record, got {largest}")
    weights = np.zeros(len(groups))
    for places in members(groups):
        chosen = places
        if largest is not None and len(places) > largest:
            drawn = seeds.numpy("contribution", int(groups[places[0]])).permutation(len(places))
            chosen = places[drawn[:largest]]
        weights[chosen] = 1 / len(chosen)
    return weights


def most_records(groups: Sequence[Ints | None]) -> int:
    """Return the most records of one person at one client; 1 where the persons of records are unknown.

    Args:
        groups: Of each client, shape (n,), or None.
    """
    counts = [np.unique(own, return_counts=True)[1] for own in groups if own is not None and len(own)]
    return max((int(each.max()) for each in counts), default=1)


def require_persons(names: Sequence[str], groups: Sequence[Ints | None]) -> None:
    """Require every client to name the person of each record, and every person to be at one client.

    The messages of two clients about the same person would add up.

    Args:
        names: Names of the clients.
        groups: Of each client, shape (n,), or None.

    Raises:
        DataError: Some client does not name the persons of its records, or some person is at two clients.
    """
    if any(own is None for own in groups):
        raise DataError(
            "privacy.unit: given person, and the person of each record is not known; allowed: data.groups with "
            "it, or privacy.unit: record"
        )
    holder: dict[int, str] = {}
    for name, own in zip(names, groups, strict=True):
        for person in () if own is None else np.unique(own).tolist():
            other = holder.setdefault(person, name)
            if other != name:
                raise DataError(
                    f"privacy.unit: given person, and person {person} has records at {other} and at {name}: what "
                    "both of them send adds up; allowed: every person at one client, or unit record"
                )
