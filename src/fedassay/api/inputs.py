"""Plans and policies in all forms that a program may have them in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedassay.support.errors import PlanError
from fedassay.support.text import shown

if TYPE_CHECKING:
    from fedassay.plan.schema import Plan, Scenario
    from fedassay.reports.gate.policy import Policy

_A_PLAN = "a plan"
"""Names a plan that is no file, in errors."""


def as_scenario(
    plan: str | os.PathLike[str] | Mapping[str, Any] | Plan,
    overrides: Sequence[str],
    base: str | os.PathLike[str] | None,
    scale: float = 1.0,
) -> Scenario:
    """The resolved plan, its files and images looked for.

    Args:
        plan: A file, its contents, or a validated plan.
        overrides: As `--set` takes them.
        base: Folder for relative paths; a file's own folder goes before it.
        scale: The factor of `--scale`.

    Raises:
        PlanError: The plan is wrong.
        DataError: A file that it names is not there, or cannot be used.
    """
    from fedassay.console import plan_file
    from fedassay.plan.resolve import load_plan, load_scenario, resolve
    from fedassay.plan.scale import scaled
    from fedassay.plan.schema import Plan, override, parse_plan

    overrides = (overrides,) if isinstance(overrides, str) else tuple(overrides)
    if isinstance(plan, str | os.PathLike):
        file = plan_file(Path(plan))
        if base is not None:
            raise PlanError(f"base: given {shown(str(base))}; paths in {file} are beside it, allowed: no base")
        _check(load_plan(file, overrides), file.resolve().parent, scale)
        return load_scenario(file, overrides, scale)
    if isinstance(plan, Plan):
        content = plan.model_dump(exclude_unset=True)
    elif isinstance(plan, Mapping):
        content = deepcopy(dict(plan))
    else:
        raise PlanError(f"plan: given {shown(plan)}; allowed: a file, a mapping, or a Plan")
    parsed, folder = parse_plan(override(content, overrides), _A_PLAN), Path(base or ".").resolve()
    _check(parsed, folder, scale)
    return resolve(scaled(parsed, scale, folder, _A_PLAN), folder, _A_PLAN)


def _check(plan: Plan, base: Path, scale: float) -> None:
    """Look for the files and images that a plan names, before its components are looked at, which import torch."""
    from fedassay.plan.files import check_files
    from fedassay.plan.own_images import check_images
    from fedassay.plan.scale import scaled

    check_files(plan, base)
    check_images(scaled(plan, scale, base, _A_PLAN), base)


def as_policy(policy: str | os.PathLike[str] | Mapping[str, Any] | Policy) -> Policy:
    """A policy.

    Args:
        policy: A file, the name of one that ships, its contents, or a policy.

    Raises:
        PlanError: It is wrong, or there is no such file.

    Example:
        >>> as_policy("strict").claims
        'sound'
    """
    from fedassay.console import load_named
    from fedassay.reports.gate.policy import Policy, parse_policy

    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Mapping):
        return parse_policy(dict(policy), "a policy")
    return load_named(Path(policy))
