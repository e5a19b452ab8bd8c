"""Cost of a plan: seconds and memory of every cell, before anything is loaded or run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedassay.contracts.sizes import Load, Planned, Sizes
from fedassay.plan import rates as rate
from fedassay.plan.here import Here
from fedassay.plan.measured import LEAST, Stage, corrected
from fedassay.plan.schema import Cell, Scenario
from fedassay.plan.sizes import sizes_of
from fedassay.plan.wiring import bounds_in, judged_by
from fedassay.plan.work import body, extraction, memory
from fedassay.support.devices import is_gpu


@dataclass(frozen=True)
class Estimate:
    """Cost of a plan on one thread or a GPU, from measured rates (`fedassay.plan.rates`).

    Attributes:
        cells: Seconds of each cell's method, by key; None where its method has no rate.
        seconds: Of everything that could be estimated, reading of images and backbone included; None where
            the sizes are not known.
        memory: Bytes of one process at its largest; None likewise.
        remarks: Parts left out, with the reasons.
        basis: Machine that the rates were measured on, and corrections by that of the run.
    """

    cells: dict[str, float | None]
    seconds: float | None
    memory: float | None
    remarks: tuple[str, ...]
    basis: str = ""


Unit = tuple[str, str, bool]
"""Unit of work, method or backbone, and whether it is private: what a stage is known by."""
Cost = Callable[[Sizes, Load], float]


def estimate(scenario: Scenario, device: str = "cpu", here: Here | None = None) -> Estimate:
    """Estimate a plan without reading its data.

    Sizes come from a data set's name or a file's header. Nothing is downloaded.

    Args:
        scenario: The plan.
        device: Device of the rates; it need not be there.
        here: The machine of the run; by default that of the rates, as for a GPU.
    """
    here = None if is_gpu(device) else here
    with rate.rates_of(device) as basis:
        return replace(_estimate(scenario, here), basis=basis if here is None else f"{basis}, {here.words}")


def _estimate(scenario: Scenario, here: Here | None) -> Estimate:
    seconds = corrected if here is None else here.seconds
    sizes = sizes_of(scenario.plan, scenario.base)
    if isinstance(sizes, str):
        return Estimate({cell.key: None for cell in scenario.cells}, None, None, (f"no estimate: {sizes}",))
    cells = {}
    for cell in scenario.cells:
        own = _method(cell, sizes)
        cells[cell.key] = None if own is None else seconds(own._replace(plan=scenario.plan.name))
    unknown = sorted({cell.method.name for cell in scenario.cells if cells[cell.key] is None})
    remarks = [f"not estimated: {', '.join(unknown)}"] if unknown else []
    remarks += [f"not estimated: {name}" for name, cost in _costs(scenario) if cost is None]
    total = (rate.START + rate.PAGE * len(scenario.cells)) / (1.0 if here is None else here.speed)
    total += sum(map(seconds, stages(scenario, sizes)))
    remarks += [*_foreseen(scenario, sizes), *scenario.warnings]
    pictures = any("reconstructions" in attack.build.facts.gives for attack in scenario.attacks)
    held = memory(sizes, _parameters(scenario, sizes), pictures)
    return Estimate(cells, total, held, tuple(remarks))


def stages(scenario: Scenario, sizes: Sizes) -> Iterator[Stage]:
    """Units of a plan's work with the seconds of their formulas; nothing is measured (`took` is 0).

    An attack's unit holds the verdicts on it; an audit's, what it does by itself. The work on all cells of a seed
    is shared out as that on each cell alone.
    """
    return (stage._replace(plan=scenario.plan.name) for stage in _stages(scenario, sizes))


def _stages(scenario: Scenario, sizes: Sizes) -> Iterator[Stage]:
    backbone = scenario.plan.backbone
    trained = backbone.weights is None or backbone.weights == "public"
    for _ in scenario.plan.seeds:
        yield Stage("prepare", backbone.name, trained, extraction(sizes), 0.0)
    by_seed = defaultdict[int | None, list[Cell]](list)
    for cell in scenario.cells:
        by_seed[cell.seed].append(cell)
    for cells in by_seed.values():
        yield from (stage for cell in cells if (stage := _method(cell, sizes)) is not None)
        yield from (Stage("cell", cell.method.name, cell.privacy.private, 1.0, 0.0) for cell in cells)
        for unit, cost in _costs(scenario):
            if cost is not None:
                yield from shared(unit, cost, cells, sizes)


def shared(unit: str, cost: Cost, cells: Sequence[Cell], sizes: Sizes) -> Iterator[Stage]:
    """The work of an attack or audit on all cells of a seed, shared out as that on each cell alone."""
    alone = [max(LEAST, cost(sizes, _load([cell], sizes))) for cell in cells]
    whole = max(LEAST, cost(sizes, _load(cells, sizes))) / sum(alone)
    for cell, one in zip(cells, alone, strict=True):
        yield Stage(unit, cell.method.name, cell.privacy.private, whole * one, 0.0)


def timed(scenario: Scenario, cells: Iterable[tuple[str, bool, Mapping[str, float]]]) -> list[Stage]:
    """Mean seconds of each unit of a finished run's work, beside those of its formula; empty without sizes.

    Args:
        scenario: The plan.
        cells: Name of the method, whether epsilon is finite, and seconds by stage of each cell.
    """
    sizes = sizes_of(scenario.plan, scenario.base)
    if isinstance(sizes, str):
        return []
    units = {part.label: part.name for part in (*scenario.attacks, *scenario.audits)}
    took, expected = defaultdict[Unit, float](float), defaultdict[Unit, list[float]](list)
    ran = set()
    for method, private, seconds in cells:
        ran.add((method, private))
        for name, taken in seconds.items():
            # An attack's unit holds the verdicts on it, whose stages are called AUDIT:ATTACK.
            unit = "method" if name == "method" else units.get(name.rpartition(":")[2], "cell")
            took[unit, method, private] += taken
    for stage in stages(scenario, sizes):
        expected[stage[:3]].append(stage.expected)
    name = scenario.plan.name
    return [
        Stage(*key, float(f"{sum(each) / len(each):.3g}"), float(f"{took[key] / len(each):.3g}"), name)
        for key, each in expected.items()
        if key[1:] in ran
    ]


def _load(cells: Sequence[Cell], sizes: Sizes) -> Load:
    seconds = [_formula(cell, sizes) or 0.0 for cell in cells]
    private = sum(own for own, cell in zip(seconds, cells, strict=True) if cell.privacy.private)
    return Load(len(cells), sum(seconds), private)


def _costs(scenario: Scenario) -> Iterator[tuple[str, Cost | None]]:
    """The units of attacks and audits, and their costs."""
    for attack in scenario.attacks:
        cost = attack.build.facts.cost
        yield attack.name, None if cost is None else partial(cost, attack.params)
    for audit in scenario.audits:
        cost = audit.build.facts.cost
        yield audit.name, None if cost is None else partial(cost, audit.params)


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
    stage = _method(cell, sizes)
    return None if stage is None else corrected(stage)


def _method(cell: Cell, sizes: Sizes) -> Stage | None:
    own = _formula(cell, sizes)
    return None if own is None else Stage("method", cell.method.name, cell.privacy.private, own, 0.0)


def _formula(cell: Cell, sizes: Sizes) -> float | None:
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
