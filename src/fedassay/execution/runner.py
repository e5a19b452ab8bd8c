"""The runner: the only module that knows all four rooms.

Every cell is a pure function of the scenario and the cell: it runs the method, looks at what the
threat model shows, attacks it, audits it and returns a `CellRecord`. What cells share (records,
features, attacker models) is found again by content, so the record does not depend on the order of
cells or on the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from fedassay.data.sheet import contact
from fedassay.execution import engines, kept_cells, runfolder
from fedassay.execution.apart import Apart, can_be_apart
from fedassay.execution.apart import Work as ApartWork
from fedassay.execution.basis import basis_of, key_of_digests, refuse_unlike
from fedassay.execution.cell import Work
from fedassay.execution.cell_job import CellJob, Place
from fedassay.execution.listed import listed_of
from fedassay.execution.order import soonest_first
from fedassay.execution.prepare import Prepared, prepare
from fedassay.execution.ray_cluster import run_ray
from fedassay.execution.run_output import output_folder, write_run
from fedassay.execution.runfolder import FinishedCell
from fedassay.execution.simulated_source import SimulatedSource, job_of_plan, similarity_of
from fedassay.execution.unfinished import Standing
from fedassay.plan.estimate import timed
from fedassay.plan.here import keep
from fedassay.plan.published import measures_lpips
from fedassay.plan.resources import threads_limited
from fedassay.plan.schema import Plan, Scenario
from fedassay.privacy.units import require_persons
from fedassay.records.pictures import SHEET, write_sheet
from fedassay.records.record import RunRecord
from fedassay.records.redacted import redact
from fedassay.records.unfinished import Unfinished
from fedassay.support.devices import choose_device, is_gpu
from fedassay.support.environment import describe
from fedassay.support.errors import PlanError
from fedassay.support.numerics import numerics, threads_now
from fedassay.support.progress import SILENT, Progress, console


@dataclass(frozen=True)
class RunOptions:
    """Options of a run; none of them changes the result, but `redact` leaves the private part of it out."""

    device: str = "auto"
    jobs: int = 1
    engine: Literal["local", "ray"] = "local"
    resume: bool = False
    force: bool = False
    redact: bool = False
    quiet: bool = False
    command: list[str] = field(default_factory=list)


def run_scenario(scenario: Scenario, output: Path | None, options: RunOptions) -> tuple[Path, RunRecord]:
    """Run every cell of a scenario into a folder.

    Returns:
        The run folder, and the record as written there.

    Raises:
        PlanError: The folder is in use, or the plan cannot be carried out at all.
        DataError: The data cannot be used.
    """
    _refuse_with_redact(options)
    started = datetime.now(UTC)
    folder = output or Path("runs") / f"{scenario.plan.name}-{started:%Y%m%dT%H%M%SZ}"
    with threads_limited(scenario.plan.resources.threads), output_folder(folder, options.redact) as work:
        try:
            return folder, _run(scenario, folder, work, options, started)
        finally:
            # The process for questions of claims holds a copy of all data.
            for apart in _APART.values():
                apart.close()
            _APART.clear()


def _refuse_with_redact(options: RunOptions) -> None:
    if options.redact and options.resume:
        raise PlanError("--redact --resume: a redacted run keeps nothing to go on with; allowed: one of them")
    if options.redact and options.engine == "ray":
        raise PlanError(
            "--redact --engine ray: no process could confirm that every machine of a cluster removed its private "
            "files; allowed: --engine local"
        )


def _run(scenario: Scenario, folder: Path, work: Path, options: RunOptions, started: datetime) -> RunRecord:
    """Run into `folder`; cells work in `work`, which is another folder where nothing private is kept."""
    device = _device_here(scenario, options)
    threads = threads_now()
    secret = key_of_digests() if options.redact else None
    # Files of an earlier run in this process may have changed since.
    _prepared.cache_clear()
    _shared.cache_clear()
    _APART.clear()
    if options.engine != "ray" and (options.jobs == 1 or len(scenario.cells) == 1):
        # A process must be forked before this one takes hold of the GPU, or of threads, which stay behind.
        _apart(scenario, Place(work, device, SILENT), threads)
    # Wrong data and weights must be found before anything is written.
    facts = {}
    with console(options.quiet) as progress:
        for seed in dict.fromkeys(scenario.plan.seeds):
            prepared = _prepared(scenario.plan, scenario.base, seed, device, progress, threads)
            facts["null" if seed is None else str(seed)] = prepared.facts
            if any(cell.privacy.private and cell.privacy.unit == "person" for cell in scenario.cells):
                clients = prepared.clients
                require_persons([each.name for each in clients], [each.groups for each in clients])
        if measures_lpips(scenario):
            similarity_of(scenario.plan.similarity.lpips, scenario.base, device).warned()
        with runfolder.claim(folder, scenario.resolved(), options.resume, options.force, options.redact):
            if not options.redact:
                first = _prepared(scenario.plan, scenario.base, scenario.plan.seeds[0], device, progress, threads)
                next(iter(facts.values())).update(_what_was_read(folder, first))

            def made(done: Mapping[str, FinishedCell], lacks: Unfinished | None = None) -> RunRecord:
                held = [done[cell.key] for cell in scenario.cells if cell.key in done]
                reused = sum(item.reused for item in held)
                record = RunRecord(
                    plan=scenario.resolved(),
                    environment={
                        **describe(device, options.command, started),
                        "plan": dict(scenario.source),
                        **({"cells_from_cache": reused} if reused else {}),
                    },
                    data=facts,
                    cells=tuple(item.cell for item in held),
                    errors=tuple(error for item in held for error in item.errors),
                    unfinished=lacks,
                )
                return redact(record) if options.redact else record

            standing = Standing(scenario, folder, made, options.command, options.redact, options.quiet)
            try:
                _run_cells(scenario, work, device, options, progress, secret, standing)
            # Ctrl-C, a signal and whatever breaks off alike: what is finished is reported, and the error goes on.
            except BaseException as error:
                standing.stopped(error)
                raise
            record = made(standing.done)
            write_run(folder, record)
    if not options.redact and options.engine != "ray" and not is_gpu(device):
        cells = [item.cell for item in standing.done.values() if not item.reused]
        keep(timed(scenario, [(cell.method, math.isfinite(cell.epsilon), cell.seconds) for cell in cells]))
    return record


def _what_was_read(folder: Path, prepared: Prepared) -> dict[str, object]:
    """The contact sheet of the first seed's records, for the record; nothing where there are no images."""
    if not prepared.dealt.data.train.pictures:
        return {}
    made = contact(listed_of(prepared.dealt))
    return {SHEET: write_sheet(folder, made.sheet.model_dump(mode="json"), made.tiles)}


