"""Holders of the records of a plan's data: loaded, dealt out to roles, and spread over clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedassay.data.domains import leave_out
from fedassay.data.evaluation import held_out
from fedassay.data.images import LoadedData
from fedassay.data.loading import load
from fedassay.data.official_roles import official_roles
from fedassay.data.partition import partition
from fedassay.data.roles import Roles, split_roles
from fedassay.plan.own_images import request_of, shares_of
from fedassay.plan.schema import Plan
from fedassay.support.errors import PlanError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints


@dataclass(frozen=True, eq=False)
class Dealt:
    """A data set in the hands of those who hold it.

    Attributes:
        data: As it was loaded, without a domain that is left out.
        roles: Its records by role.
        parts: Positions in the private role of what each client holds, those that collude last.
        measured: Positions of what accuracy is measured on at each client.
    """

    data: LoadedData
    roles: Roles
    parts: list[Ints]
    measured: list[Ints]


def deal(plan: Plan, base: Path, seeds: Seeds) -> Dealt:
    """Load a plan's data and deal it out.

    Args:
        plan: The plan.
        base: Its folder.
        seeds: `fedassay.plan.own_images.data_seeds` of the seed.

    Raises:
        PlanError: A role that is needed has no records, or the partition cannot be made.
        DataError: A file cannot be used.
    """
    data = load(request_of(plan.data, base, seeds))
    if plan.data.test_domain is not None:
        data = leave_out(data, plan.data.test_domain)
    divide = official_roles if plan.data.roles == "official" else split_roles
    roles = divide(data, shares_of(plan.data, test_set=data.test is not None), seeds.numpy("roles"))
    for role in ("private", "test"):
        if len(getattr(roles, role)) == 0:
            raise PlanError(f"data.split.{role}: no records; the plan needs some in this role")
    parts = partition(
        roles.private,
        plan.clients.partition,
        plan.clients.count,
        alpha=plan.clients.alpha,
        min_records=plan.clients.min_records,
        dominant=plan.clients.dominant,
        uniform_share=plan.clients.uniform_share,
        shared_persons=plan.clients.shared_persons,
        rng=seeds.numpy("partition"),
    )
    measured: list[Ints] = list(parts)
    if plan.clients.evaluate == "held_out":
        parts, measured = held_out(roles.private, parts, plan.clients.held_out, seeds.numpy("held out"))
    return Dealt(data, roles, parts, measured)
