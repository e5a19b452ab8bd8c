"""Roles from a data set's own splits: the clients hold its test set, everybody else shares its training set.

That is how published reconstruction attacks were measured: the adversary trains on all of the training images and
reconstructs test images (Beitollahi et al. 2024, appendix E).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedassay.data.images import LoadedData
from fedassay.data.roles import Role, Roles, split_roles, unseen
from fedassay.support.errors import PlanError


def official_roles(data: LoadedData, shares: Mapping[Role, float], rng: np.random.Generator) -> Roles:
    """Give the clients the official test set, and share the training set out to the other roles.

    Test records with an image or a person of the training set are left out (`Roles.dropped`): the adversary would
    hold them. Each part is drawn as `split_roles` draws it.

    Args:
        data: A data set with an official test set.
        shares: `private` of the test set; every other role of the training set.
        rng: Source of randomness.

    Returns:
        The roles; the `indices` of the private one are positions in `LoadedData.test`.

    Raises:
        PlanError: The data set has no test set of its own, or the shares are none.
    """
    check_official(data)
    assert data.test is not None
    others: dict[Role, float] = {role: share for role, share in shares.items() if role != "private"}
    rest = split_roles(replace(data, test=None), others, rng)
    rows = unseen(data.train, data.test)
    own = LoadedData(data.test.take(rows), None, data.source)
    held = split_roles(own, {"private": shares["private"]}, rng)
    indices = {**rest.indices, "private": rows[held.indices["private"]]}
    return replace(
        rest,
        private=held.private,
        indices=indices,
        duplicates=rest.duplicates + held.duplicates,
        dropped=len(data.test) - len(rows),
    )


def check_official(data: LoadedData) -> None:
    """Refuse a data set without a test set of its own.

    Raises:
        PlanError: It has none.
    """
    if data.test is None:
        raise PlanError(
            f"data.roles: official given, but {data.source} has no test set of its own, which the clients would "
            f"hold"
        )