def _device_here(scenario: Scenario, options: RunOptions) -> str:
    """The device of this process; the machines of a cluster choose theirs (`run_cell`)."""
    if options.engine != "ray":
        return choose_device(options.device)
    if is_gpu(options.device) and not scenario.plan.resources.gpus:
        raise PlanError(
            "--device cuda with --engine ray: resources.gpus is 0, and Ray hides the GPUs from such cells; "
            "allowed: a number above 0 (0.25 lets four cells share a GPU)"
        )
    return choose_device("cpu" if options.device == "cpu" else "auto")


def _kept(
    scenario: Scenario, folder: Path, device: str, progress: Progress, threads: int
) -> dict[str, FinishedCell]:
    """The finished cells of a run that is resumed.

    Raises:
        PlanError: One was altered, or stands on something else than further ones would.
    """
    found = {cell.key: (cell, runfolder.finished(folder, cell.key)) for cell in scenario.cells}
    done = {key: (cell, kept) for key, (cell, kept) in found.items() if kept is not None}
    pairs = []
    for cell, kept in done.values():
        prepared = _prepared(scenario.plan, scenario.base, cell.seed, device, progress, threads)
        pairs.append((kept.cell, basis_of(scenario, cell, prepared, None)))
    refuse_unlike(folder, pairs)
    return {key: kept for key, (_, kept) in done.items()}


def _run_cells(
    scenario: Scenario,
    folder: Path,
    device: str,
    options: RunOptions,
    progress: Progress,
    secret: bytes | None,
    standing: Standing,
) -> None:
    done = standing.done
    done |= _kept(scenario, folder, device, progress, threads_now()) if options.resume else {}
    waiting = [cell for cell in soonest_first(scenario, device) if cell.key not in done]
    names = [cell.key for cell in waiting]
    # Workers may have another current folder, and those of a cluster another device.
    there = options.device if options.engine == "ray" else device
    threads = threads_now()
    elsewhere = partial(run_cell, scenario, folder=folder.resolve(), device=there, threads=threads, secret=secret)
    needs = scenario.plan.resources
    jobs = needs.workers(min(options.jobs, max(1, len(waiting))), device)
    if options.engine == "ray":
        results = run_ray(names, elsewhere, options.jobs, needs, quiet=options.quiet)
    elif jobs > 1:
        results = engines.run_local(names, elsewhere, jobs, needs.threads_of(jobs), progress.tell)
    elif _needs_worker(scenario):
        results = engines.run_local(names, elsewhere, 1, threads, progress.tell)
    else:
        here = partial(
            run_cell, scenario, folder=folder, device=device, threads=threads, progress=progress, secret=secret
        )
        results = engines.run_here(names, here)
    with progress.step("cells") as advance:
        advance(0, len(waiting))
        for number, (name, result) in enumerate(results, 1):
            lost = Place(folder, device, progress)
            standing.add(name, result or _lost(scenario, name, lost, threads, secret))
            advance(number, len(waiting))


