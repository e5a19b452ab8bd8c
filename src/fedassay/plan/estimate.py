"""Cost of a plan: seconds and memory of every cell, before anything is loaded or run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedassay.contracts.sizes import Load, Planned, Sizes
from fedassay.plan import rates as rate
from fedassay.plan.here import Here
from fedassay.plan.measured import LEAST, Stage, corrected
from fedassay.plan.resources import memory_bytes
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
        spread: Factor that nearly all plans like this one took more or less.
        memory: Bytes of one process at its largest; None likewise.
        remarks: Parts left out, with the reasons.
        basis: Machine that the rates were measured on, and corrections by that of the run.
    """

    cells: dict[str, float | None]
    seconds: float | None
    spread: float
    memory: float | None
    remarks: tuple[str, ...]
    basis: str = ""

    @property
    def range(self) -> tuple[float, float] | None:
        """Least and most seconds, None as `seconds`."""
        return None if self.seconds is None else (self.seconds / self.spread, self.seconds * self.spread)


Unit = tuple[str, str, bool]
"""Unit of work, method or backbone, and whether it is private: what a stage is known by."""
Cost = Callable[[Sizes, Load], float]

_TIMED, _UNLIKE = 1.5, 3.0
"""Factors between an estimate and the run, of plans whose work was timed before and of others
(`benchmarks/dry_run_accuracy.py`)."""


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
        found = _estimate(scenario, here)
    # Timed stages are those of processors.
    spread = _UNLIKE if is_gpu(device) else found.spread
    return replace(found, spread=spread, basis=basis if here is None else f"{basis}, {here.words}")


def _estimate(scenario: Scenario, here: Here | None) -> Estimate:
    there = math.inf if here is None else memory_bytes()
    here = Here(1.0, ()) if here is None else here
    sizes = sizes_of(scenario.plan, scenario.base)
    if isinstance(sizes, str):
        none = dict.fromkeys(cell.key for cell in scenario.cells)
        return Estimate(none, None, _UNLIKE, None, (f"no estimate: {sizes}",))
    name = scenario.plan.name
    own = {cell.key: _method(cell, sizes, name) for cell in scenario.cells}
    cells = {key: None if stage is None else here.seconds(stage) for key, stage in own.items()}
    unknown = sorted({cell.method.name for cell in scenario.cells if cells[cell.key] is None})
    remarks = [f"not estimated: {', '.join(unknown)}"] if unknown else []
    remarks += [f"not estimated: {part}" for part, cost in _costs(scenario) if cost is None]
    remarks += [*_foreseen(scenario, sizes), *scenario.warnings]
    outside = (rate.START + rate.PAGE * len(scenario.cells)) / here.speed
    took = [(here.seconds(stage), here.known(stage)) for stage in stages(scenario, sizes)]
    total = outside + sum(seconds for seconds, _ in took)
    guessed = sum(seconds for seconds, known in took if not known)
    held = _held(scenario, sizes)
    if held > there:
        remarks.append(f"a job takes about {held / 2**30:.1f} GiB, and this machine has {there / 2**30:.1f} GiB")
    return Estimate(cells, total, _UNLIKE if guessed > total / 4 else _TIMED, held, tuple(remarks))


def _held(scenario: Scenario, sizes: Sizes) -> float:
    """Bytes of one process at its largest, with those of the attack that holds most."""
    facts = [(attack.build.facts, attack.params) for attack in scenario.attacks]
    pictures = any("reconstructions" in each.gives for each, _ in facts)
    attacked = (each.holds(params, sizes) for each, params in facts if each.holds is not None)
    return memory(sizes, _parameters(scenario, sizes), pictures) + max(attacked, default=0.0)


def stages(scenario: Scenario, sizes: Sizes) -> Iterator[Stage]:
    """Units of a plan's work with the seconds of their formulas; nothing is measured (`took` is 0).

    An attack's unit holds the verdicts on it; an audit's, what it does by itself. The work on all cells of a seed
    is shared out as that on each cell alone.
    """
    name, backbone = scenario.plan.name, scenario.plan.backbone
    trained = backbone.weights is None or backbone.weights == "public"
    for _ in scenario.plan.seeds:
        yield Stage("prepare", backbone.name, trained, extraction(sizes), 0.0, name)
    by_seed = defaultdict[int | None, list[Cell]](list)
    for cell in scenario.cells:
        by_seed[cell.seed].append(cell)
    for cells in by_seed.values():
        yield from (stage for cell in cells if (stage := _method(cell, sizes, name)) is not None)
        yield from (Stage("cell", cell.method.name, cell.privacy.private, 1.0, 0.0, name) for cell in cells)
        for unit, cost in _costs(scenario):
            if cost is not None:
                yield from shared(unit, cost, cells, sizes, name)


def shared(unit: str, cost: Cost, cells: Sequence[Cell], sizes: Sizes, plan: str) -> Iterator[Stage]:
    """The work of an attack or audit on all cells of a plan's seed, shared out as that on each cell alone."""
    alone = [max(LEAST, cost(sizes, _load([cell], sizes))) for cell in cells]
    whole = max(LEAST, cost(sizes, _load(cells, sizes))) / sum(alone)
    for cell, one in zip(cells, alone, strict=True):
        yield Stage(unit, cell.method.name, cell.privacy.private, whole * one, 0.0, plan)


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
    return [
        Stage(
            *key,
            float(f"{sum(each) / len(each):.3g}"),
            float(f"{took[key] / len(each):.3g}"),
            scenario.plan.name,
        )
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


def method_seconds(cell: Cell, sizes: Sizes, plan: str) -> float | None:
    """Seconds of the method of a plan's cell; None where it has no rate."""
    stage = _method(cell, sizes, plan)
    return None if stage is None else corrected(stage)


def _method(cell: Cell, sizes: Sizes, plan: str) -> Stage | None:
    own = _formula(cell, sizes)
    return None if own is None else Stage("method", cell.method.name, cell.privacy.private, own, 0.0, plan)


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
