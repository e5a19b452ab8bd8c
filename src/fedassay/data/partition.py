"""Partition of the private records over the clients.

Where the data identify persons (`ImageSet.groups`), a person is at one client with all of its records. Persons are
then dealt out, drawn and counted, each under the class of most of its records. A person may have records of
several classes or domains. Where a partition goes by these, it can belong to several clients, which
`shared_persons` refuses or settles.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, assert_never

import numpy as np

from fedassay.data.groups import typical
from fedassay.data.images import ImageSet
from fedassay.data.sampling import by_class
from fedassay.support.errors import PlanError
from fedassay.support.types import Ints

Partition = Literal["iid", "dirichlet", "disjoint_labels", "dominant_classes", "domains"]
"""Ways to spread records over clients."""

SharedPersons = Literal["refuse", "one_client"]
"""Treatment of a person with records that a partition would put at several clients."""


def partition(
    private: ImageSet,
    kind: Partition,
    count: int,
    rng: np.random.Generator,
    *,
    alpha: float = 0.1,
    min_records: int = 1,
    dominant: int = 2,
    uniform_share: float = 0.2,
    shared_persons: SharedPersons = "refuse",
) -> list[Ints]:
    """Spread records over clients: every record goes to exactly one, and so does every person.

    Args:
        private: The clients' records.
        kind: `iid`, `dirichlet`, `disjoint_labels`, `dominant_classes` or `domains`; see the functions of
            these names.
        count: Number of clients.
        rng: Source of randomness.
        alpha: Concentration of `dirichlet`, which alone uses it; the smaller, the less alike the
            clients.
        min_records: The fewest records a client may hold.
        dominant: Classes that dominate a client of `dominant_classes`.
        uniform_share: Share of its records that such a client draws from all classes.
        shared_persons: Rule where `disjoint_labels` or `domains` would put a person at several clients: `refuse`,
            or `one_client`, which leaves it at the one with most of its records and leaves its others out.

    Returns:
        For each client the ascending positions of its records in `private`.

    Raises:
        PlanError: No clients, more than the records or persons can serve, alpha not positive, more dominant
            classes than there are, a client with fewer than `min_records`, or a person at several clients.
    """
    check_clients(len(private), count, alpha, min_records)
    units = _units(private, kind)
    if private.groups is not None:
        check_persons(len(np.unique(private.groups)), count, min_records)
    match kind:
        case "iid":
            parts = iid(len(units.sizes), count, rng)
        case "dirichlet":
            parts = dirichlet(units.values, count, alpha, min_records, rng, units.sizes)
        case "disjoint_labels":
            parts = disjoint_labels(units.values, count, rng)
        case "dominant_classes":
            parts = dominant_classes(units.values, count, dominant, uniform_share, rng)
        case "domains":
            parts = domains(units.values, count, rng)
        case _:
            assert_never(kind)
    parts = [np.flatnonzero(np.isin(units.of_record, part)) for part in parts]
    if private.groups is not None:
        parts = _persons_at_one(parts, private.groups, kind, shared_persons)
    fewest = min(len(part) for part in parts)
    if fewest < min_records:
        raise PlanError(
            f"clients.min_records: {min_records} given, but with partition {kind} over {count} clients "
            f"one holds {fewest}; allowed: at most {fewest}, or fewer clients"
        )
    return parts


class _Units(NamedTuple):
    """Units that are dealt out whole: records, persons, or a person's records of one class or domain.

    Attributes:
        of_record: The unit of each record, shape (n,).
        values: The class or domain of each unit, shape (u,).
        sizes: Records of each, shape (u,).
    """

    of_record: Ints
    values: Ints
    sizes: Ints


def _units(private: ImageSet, kind: Partition) -> _Units:
    values = private.labels
    if kind == "domains":
        if private.domains is None:
            raise PlanError(
                "clients.partition: domains given, but the data set has none; allowed: an "
                "image_folder of domain/class folders, an npz with an array domain, or another partition"
            )
        values = private.domains
    if private.groups is None:
        return _Units(np.arange(len(private)), values, np.ones(len(private), np.int64))
    numbers = private.groups
    if kind in ("domains", "disjoint_labels"):
        # These go by what a person may have several of.
        numbers = np.unique(np.stack([numbers, values]), axis=1, return_inverse=True)[1].reshape(-1)
    _, unit, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    return _Units(unit.astype(np.int64), typical(values, numbers), sizes.astype(np.int64))


def _persons_at_one(parts: list[Ints], groups: Ints, kind: Partition, shared: SharedPersons) -> list[Ints]:
    """The same parts after moving each person's records to one part."""
    held = np.concatenate(parts)
    client = np.empty(len(groups), np.int64)
    client[held] = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    persons, person = np.unique(groups, return_inverse=True)
    home = typical(client, groups)[person]
    astray = np.unique(person[client != home])
    if astray.size and shared == "refuse":
        places = np.unique(client[person == astray[0]])
        raise PlanError(
            f"clients.partition: {kind} puts {astray.size} of {len(persons)} persons at several clients (one of "
            f"them at {', '.join(map(str, places))}); allowed: clients.shared_persons: one_client, which leaves "
            "each at the one with most of its records and its other records out, or a partition that deals out "
            "persons (iid, dirichlet, dominant_classes)"
        )
    return [part[home[part] == number] for number, part in enumerate(parts)]


