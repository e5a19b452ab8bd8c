"""How the private records are spread over the clients."""

from __future__ import annotations

import math
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from fedassay.data.images import ImageSet
from fedassay.data.sampling import by_class
from fedassay.support.errors import PlanError

Partition = Literal["iid", "dirichlet", "disjoint_labels", "dominant_classes", "domains"]
"""How records are spread over clients."""

Indices = NDArray[np.int64]


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
) -> list[Indices]:
    """Spread records over clients: every record goes to exactly one.

    Args:
        private: The clients' records.
        kind: `iid`, `dirichlet`, `disjoint_labels`, `dominant_classes` or `domains`; see the functions of
            these names.
        count: How many clients.
        rng: Source of randomness.
        alpha: Concentration of `dirichlet`, which alone uses it; the smaller, the less alike the
            clients.
        min_records: The fewest records a client may hold.
        dominant: Classes that dominate a client of `dominant_classes`.
        uniform_share: Share of its records that such a client draws from all classes.

    Returns:
        For each client the ascending positions of its records in `private`.

    Raises:
        PlanError: No clients, more clients than the records can serve, alpha not positive, more dominant
            classes than there are, or a client left with fewer than `min_records`.
    """
    check_clients(len(private), count, alpha, min_records)
    match kind:
        case "iid":
            parts = iid(len(private), count, rng)
        case "dirichlet":
            parts = dirichlet(private.labels, count, alpha, min_records, rng)
        case "disjoint_labels":
            parts = disjoint_labels(private.labels, count, rng)
        case "dominant_classes":
            parts = dominant_classes(private.labels, count, dominant, uniform_share, rng)
        case "domains":
            if private.domains is None:
                raise PlanError(
                    "clients.partition: domains given, but the data set has none; allowed: an "
                    "image_folder of domain/class folders, an npz with an array domain, or another partition"
                )
            parts = domains(private.domains, count, rng)
        case _:
            assert_never(kind)
    fewest = min(len(part) for part in parts)
    if fewest < min_records:
        raise PlanError(
            f"clients.min_records: {min_records} given, but with partition {kind} over {count} clients "
            f"one holds {fewest}; allowed: at most {fewest}, or fewer clients"
        )
    return [np.sort(part) for part in parts]


def iid(records: int, count: int, rng: np.random.Generator) -> list[Indices]:
    """Deal shuffled records out evenly; sizes differ by at most 1."""
    return np.array_split(rng.permutation(records), count)


def dirichlet(
    labels: NDArray[np.int64], count: int, alpha: float, min_records: int, rng: np.random.Generator
) -> list[Indices]:
    """Split each class over the clients by its own draw from a symmetric Dirichlet distribution.

    For each class, proportions p ~ Dir(alpha, ..., alpha) over the clients cut its shuffled
    records at the rounded cumulative sums of p (Hsu et al. 2019, in the class-wise form of Yurochkin
    et al. 2019). A client that then holds fewer than `min_records` is topped up with random
    records from whoever holds most at that moment; with small alpha and many clients, rejecting
    such draws instead would never end.

    Args:
        labels: (n,) classes; n >= count * min_records.
        count: How many clients.
        alpha: Concentration, above 0.
        min_records: The fewest records of a client.
        rng: Source of randomness.
    """
    parts: list[list[int]] = [[] for _ in range(count)]
    for group in by_class(labels, rng):
        # Gamma draws of a tiny shape all underflow to 0 together; one client then takes the class.
        weights = rng.gamma(alpha, size=count)
        if weights.sum() == 0:
            weights[rng.integers(count)] = 1.0
        cuts = np.rint(np.cumsum(weights / weights.sum())[:-1] * len(group)).astype(np.int64)
        for part, records in zip(parts, np.split(group, cuts), strict=True):
            part.extend(records.tolist())
    for part in parts:
        while len(part) < min_records:
            richest = max(parts, key=len)
            part.append(richest.pop(int(rng.integers(len(richest)))))
    return [np.array(part, dtype=np.int64) for part in parts]


def disjoint_labels(labels: NDArray[np.int64], count: int, rng: np.random.Generator) -> list[Indices]:
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
    labels: NDArray[np.int64], count: int, dominant: int, uniform_share: float, rng: np.random.Generator
) -> list[Indices]:
    """Clients of equal size, most of whose records come from a few classes of their own.

    Each client draws `uniform_share` of its records from all classes and the rest from its dominant
    classes (the partition of the personalized experiments of Guan et al. 2025, who do not say how many classes
    dominate; with a uniform share of 0 that of Yu et al. 2026). A client's classes are those dealt out least so
    far, ties broken at random; clients take a record each, by rounds, from that of their classes of which
    they hold least. Whoever finds these empty is filled up from what is left, so that sizes differ by at
    most 1 and every record is used.

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


def domains(of_record: NDArray[np.int64], count: int, rng: np.random.Generator) -> list[Indices]:
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