def _lost(scenario: Scenario, key: str, place: Place, threads: int, secret: bytes | None) -> FinishedCell:
    """The record of a cell after its worker died twice. It is not stored, so that `--resume` tries it again."""
    return Work(_case(scenario, key, place, threads, secret)).lost(
        "its worker process died, and again when the cell ran alone: killed, or out of memory; "
        "--resume tries the cell again"
    )


def run_cell(
    scenario: Scenario,
    key: str,
    folder: Path,
    device: str,
    threads: int,
    progress: Progress = engines.TO_PARENT,
    secret: bytes | None = None,
) -> FinishedCell:
    """Run one cell and store its result in the run folder.

    `threads` are as in `prepare`, `secret` is the key of the digests of data in a redacted run.
    """
    place = Place(folder, choose_device(device), progress)
    runfolder.renew_scratch(folder, key, numerics(place.device))
    apart = _apart(scenario, place, threads)
    case = _case(scenario, key, place, threads, secret, apart)
    facts = _prepared(scenario.plan, scenario.base, case.entry.seed, place.device, place.progress, threads).facts
    kept = kept_cells.place_of(case, scenario, facts, apart is not None)
    done = None if kept is None else kept_cells.taken(kept, case)
    if done is None:
        done = Work(case).run()
        if apart is not None and apart.ended:
            engines.give_up()
        if not done.out_of_memory:
            runfolder.keep(folder, key, done)
            if kept is not None:
                kept_cells.keep(kept, case, done)
    if not done.out_of_memory:
        runfolder.drop_scratch(folder, key)
    return done


_APART: dict[tuple[Path, str, int], Apart] = {}
"""Process where no method of this process's run has run, one at a time."""


def _apart(scenario: Scenario, place: Place, threads: int) -> Apart | None:
    """A process for the questions of claims, forked before the first cell of a run here; it computes on the CPU.

    None where nothing private is claimed, and where this process has run a method, or cannot be forked.
    """
    if not any(cell.privacy.private for cell in scenario.cells):
        return None
    run = (place.folder, place.device, threads)
    if run not in _APART:
        _APART.clear()
        if not can_be_apart():
            return None
        # The first run has shown its progress; runs that repeat it stay silent.
        there = replace(place, device="cpu", progress=SILENT)

        def make(key: str) -> ApartWork:
            source = _case(scenario, key, there, threads, None).source
            assert isinstance(source, SimulatedSource)
            return source.work

        _APART[run] = Apart(make)
    return _APART[run]


def _needs_worker(scenario: Scenario) -> bool:
    """Whether cells have to run in a new process, since this one has run a method that may remember.

    What is defined in the main module, as in a notebook, is not there in a new process.
    """
    components = (*scenario.methods, *scenario.attacks, *scenario.audits)
    here = any(type(each.build).__module__ == "__main__" for each in components)
    return not here and not can_be_apart() and any(cell.privacy.private for cell in scenario.cells)


def _case(
    scenario: Scenario, key: str, place: Place, threads: int, secret: bytes | None, apart: Apart | None = None
) -> CellJob:
    cell = next(cell for cell in scenario.cells if cell.key == key)
    prepared = _prepared(scenario.plan, scenario.base, cell.seed, place.device, place.progress, threads)
    return job_of_plan(scenario, cell, prepared, _shared(scenario.plan, cell.seed), place, secret, apart)


@lru_cache(maxsize=4)
def _prepared(plan: Plan, base: Path, seed: int | None, device: str, progress: Progress, threads: int) -> Prepared:
    return prepare(plan, base, seed, device, progress, threads)


@lru_cache(maxsize=4)
def _shared(plan: Plan, seed: int | None) -> dict[str, object]:
    """Results that the cells of one seed share in this process; filled by content key."""
    return {}
