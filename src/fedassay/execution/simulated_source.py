"""The case of a cell of a plan: one of our methods is run on the plan's records, as often as an audit asks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, cast

from fedassay.audits.stats.intervals import wilson
from fedassay.audits.stats.persons import share_interval, share_of_persons
from fedassay.contracts.audit import AttackAudit, Audit, CellData, Replayed, Rerun, RunAudit
from fedassay.contracts.facts import in_words
from fedassay.contracts.method import MethodInput, Outcome, nonprivate_form
from fedassay.contracts.sizes import Sizes
from fedassay.data.evaluation import against_chance
from fedassay.data.records import Records
from fedassay.exchange.store import Spool
from fedassay.execution import runfolder
from fedassay.execution.apart import Apart, note_run, replied
from fedassay.execution.apart import Work as ApartWork
from fedassay.execution.basis import basis_of
from fedassay.execution.cell_job import (
    AttackAuditEntry,
    CellEntry,
    CellJob,
    Place,
    Produced,
    RunAuditEntry,
)
from fedassay.execution.prepare import Prepared
from fedassay.execution.stages import Stages
from fedassay.execution.trapped import with_trap
from fedassay.plan.next_run import NextRun
from fedassay.plan.published import measures_lpips
from fedassay.plan.schema import Cell, Component, Plan, Scenario
from fedassay.plan.sizes import backbone_size
from fedassay.plan.wiring import attacks_for, bounds_in
from fedassay.privacy.tape import taped
from fedassay.privacy.units import most_records
from fedassay.records.manifest import note
from fedassay.similarity.metrics import Similarity, make_similarity
from fedassay.similarity.spec import LpipsSpec
from fedassay.support.errors import NotRunError
from fedassay.support.numerics import at_threads
from fedassay.support.seeds import Seeds


def job_of_plan(
    scenario: Scenario,
    cell: Cell,
    prepared: Prepared,
    shared: dict[str, object],
    place: Place,
    key: bytes | None = None,
    apart: Apart | None = None,
) -> CellJob:
    """Return the job of a plan's cell.

    Args:
        scenario: The resolved plan.
        cell: Of this plan.
        prepared: The records of the cell's seed.
        shared: Results that the cells of that seed share.
        place: Folder, device and progress of the work.
        key: Of the digests of data in a redacted run.
        apart: Process where the methods never ran; None: audits' questions run in this process.
    """
    plan, method = scenario.plan, cell.method
    seeds = _seeds(cell)
    # The basis of a run is its inputs; a trap follows from them.
    basis = basis_of(scenario, cell, prepared, key)
    prepared = with_trap(prepared, method.build, plan.threat, Seeds(cell.seed).child("trap"))
    return CellJob(
        key=cell.key,
        entry=CellEntry(method.name, method.label, method.params, method.given, cell.privacy, cell.seed),
        source=SimulatedSource(cell, prepared, seeds, place, apart, plan.threat.server == "malicious"),
        known=CellData(
            clients=prepared.clients,
            test=prepared.test,
            fresh=prepared.fresh,
            control=prepared.control,
            attacker=prepared.attacker,
            backbone=prepared.backbone,
            classes=prepared.classes,
            shared=shared,
            gallery=prepared.gallery,
        ),
        threat=plan.threat,
        attacks=scenario.attacks,
        audits=tuple(_entry(audit) for audit in scenario.audits),
        num_tests=bounds_in(scenario),
        seeds=seeds,
        # A network is loaded, or even fetched, where images are held against each other, and nowhere else.
        similarity=partial(
            similarity_of,
            plan.similarity.lpips if measures_lpips(scenario) else None,
            scenario.base,
            place.device,
        ),
        place=place,
        warnings=scenario.warnings,
        another=NextRun(scenario, cell, _sizes(plan, prepared)),
        basis=basis,
        keeps=key is None,
    )


def _sizes(plan: Plan, prepared: Prepared) -> Sizes | None:
    """The sizes of the work, of the records as they are; None where the backbone was not measured."""
    clients = prepared.clients
    height, width, channels = clients[0].images.shape[1:]
    image = (height, width, channels)
    backbone = backbone_size(plan, image)
    if isinstance(backbone, str):
        return None
    return Sizes(
        private=sum(map(len, clients)),
        attacker=len(prepared.attacker),
        public=0 if prepared.public is None else len(prepared.public),
        test=len(prepared.test),
        control=len(prepared.control),
        clients=len(clients),
        classes=prepared.classes,
        image=image,
        width=prepared.backbone.width,
        backbone=backbone[1],
    )


_REMEMBERS = "this process has run a method before, or cannot be forked; a new one would tell, or `--jobs 2`"


@dataclass(frozen=True)
class SimulatedSource:
    """Runs the cell's method: on the clients' records, and on others.

    Attributes:
        cell: Method and privacy target.
        prepared: The plan's records.
        seeds: Streams of the first run.
        place: Place of the work.
        apart: Process where the method never ran; None: reruns happen in this process.
        malicious: Whether the server is (`threat.server`).
    """

    cell: Cell
    prepared: Prepared
    seeds: Seeds
    place: Place
    apart: Apart | None = None
    malicious: bool = False

    def first(self, stages: Stages) -> Produced | None:
        """Run the method, keep its transcript and measure its model's accuracy."""
        outcome: Outcome | None = None
        # Reruns on other records must not continue the cell's own checkpoints.
        scratch = runfolder.scratch(self.place.folder, self.cell.key)
        note_run()
        # Reruns have one thread, and a sum of several threads is rounded otherwise.
        threads = 1 if self.apart is not None and self.cell.privacy.private else None
        with taped(folder=scratch) as tape, stages("method"), at_threads(threads):
            outcome = _told(self._run(self._input(self.prepared.clients, self.seeds, scratch)), self.prepared)
        if outcome is None:
            return None
        with stages("transcript"):
            name = f"transcripts/{self.cell.key}"
            note(self.place.folder, self.cell.key, (f"{name}/{file}" for file in outcome.transcript.files()))
            outcome.transcript.save(self.place.folder / name)
        utility: dict[str, float | None] = dict(outcome.utility)
        with stages("utility"):
            utility = {**_accuracy(outcome, self.prepared.evaluation), **utility}
        return Produced(outcome, utility, tape)

    def run_on(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """Run the method on records of every client, in their order, with other seeds."""
        return self._run(self._input(clients, seeds, None))

    def run_shadow(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """The same for an attack, which learns from it what releases look like."""
        return self._run(replace(self._input(clients, seeds, None), shadow=True))

    def run_nonprivate(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """Run the method's most revealing form without privacy, on records of these clients."""
        form = nonprivate_form(self.cell.method.build, self.cell.privacy.private)
        privacy = self.cell.privacy.model_copy(update={"epsilon": math.inf})
        return form.run(replace(self._input(clients, seeds, None), privacy=privacy))

    def rerun(self, asked: Rerun) -> Replayed:
        """Run the method on the CPU, in a process that never ran it, or in this one where there is none."""
        if self.apart is None:
            if asked.apart:
                raise NotRunError(_REMEMBERS)
            return replied(self.work, asked)
        found = self.apart.ask(self.cell.key, self.work.known, asked)
        if found.outcome is None or asked.other is not None:
            return found
        return found._replace(outcome=_told(found.outcome, self.prepared))

    @property
    def work(self) -> ApartWork:
        """Return the work that a process that never ran the method needs."""
        own = self.prepared
        others = (own.test, own.evaluation, own.public, own.attacker, own.fresh, own.control)
        known = (*own.senders, *(each for each in others if each is not None))
        return ApartWork(known, self._apart, partial(self._apart, own.clients, None, self.seeds))

    def _apart(self, clients: Sequence[Records], other: str | None, seeds: Seeds) -> Outcome:
        # The order of additions on a GPU is not the same twice.
        task = replace(self._input(clients, seeds, None), device="cpu", spool=Spool())
        return self._run(replace(task, simulated=False) if other is None else task.replayed(other))

    def _run(self, task: MethodInput) -> Outcome:
        return self.cell.method.build.run(task)

    def _input(self, clients: Sequence[Records], seeds: Seeds, scratch: Path | None) -> MethodInput:
        return MethodInput(
            # Colluding clients take part in every run, with their own records.
            clients=(*clients, *self.prepared.colluders),
            test=self.prepared.evaluation,
            public=self.prepared.public,
            classes=self.prepared.classes,
            backbone=self.prepared.backbone,
            privacy=self.cell.privacy,
            seeds=seeds,
            device=self.place.device,
            progress=self.place.progress,
            scratch=scratch,
            spool=Spool(runfolder.scratch(self.place.folder, self.cell.key)),
            parameters=json.dumps(self.cell.method.params, sort_keys=True),
            # Only the first run keeps anything; the others are an audit's.
            simulated=scratch is None,
            adversary=(self.prepared.attacker or None) if self.malicious else None,
        )


def _seeds(cell: Cell) -> Seeds:
    """The streams of a cell."""
    # Cells at several epsilons must not share their noise: both together would give away what neither does.
    own = Seeds(cell.seed).child("cell", cell.method.label)
    asked = cell.privacy
    if not asked.private:
        return own
    unit = () if asked.unit == "record" else (asked.unit, repr(asked.max_records))
    return own.child("private", repr(asked.epsilon), repr(asked.delta), asked.adjacency, *unit)


def _entry(audit: Component[Audit]) -> RunAuditEntry | AttackAuditEntry:
    facts = audit.build.facts
    if not facts.judges:
        of_run = cast(RunAudit, audit.build)
        return RunAuditEntry(audit.name, audit.label, lambda context: of_run.assess(None, context))
    of_attacks = cast(AttackAudit, audit.build)
    otherwise = f"the plan's attacks do not hold {in_words(attacks_for(facts))}"
    return AttackAuditEntry(audit.name, audit.label, facts, of_attacks.assess, otherwise)


@lru_cache(maxsize=4)
def similarity_of(spec: LpipsSpec | Literal["auto"] | None, base: Path, device: str) -> Similarity:
    """The metrics that a plan asks for: LPIPS loads a network, once in a process."""
    return make_similarity(spec, base, device)


def _told(outcome: Outcome, prepared: Prepared) -> Outcome:
    """The outcome with the most records of one person in its transcript, where persons are known."""
    groups = [client.groups for client in prepared.clients]
    if all(own is None for own in groups):
        return outcome
    return replace(outcome, transcript=replace(outcome.transcript, most_records=most_records(groups)))


def _accuracy(outcome: Outcome, test: Records) -> dict[str, float | None]:
    if outcome.model is None:
        return {}
    predicted = outcome.model.predict(test)
    hits = predicted == test.labels
    correct = int(hits.sum())
    if test.groups is None:
        found = wilson(correct, len(test))
        accuracy, low, high = correct / len(test), float(found.low), float(found.high)
    else:
        accuracy, (low, high) = share_of_persons(hits, test.groups), share_interval(hits, test.groups)
    return {
        "accuracy": accuracy,
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_n": float(len(test)),
        **against_chance(hits, test.labels),
    }