def iid(records: int, count: int, rng: np.random.Generator) -> list[Ints]:
    """Deal shuffled records out evenly; sizes differ by at most 1."""
    return np.array_split(rng.permutation(records), count)


def dirichlet(
    labels: Ints,
    count: int,
    alpha: float,
    min_records: int,
    rng: np.random.Generator,
    sizes: Ints | None = None,
) -> list[Ints]:
    """Split each class over the clients by its own draw from a symmetric Dirichlet distribution.

    For each class, proportions p ~ Dir(alpha, ..., alpha) over the clients cut its shuffled records at the rounded
    cumulative sums of p (Hsu et al. 2019, in the class-wise form of Yurochkin et al. 2019). A client that then
    holds fewer than `min_records` is topped up with random records from the client that holds most at that moment;
    with small alpha and many clients, rejecting such draws instead would never end. Of persons, the richest gives
    one whom it can do without; where it has none such, the client stays below.

    Args:
        labels: (n,) classes of records, or of persons.
        count: Number of clients.
        alpha: Concentration, above 0.
        min_records: The fewest records of a client.
        rng: Source of randomness.
        sizes: (n,) records of each person; None: one each.
    """
    weight = np.ones(len(labels), np.int64) if sizes is None else sizes
    parts: list[list[int]] = [[] for _ in range(count)]
    for group in by_class(labels, rng):
        # Gamma draws of a tiny shape all underflow to 0 together; one client then takes the class.
        weights = rng.gamma(alpha, size=count)
        if weights.sum() == 0:
            weights[rng.integers(count)] = 1.0
        cuts = np.rint(np.cumsum(weights / weights.sum())[:-1] * len(group)).astype(np.int64)
        for part, records in zip(parts, np.split(group, cuts), strict=True):
            part.extend(records.tolist())
    held = [int(weight[part].sum()) for part in parts]
    for position, part in enumerate(parts):
        while held[position] < min_records:
            richest = int(np.argmax(held))
            spare = [
                place for place, unit in enumerate(parts[richest]) if held[richest] - weight[unit] >= min_records
            ]
            if richest == position or not spare:
                break
            moved = parts[richest].pop(spare[int(rng.integers(len(spare)))])
            part.append(moved)
            held[richest] -= int(weight[moved])
            held[position] += int(weight[moved])
    return [np.array(part, dtype=np.int64) for part in parts]


def disjoint_labels(labels: Ints, count: int, rng: np.random.Generator) -> list[Ints]:
    """Give each class whole to one client; classes are shuffled and dealt out in turn.

    Raises:
        PlanError: There are more clients than classes with a record.
    """
    groups = by_class(labels, rng)
    if count > len(groups):
        raise PlanError(
            f"clients.count: {count} given, but partition disjoint_labels has {len(groups)} classes to "
            f"give; allowed: 1 to {len(groups)}"
        )
    order = rng.permutation(len(groups))
    return [np.concatenate([groups[i] for i in order[client::count]]) for client in range(count)]


