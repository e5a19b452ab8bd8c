"""A plan made smaller by one factor, so that a large run fits a small machine.

`fedassay run PLAN --scale 0.01` multiplies the factors of a run's time, and nothing else:

- records: `data.limit` becomes the factor's share of the training images, but keeps `RECORDS` and `PER_CLASS` of
  each class in the private role. The limit also holds for a test set of the data set's own.
- `clients.count`, at least `CLIENTS`; where clients are domains it stays. Those that collude keep their share.
- `seeds`: the first of them, at least one.
- epochs, rounds and steps of methods and attacks, by the names of their keys (`FLOORS`). Batches, rates, epsilon,
  delta, partition and audits stay.
- width: at or below the factors of `SMALLER`, networks of a paper's size give way to this project's small ones.

The result is a plan like any other; its key `scaled`, its record and its pages state the factor.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fedassay.contracts.registry import ComponentKind, declared
from fedassay.plan.schema import DELTA_WORDS, RESERVED, STANDARD, Plan
from fedassay.support.errors import PlanError
from fedassay.support.validation import explain

RECORDS, PER_CLASS = 200, 10
"""Fewest records in the private role: altogether, and for each class."""

CLIENTS = 5
"""Fewest clients of a plan that has more."""

FLOORS: dict[str, int] = {
    "epochs": 1,
    "local_epochs": 1,
    "head_epochs": 1,
    "distillation_epochs": 1,
    "rounds": 2,
    "generator_steps": 2,
    "student_steps": 2,
    "steps": 10,
}
"""Keys of components that the factor multiplies wherever they stand, and the least that each becomes."""

SMALLER: dict[tuple[str, str], tuple[tuple[float, str], ...]] = {
    ("preset", "paper"): ((0.05, "tiny"), (0.25, "small")),
    ("preset", "paper_short"): ((0.05, "tiny"), (0.25, "small")),
    ("preset", "resnet16"): ((0.25, "small"),),
    ("bodies", "resnet16"): ((0.25, "cnn"),),
    ("bodies", "resnet16_group"): ((0.25, "cnn"),),
    ("bodies", "mobilenet_v2"): ((0.25, "cnn"),),
    ("decoder", "residual"): ((0.25, "convolutions"),),
}
"""By key and value: at or below a factor, what stands in its place."""


def scaled(plan: Plan, factor: float, base: Path, where: str) -> Plan:
    """Multiply everything in a plan that takes time by `factor`.

    Args:
        plan: As it was written.
        factor: In (0, 1]; 1 leaves the plan as it is.
        base: Folder that relative paths in the plan are looked up beside.
        where: The plan, for errors.

    Raises:
        PlanError: A wrong factor, a plan that was scaled before, a component that is wrong, or an unknown number
            of images, found only by reading them.
    """
    if not (0 < factor <= 1):
        raise PlanError(f"--scale {factor:g}: allowed: above 0, and at most 1")
    if factor == 1:
        return plan
    if plan.scaled is not None:
        raise PlanError(f"{where}: scaled: given {plan.scaled:g}; --scale takes a plan as it was written")
    data = plan.data.model_copy(update={"limit": _limit(plan, factor, base, where)})
    clients = plan.clients
    if clients.partition != "domains":
        clients = clients.model_copy(update={"count": _shrunk(clients.count, factor, CLIENTS)})
    # As large a share of the clients as it was, but not all of them.
    share = plan.threat.colluding * clients.count / plan.clients.count
    colluding = min(math.ceil(share), clients.count - 1, plan.threat.colluding)
    return plan.model_copy(
        update={
            "data": data,
            "clients": clients,
            "threat": plan.threat.model_copy(update={"colluding": colluding}),
            "seeds": plan.seeds[: _shrunk(len(plan.seeds), factor, 1)],
            "methods": _entries("method", plan.methods, factor, f"{where}: methods"),
            "attacks": _entries("attack", plan.attacks, factor, f"{where}: attacks"),
            "scaled": factor,
        }
    )


def words_of_scale(plan: Plan) -> tuple[str, ...]:
    """Remarks for readers of a scaled plan's results; none for a plan as it was written."""
    if plan.scaled is None:
        return ()
    return (
        f"scaled by {plan.scaled:g}: at most {plan.data.limit} training images, {plan.clients.count} clients, and "
        "as few epochs, rounds and steps as that leaves; figures of the plan as it was written may be others",
    )


