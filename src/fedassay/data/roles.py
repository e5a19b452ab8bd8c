"""Roles of records: private, attacker, public, test, control.

Private records are the clients' own and the subject of an audit. The attacker has its own records of the same
distribution. Public records are known to everybody (a backbone may be trained on them). Test records measure
accuracy. Control records belong to no party: audits make releases of them that are known to leak. A reconstruction
or membership score means nothing if the attacker already holds the very image, so no image may be in two roles,
and no person.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.sampling import apportion, by_class
from fedassay.support.errors import PlanError
from fedassay.support.hashing import digest_records

Role = Literal["private", "attacker", "public", "test", "control"]
"""Purpose of a record."""


@dataclass(frozen=True, eq=False)
class Roles:
    """Disjoint sets of records; a role without a share is an empty set.

    Attributes:
        private: The clients' records.
        attacker: The adversary's own records.
        public: Records known to everybody.
        test: Records that measure accuracy; the official test set where there is one.
        control: Records of the private distribution that controls are made of.
        indices: Role to positions in `LoadedData.train` (in `LoadedData.test` for the test role
            of a data set with an official test set), in the order of the role's records.
        duplicates: Training records that repeat the image of an earlier one; each is in the same role as the
            first.
        dropped: Official test records left out because their image, or their person, is in the training set.
    """

    private: ImageSet
    attacker: ImageSet
    public: ImageSet
    test: ImageSet
    control: ImageSet
    indices: Mapping[Role, NDArray[np.int64]]
    duplicates: int
    dropped: int


def split_roles(data: LoadedData, shares: Mapping[Role, float], rng: np.random.Generator) -> Roles:
    """Share records out to roles, class by class, keeping identical images and persons together.

    Identical images form one group (with the label of the first), and so do the records of a person, and those
    that `ImageSet.together` keeps in one role; groups that share a record are one. They are drawn in random order
    and each class is divided by the shares, rounding carried over between classes. Shares count groups, so roles
    may be off by a few records where groups are larger than one.

    Args:
        data: A loaded data set.
        shares: Role to its share of the training records; a role left out has none.
        rng: Source of randomness.

    Returns:
        The roles, records in their original order.

    Raises:
        PlanError: An unknown role, a share outside [0, 1], shares that sum to more than 1, or a
            test share where the data set has an official test set.
    """
    check_shares(shares, official_test=data.test is not None)
    same = _same_images(data.train.images)
    groups, first = _joined(same, data.train.groups, data.train.together)
    names = get_args(Role)
    parts = np.array([shares.get(role, 0.0) for role in names] + [0.0])
    parts[-1] = max(0.0, 1.0 - parts.sum())
    drawn = by_class(data.train.labels[first], rng)
    counts = apportion(np.array([len(group) for group in drawn], dtype=np.int64), parts)
    part_of_group = np.empty(len(first), dtype=np.int64)
    for group, count in zip(drawn, counts, strict=True):
        part_of_group[group] = np.repeat(np.arange(len(parts)), count)
    part = part_of_group[groups]
    indices: dict[Role, NDArray[np.int64]] = {
        role: np.flatnonzero(part == position) for position, role in enumerate(names)
    }
    dropped, test = 0, data.train.take(indices["test"])
    if data.test is not None:
        indices["test"] = unseen(data.train, data.test)
        test = data.test.take(indices["test"])
        dropped = len(data.test) - len(test)
    return Roles(
        private=_given(data.train, "private", indices),
        attacker=_given(data.train, "attacker", indices),
        public=_given(data.train, "public", indices),
        test=replace(test, role="test"),
        control=_given(data.train, "control", indices),
        indices=indices,
        duplicates=len(same) - len(np.unique(same)),
        dropped=dropped,
    )


def _given(records: ImageSet, role: Role, indices: Mapping[Role, NDArray[np.int64]]) -> ImageSet:
    return replace(records.take(indices[role]), role=role)


def check_shares(shares: Mapping[Role, float], official_test: bool) -> None:
    """Refuse shares that no data set, or one with an official test set, can be divided by.

    Raises:
        PlanError: As `split_roles`.
    """
    for role, share in shares.items():
        if role not in get_args(Role):
            raise PlanError(f"data.split: {role!r} given; allowed: {', '.join(get_args(Role))}")
        if not (math.isfinite(share) and 0 <= share <= 1):
            raise PlanError(f"data.split.{role}: {share} given; allowed: a share from 0 to 1")
    if (total := math.fsum(shares.values())) > 1 + 1e-9:
        raise PlanError(f"data.split: the shares sum to {total:g}; allowed: at most 1")
    if official_test and shares.get("test", 0) > 0:
        raise PlanError(
            f"data.split.test: {shares['test']} given, but the data set has an official test set, "
            "which is the test role; leave the key out"
        )


def _same_images(images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """A number for each record, which identical images share, in the order in which they first appear."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in digest_records(images)], dtype=np.int64)


def _joined(
    same: NDArray[np.int64], *together: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The group of each record, by its image and what else keeps records together; the first of each group."""
    joined = same
    for numbers in together:
        if numbers is None or not len(numbers):
            continue
        # Groups so far and these are nodes; a record is an edge between the two that it is in.
        _, own = np.unique(numbers, return_inverse=True)
        nodes = int(joined.max()) + 1 + int(own.max()) + 1
        # Plans name roles, and the command line reads plans without what takes long to import.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        edges = coo_array((np.ones(len(joined)), (joined, own + int(joined.max()) + 1)), shape=(nodes, nodes))
        joined = connected_components(edges, directed=False)[1][joined]
    _, first, position = np.unique(joined, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[position].astype(np.int64), first[order].astype(np.int64)


def unseen(train: ImageSet, test: ImageSet) -> NDArray[np.int64]:
    """Positions of the test records with neither their image nor their person in the training set."""
    known = set(digest_records(train.images))
    unseen = np.array([key not in known for key in digest_records(test.images)], np.bool_)
    if train.groups is not None and test.groups is not None:
        unseen &= ~np.isin(test.groups, train.groups)
    return np.flatnonzero(unseen)
