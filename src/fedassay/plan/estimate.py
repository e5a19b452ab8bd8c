"""What a plan would take: seconds and memory of every cell, before anything is loaded or run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedassay.plan import rates as rate
from fedassay.plan.schema import Cell, Component, Scenario
from fedassay.plan.sizes import Sizes, sizes_of
from fedassay.plan.work import ATTACKS, AUDITS, METHODS, body, extraction, memory

_RERUNS = 2.5
"""Runs of the method for each run that dp_claim asks for: two sides, and those that choose the direction."""


@dataclass(frozen=True)
class Estimate:
    """What a plan would take on one thread, from measured rates (`fedassay.plan.rates`).

    Attributes:
        cells: Seconds of each cell's method, by key; None where its method has no rate.
        seconds: Of everything that could be estimated, reading of images and backbone included; None where
            the sizes are not known.
        memory: Bytes of one process at its largest; None likewise.
        remarks: What is left out, and why.
    """

    cells: dict[str, float | None]
    seconds: float | None
    memory: float | None
    remarks: tuple[str, ...]


def estimate(scenario: Scenario) -> Estimate:
    """Estimate a plan without reading its data.

    Sizes are those that a data set's name or a file's header tells. Nothing is downloaded.
    """
    sizes = sizes_of(scenario.plan, scenario.base)
    if isinstance(sizes, str):
        return Estimate({cell.key: None for cell in scenario.cells}, None, None, (f"no estimate: {sizes}",))
    remarks: list[str] = []
    cells = {cell.key: _method(cell, sizes) for cell in scenario.cells}
    unknown = sorted({cell.method.name for cell in scenario.cells if cells[cell.key] is None})
    if unknown:
        remarks.append(f"not estimated: {', '.join(unknown)}")
    seeds = len(scenario.plan.seeds)
    per_seed = len(scenario.cells) // seeds
    total = rate.START + seeds * extraction(sizes) + sum(value or 0.0 for value in cells.values())
    for component in scenario.attacks:
        cost = ATTACKS.get(component.name)
        if component.name == "membership":
            total += _shadows(component, cells)
        elif cost is None:
            remarks.append(f"not estimated: {component.name}")
        else:
            total += seeds * cost(component.params, sizes, per_seed)
    for component in scenario.audits:
        price = AUDITS.get(component.name)
        if price is None:
            remarks.append(f"not estimated: {component.name}")
            continue
        total += seeds * price(component.params, sizes, per_seed)
        if component.params.get("mode") == "rerun":
            runs = float(component.params["runs"])
            total += (
                _RERUNS
                * runs
                * sum(cells[cell.key] or 0.0 for cell in scenario.cells if cell.privacy.private)
                / sizes.clients
            )
    return Estimate(cells, total, memory(sizes, _parameters(scenario, sizes)), tuple(remarks))


def _method(cell: Cell, sizes: Sizes) -> float | None:
    cost = METHODS.get(cell.method.name)
    return None if cost is None else cost(cell.method.params, sizes, cell.privacy.private)


def _shadows(component: Component, cells: dict[str, float | None]) -> float:
    """Shadow releases run a cell's method anew, of each of two kinds."""
    return 2 * float(component.params.get("shadows", 0)) * sum(value or 0.0 for value in cells.values())


def _parameters(scenario: Scenario, sizes: Sizes) -> float:
    """Parameters of the largest network that a client trains, as far as the plan says."""
    found = [sizes.width * sizes.classes]
    for method in scenario.methods:
        nested = [method.params, *(part for part in method.params.values() if isinstance(part, dict))]
        for params in nested:
            found += [body(kind, sizes)[1] for kind in params.get("bodies") or []]
            if "latent" in params and "hidden" in params:
                found.append(2 * sizes.pixels * params["hidden"])
    return float(max(found))


def in_words(seconds: float) -> str:
    """Seconds as a reader wants them: 40 s, 3 min, 5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{math.ceil(seconds / 3600)} h"
