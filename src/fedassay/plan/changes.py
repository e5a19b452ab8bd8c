"""Changes of single keys applied to a plan, as remedies and next steps state them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

from fedassay.records.facts import Change
from fedassay.support.errors import PlanError

_COMPONENTS = ("methods", "attacks", "audits")


def changed_plan(plan: dict[str, Any], changes: Iterable[Change]) -> dict[str, Any]:
    """A plan with some keys changed; a list gets the number, attack or audit added, everything else is replaced.

    Args:
        plan: As a record holds it, or as a file does; it stays as it is.
        changes: A key inside a component is named by list, component and key, as `attacks.my_attack.steps`.

    Raises:
        PlanError: A key names a component that the plan does not have.
    """
    changed = copy.deepcopy(plan)
    for change in changes:
        _set(changed, change.key.split("."), _plain(change.after), change.key)
    return changed


def labelled(plan: Any, section: str) -> dict[str, dict[str, Any]]:
    """Parameters of the components in a section of a plan, by label: that which is given, or the name."""
    held = plan.get(section) if isinstance(plan, dict) else None
    found: dict[str, dict[str, Any]] = {}
    for entry in held if isinstance(held, (list, tuple)) else ():
        name, params = next(iter(entry.items())) if isinstance(entry, dict) and entry else (str(entry), None)
        given = params if isinstance(params, dict) else {}
        label, number = given.get("label") or name, 2
        while label in found:
            label, number = f"{name}#{number}", number + 1
        found[label] = given
    return found


def entries_of(plan: Any, section: str) -> list[str]:
    """Names of the components in a section of a plan, such as `attacks`."""
    held = plan.get(section) if isinstance(plan, dict) else None
    if not isinstance(held, (list, tuple)):
        return []
    return [next(iter(entry)) if isinstance(entry, dict) and entry else str(entry) for entry in held]


def _set(plan: dict[str, Any], path: list[str], after: Any, key: str) -> None:
    at: dict[str, Any] = plan
    while len(path) > 1:
        step, *path = path
        if step in _COMPONENTS and isinstance(at.get(step), list):
            # A label may hold dots: the longest one that is there.
            known = labelled(plan, step)
            dots = [place for place in range(len(path), 0, -1) if ".".join(path[:place]) in known]
            place = dots[0] if dots else 1
            step, path = ".".join(path[:place]), path[place:]
            found = _component(plan, key, step)
            if not path:
                raise PlanError(f"{key}: names a component, not a key of it; allowed: {key}.KEY")
            at = found
            continue
        if not isinstance(at.get(step), dict):
            at[step] = {}
        at = at[step]
    held = at.get(path[0])
    if path[0] in _COMPONENTS and isinstance(held, list):
        at[path[0]] = held if after in entries_of(plan, path[0]) else [*held, after]
    elif isinstance(held, list) and isinstance(after, (int, float)) and not isinstance(after, bool):
        at[path[0]] = held if after in held else [*held, after]
    elif path[0] == "epsilon" and held is not None and held != after:
        at[path[0]] = [held, after]
    else:
        at[path[0]] = after


def _component(plan: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    """The parameters of a component of the plan, to be changed in place."""
    section = key.partition(".")[0]
    for number, (label, params) in enumerate(labelled(plan, section).items()):
        if label == name:
            entry = plan[section][number]
            plan[section][number] = {next(iter(entry)) if isinstance(entry, dict) else entry: params}
            return params
    allowed = ", ".join(entries_of(plan, section))
    raise PlanError(f"{key}: the plan has no {section[:-1]} {name}; allowed: {allowed}")


def _plain(value: Any) -> Any:
    """A number as a plan writes it."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return int(value)
    return value