def _shrunk(number: int, factor: float, floor: int) -> int:
    """A number times the factor, rounded up, not below the floor and not above itself."""
    return min(number, max(floor, math.ceil(number * factor - 1e-9)))


def _limit(plan: Plan, factor: float, base: Path, where: str) -> int:
    """`data.limit` of the scaled plan."""
    # Sizes of backbones come with torch.
    from fedassay.plan.sizes import training_records

    known = training_records(plan, base)
    if isinstance(known, str):
        raise PlanError(f"{where}: --scale {factor:g}: {known}")
    records, classes = known
    whole = records if plan.data.limit is None else min(records, plan.data.limit)
    floor = math.ceil(max(RECORDS, PER_CLASS * classes) / plan.data.split.private)
    return _shrunk(whole, factor, floor)


def _entries(
    kind: ComponentKind, entries: tuple[dict[str, dict[str, Any]], ...], factor: float, where: str
) -> tuple[dict[str, dict[str, Any]], ...]:
    """Entries with the scaled values of their components written out."""
    found = []
    for index, entry in enumerate(entries):
        ((name, given),) = entry.items()
        if name == STANDARD:
            found.append(entry)
            continue
        own = {
            key: value
            for key, value in given.items()
            if kind != "method" or key not in RESERVED or (key == "delta" and value in DELTA_WORDS)
        }
        found.append({name: _merged(given, _changes(kind, name, own, factor, f"{where}.{index}.{name}"))})
    return tuple(found)


def _changes(kind: ComponentKind, name: str, own: Mapping[str, Any], factor: float, where: str) -> dict[str, Any]:
    """Scaled parameters of a component, defaults included; unchanged ones are left out."""
    component = declared(kind, name).component
    try:
        whole = component.model_validate(own)
    except ValidationError as error:
        raise PlanError(explain(error, component, where)) from None
    values = _as_written(whole)
    if values.get("sampler") == "ddpm" and values.get("steps") is None:
        # `null` is the number of steps that the model was trained with.
        values["steps"] = DDPM_STEPS
    return _scaled_values(values, factor)


def _as_written(value: Any) -> Any:
    """Parameters under the keys of a plan, every default among them (a dump may leave some out)."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {field.alias or name: _as_written(getattr(value, name)) for name, field in fields.items()}
    return [_as_written(each) for each in value] if isinstance(value, list | tuple) else value


DDPM_STEPS = 1000
"""Steps of `sampler: ddpm` where none are given (Ho et al. 2020)."""


def _scaled_values(values: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The keys of a section that change, with those of the sections in it."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            if inner := _scaled_values(value, factor):
                found[key] = inner
        elif key in FLOORS and isinstance(value, int):
            if (fewer := _shrunk(value, factor, FLOORS[key])) != value:
                found[key] = fewer
        elif (smaller := _smaller(key, value, factor)) != value:
            found[key] = smaller
    return found


def _smaller(key: str, value: Any, factor: float) -> Any:
    """A network's name, or a list of names or of sections with one, after `SMALLER`."""
    if isinstance(value, list):
        return [_smaller(key, each, factor) for each in value]
    if isinstance(value, Mapping):
        name = _smaller(key, value.get("name"), factor)
        return value if name == value.get("name") else {"name": name}
    if not isinstance(value, str):
        return value
    return next((other for most, other in SMALLER.get((key, value), ()) if factor <= most), value)


def _merged(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given parameters with changes in their sections."""
    out = copy.deepcopy(dict(given))
    for key, value in changes.items():
        inner = out.get(key)
        out[key] = _merged(inner, value) if isinstance(value, Mapping) and isinstance(inner, Mapping) else value
    return out
