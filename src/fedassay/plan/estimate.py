"""Cost of a plan: seconds and memory of every cell, before anything is loaded or run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedassay.contracts.sizes import Load, Planned, Sizes
from fedassay.plan import rates as rate
from fedassay.plan.schema import Cell, Scenario
from fedassay.plan.sizes import sizes_of
from fedassay.plan.wiring import bounds_in, judged_by
from fedassay.plan.work import body, extraction, memory


@dataclass(frozen=True)
class Estimate:
    """Cost of a plan on one thread or a GPU, from measured rates (`fedassay.plan.rates`).

    Attributes:
        cells: Seconds of each cell's method, by key; None where its method has no rate.
        seconds: Of everything that could be estimated, reading of images and backbone included; None where
            the sizes are not known.
        memory: Bytes of one process at its largest; None likewise.
        remarks: Parts left out, with the reasons.
        basis: Machine that the rates were measured on.
    """

    cells: dict[str, float | None]
    seconds: float | None
    memory: float | None
    remarks: tuple[str, ...]
    basis: str = ""


def estimate(scenario: Scenario, device: str = "cpu") -> Estimate:
    """Estimate a plan without reading its data.

    Sizes come from a data set's name or a file's header. Nothing is downloaded.

    Args:
        scenario: The plan.
        device: Device of the rates; it need not be there.
    """
    with rate.rates_of(device) as basis:
        return replace(_estimate(scenario), basis=basis)


def _estimate(scenario: Scenario) -> Estimate:
    sizes = sizes_of(scenario.plan, scenario.base)
    if isinstance(sizes, str):
        return Estimate({cell.key: None for cell in scenario.cells}, None, None, (f"no estimate: {sizes}",))
    remarks: list[str] = []
    cells = {cell.key: method_seconds(cell, sizes) for cell in scenario.cells}
    unknown = sorted({cell.method.name for cell in scenario.cells if cells[cell.key] is None})
    if unknown:
        remarks.append(f"not estimated: {', '.join(unknown)}")
    seeds = len(scenario.plan.seeds)
    per_seed = len(scenario.cells) // seeds
    total = rate.START + seeds * extraction(sizes) + sum(value or 0.0 for value in cells.values())
    load = Load(
        per_seed,
        sum(value or 0.0 for value in cells.values()) / seeds,
        sum(cells[cell.key] or 0.0 for cell in scenario.cells if cell.privacy.private) / seeds,
    )
    costs = [(attack.name, attack.params, attack.build.facts.cost) for attack in scenario.attacks]
    costs += [(audit.name, audit.params, audit.build.facts.cost) for audit in scenario.audits]
    for name, params, cost in costs:
        if cost is None:
            remarks.append(f"not estimated: {name}")
        else:
            total += seeds * cost(params, sizes, load)
    remarks += [*_foreseen(scenario, sizes), *scenario.warnings]
    pictures = any("reconstructions" in attack.build.facts.gives for attack in scenario.attacks)
    held = memory(sizes, _parameters(scenario, sizes), pictures)
    return Estimate(cells, total, held, tuple(remarks))


def foreseen(scenario: Scenario) -> tuple[str, ...]:
    """Audits foreseen to be inconclusive by the size of the plan alone, with the change that would decide."""
    sizes = sizes_of(scenario.plan, scenario.base)
    return () if isinstance(sizes, str) else _foreseen(scenario, sizes)


def _foreseen(scenario: Scenario, sizes: Sizes) -> tuple[str, ...]:
    claims = {(cell.privacy.epsilon, cell.privacy.delta) for cell in scenario.cells if cell.privacy.private}
    found = []
    for audit in scenario.audits:
        judged = tuple((attack.name, attack.params) for attack in judged_by(audit, scenario.attacks))
        if audit.build.facts.judges and not judged:
            continue
        planned = Planned(sizes, bounds_in(scenario), tuple(sorted(claims)), judged)
        if words := audit.build.facts.foresee(audit.params, planned):
            found.append(f"{audit.label}: its silence will decide nothing: {words}")
    return tuple(found)


def method_seconds(cell: Cell, sizes: Sizes) -> float | None:
    """Seconds of a cell's method; None where it has no rate."""
    cost = cell.method.build.facts.cost
    return None if cost is None else cost(cell.method.params, sizes, cell.privacy.private)


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
