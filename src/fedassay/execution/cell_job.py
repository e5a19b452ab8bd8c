"""Job of a cell, as data: the same for messages of a method that we run and for captured ones.

`simulated_source` makes the job of a plan's cell, `captured_source` that of a captured transcript; `cell` does
either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fedassay.contracts.attack import Attack, AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext, CellData, RunMethod
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel
from fedassay.execution.stages import Stages
from fedassay.plan.next_run import NextRun
from fedassay.plan.schema import Component
from fedassay.privacy.tape import Tape
from fedassay.records.basis import Basis
from fedassay.records.record import Finding
from fedassay.similarity.metrics import Similarity
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds


@dataclass(frozen=True)
class CellEntry:
    """Entry of the record for a cell; for the fields see `fedassay.records.record.CellRecord`."""

    method: str
    label: str
    params: dict[str, Any]
    params_given: dict[str, Any]
    privacy: PrivacyTarget
    seed: int | None


@dataclass(frozen=True)
class Produced:
    """Outcome that is audited.

    Attributes:
        outcome: Of the method.
        utility: Figures of the model, by name.
        tape: Inputs and outputs of the noise mechanisms; empty where nothing was taped here.
    """

    outcome: Outcome
    utility: Mapping[str, float | None] = field(default_factory=dict)
    tape: Tape = field(default_factory=Tape)


class Source(RunMethod, Protocol):
    """Source of a cell's outcome."""

    def first(self, stages: Stages) -> Produced | None:
        """The outcome that is audited; None where there is none, and `stages` says why."""
        ...

    def run_shadow(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """The outcome for an attack's shadow releases; arguments and errors as `run_on`."""
        ...


@dataclass(frozen=True)
class RunAuditEntry:
    """An audit that reads no attack's result.

    Attributes:
        name: Registered name.
        label: Name of its stage.
        assess: Gives its findings; raises `NotRunError` where it does not apply.
    """

    name: str
    label: str
    assess: Callable[[AuditContext], list[Finding]]


@dataclass(frozen=True)
class AttackAuditEntry:
    """An audit of the results of attacks.

    Attributes:
        name: Registered name.
        label: First part of the names of its stages.
        facts: Its declarations, the kinds of results that it judges among them.
        assess: Gives its findings on one attack; raises `NotRunError` where it does not apply.
        otherwise: Reason why there are no findings where none of these attacks is run.
    """

    name: str
    label: str
    facts: AuditFacts
    assess: Callable[[AttackResult, AttackedContext], list[Finding]]
    otherwise: str


@dataclass(frozen=True)
class Place:
    """Place of the work: the run folder, `cpu` or `cuda`, and the display of progress."""

    folder: Path
    device: str
    progress: Progress


@dataclass(frozen=True)
class CellJob:
    """Job of a cell.

    Attributes:
        key: The cell's name in the run folder.
        entry: The record's entry for it.
        source: Source of its outcome.
        known: Records and backbone.
        threat: The threat model.
        attacks: In the order they run in.
        audits: In the order of their findings.
        num_tests: Number of lower bounds in the whole run, m, for the correction of confidence levels.
        seeds: Random streams of the cell.
        similarity: Makes the image metrics, which may load a network.
        place: Folder, device and progress of the work.
        warnings: Warnings about the plan.
        another: Another run of the cell, for estimates of its cost; None where there is no plan.
        basis: The basis of the cell; None where unknown.
        keeps: Whether the run keeps its transcript.
    """

    key: str
    entry: CellEntry
    source: Source
    known: CellData
    threat: ThreatModel
    attacks: tuple[Component[Attack], ...]
    audits: tuple[RunAuditEntry | AttackAuditEntry, ...]
    num_tests: int
    seeds: Seeds
    similarity: Callable[[], Similarity]
    place: Place
    warnings: tuple[str, ...] = ()
    another: NextRun | None = None
    basis: Basis | None = None
    keeps: bool = False