def dominant_classes(
    labels: Ints, count: int, dominant: int, uniform_share: float, rng: np.random.Generator
) -> list[Ints]:
    """Clients of equal size with most records from a few classes of their own.

    Each client draws `uniform_share` of its records from all classes and the rest from its dominant classes (the
    partition of the personalized experiments of Guan et al. 2025, who do not say how many classes dominate; with a
    uniform share of 0 that of Yu et al. 2026). A client's classes are those dealt out least so far, ties broken at
    random. In rounds each client takes a record from the one of its classes that it holds least of. A client that
    finds these empty is filled up from the rest, so that sizes differ by at most 1 and every record is used.

    Raises:
        PlanError: More dominant classes than there are classes with a record.
    """
    present = np.unique(labels)
    if not 1 <= dominant <= len(present):
        raise PlanError(f"clients.dominant: {dominant} given; allowed: 1 to {len(present)}, the classes there are")
    order = rng.permutation(len(labels))
    sizes = [len(part) for part in np.array_split(order, count)]
    drawn = np.cumsum([round(uniform_share * size) for size in sizes])
    parts = [part.tolist() for part in np.split(order[: drawn[-1]], drawn[:-1])]
    rest = order[drawn[-1] :]
    pools = {int(value): rest[labels[rest] == value].tolist() for value in present}
    dealt = np.zeros(len(present))
    own: list[dict[int, int]] = []  # a client's classes, and how many records of each it has taken
    for _ in range(count):
        chosen = np.lexsort((rng.random(len(present)), dealt))[:dominant]
        dealt[chosen] += 1
        own.append({int(value): 0 for value in present[chosen]})
    hungry = [client for client in range(count) if len(parts[client]) < sizes[client]]
    while hungry:
        served = []
        for client in hungry:
            taken = own[client]
            left_of = [value for value in taken if pools[value]]
            if left_of:
                value = min(left_of, key=lambda value: (taken[value], -len(pools[value])))
                taken[value] += 1
                parts[client].append(pools[value].pop())
                if len(parts[client]) < sizes[client]:
                    served.append(client)
        hungry = served
    left = rng.permutation([record for pool in pools.values() for record in pool]).astype(np.int64)
    room = np.cumsum([size - len(part) for size, part in zip(sizes, parts, strict=True)])
    return [
        np.array([*part, *more], np.int64) for part, more in zip(parts, np.split(left, room[:-1]), strict=True)
    ]


def domains(of_record: Ints, count: int, rng: np.random.Generator) -> list[Ints]:
    """Keep domains apart: no client sees two domains, unless there are fewer clients than domains.

    With at least as many clients as domains D, client j holds records of domain j mod D, which
    its clients share evenly at random; with fewer, client j holds the domains d = j, j + count, ...
    whole.
    """
    groups = by_class(of_record, rng)
    if count < len(groups):
        return [np.concatenate(groups[client::count]) for client in range(count)]
    shared = [
        np.array_split(group, len(range(position, count, len(groups)))) for position, group in enumerate(groups)
    ]
    return [shared[client % len(groups)][client // len(groups)] for client in range(count)]


def check_clients(records: int, count: int, alpha: float, min_records: int) -> None:
    """Refuse clients that so many private records cannot serve, whatever the partition.

    Raises:
        PlanError: No clients, too many for the records, or alpha not positive.
    """
    if count < 1:
        raise PlanError(f"clients.count: {count} given; allowed: 1 or more")
    if min_records < 0:
        raise PlanError(f"clients.min_records: {min_records} given; allowed: 0 or more")
    if count * min_records > records:
        raise PlanError(
            f"clients: {count} clients of at least {min_records} records given, but there are "
            f"{records} private records"
        )
    if not 0 < alpha < math.inf:
        raise PlanError(f"clients.alpha: {alpha} given; allowed: a number above 0")


def check_persons(persons: int, count: int, min_records: int) -> None:
    """Refuse more clients than there are persons to be at one each, unless a client may be empty.

    Raises:
        PlanError: There are fewer persons than clients.
    """
    if min_records and persons < count:
        raise PlanError(
            f"clients.count: {count} given, but the private records are of {persons} persons, each at one client; "
            f"allowed: 1 to {persons}"
        )
