"""What a person or a client contributes to a sum over records: the mean of its clipped records.

Let phi(x, y) be what one record adds to a statistic, all of it as one vector: (e_y, e_y kron x, x x^T) for counts,
class sums and second moment. A unit with records S adds the mean of phi over S, so the statistic is a weighted sum
over records, with weights 1 / |S|. The mean lies in the convex hull of what single records add, and a convex
distance over a convex hull is largest at its extreme points. So replacing a unit, or removing it, moves the
statistic no further than replacing or removing one record does, and every joint sensitivity of
`fedassay.privacy.sensitivities` holds for units as it stands; it is attained by units whose records are all alike.
(With the labels held fixed, record for record, the difference of two units is a mean of differences that keep
their labels.)

Two things do not carry over. Clipping every statistic of a unit by itself (its count to 1, its sum of x to 1, its
sum of x x^T to 1) leaves the hull: counts and second moments can then belong to some records and sums to others,
and replace_one reaches sqrt(8) where sqrt(6) is charged. And a unit has records of several classes, so releases
over single classes do not compose in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.support.errors import DataError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints


def members(groups: Ints) -> list[Ints]:
    """Places of every unit's records, in order of the units' numbers.

    Args:
        groups: Whose each record is, shape (n,).
    """
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order])) + 1
    return [np.asarray(part, np.int64) for part in np.split(order, starts)] if len(order) else []


def contribution_weights(groups: Ints, largest: int | None, seeds: Seeds) -> NDArray[np.float64]:
    """Weight of every record in a sum over records, so that each unit adds the mean of its records.

    Which records of a unit count is drawn from a stream that is named by the unit and by nothing else: two data
    sets that differ in one unit draw alike for all others. The draw is public; the sensitivity holds for any.

    Args:
        groups: Whose each record is, shape (n,).
        largest: At most so many records of a unit count; None: all.
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
    """The most records that one person has at one client; 1 where nobody says whose records are.

    Args:
        groups: Of each client, shape (n,), or None.
    """
    counts = [np.unique(own, return_counts=True)[1] for own in groups if own is not None and len(own)]
    return max((int(each.max()) for each in counts), default=1)


def require_persons(names: Sequence[str], groups: Sequence[Ints | None]) -> None:
    """Require every client to say whose its records are, and every person to be at one client.

    Of a person at two, what each of them sends would be about it, and add up.

    Args:
        names: Of the clients.
        groups: Of each client, shape (n,), or None.

    Raises:
        DataError: Some client does not say whose its records are, or some person is at two clients.
    """
    if any(own is None for own in groups):
        raise DataError(
            "privacy.unit: given person, and nothing says whose each record is; allowed: data.groups with it, or "
            "privacy.unit: record"
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
