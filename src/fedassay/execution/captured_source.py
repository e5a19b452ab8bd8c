"""The case of a captured transcript: attacks on its messages, its claim, and the reasons why others cannot run.

Its messages cannot be drawn again, the clients' records are not given, and without a plan there is no backbone
either. So audits judge without them, against controls made of other records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedassay.audits.claim.transcript_only import captured_claim
from fedassay.audits.inversion.transcript_only import captured_inversions
from fedassay.audits.membership.transcript_only import captured_gallery
from fedassay.audits.message.transcript_only import captured_findings
from fedassay.audits.reconstruction.transcript_only import captured_image_findings
from fedassay.contracts.attack import Attack, AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext, CellData, Replayed, Rerun
from fedassay.contracts.facts import NEED_WORDS, AuditFacts, AuditNeed, in_words
from fedassay.contracts.method import Outcome
from fedassay.contracts.registry import attack_facts, every_audit
from fedassay.data.records import Records
from fedassay.exchange.colluders import colluders_of
from fedassay.exchange.release import PrivacyClaim, PrivacyTarget
from fedassay.exchange.transcript import Transcript
from fedassay.exchange.view import ThreatModel
from fedassay.execution.cell_job import (
    AttackAuditEntry,
    CellEntry,
    CellJob,
    Place,
    Produced,
    RunAuditEntry,
)
from fedassay.execution.prepare import Prepared
from fedassay.execution.simulated_source import similarity_of
from fedassay.execution.stages import Stages
from fedassay.plan.schema import Component, Scenario
from fedassay.plan.wiring import attacks_for, gallery_attacks, message_attacks
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.registry import lookup
from fedassay.support.seeds import Seeds

_CONTROLS = 4
_KNOWN = 48
_WIDEST = 512
_LARGEST = 1 << 24
"""Width of controls without a plan, and its product with the number of classes, at most."""
_DELTA = 1e-5


def job_of_transcript(
    transcript: Transcript,
    scenario: Scenario | None,
    prepared: Prepared | None,
    place: Place,
    again: Sequence[Transcript] = (),
    gallery: Records | None = None,
) -> CellJob:
    """Return the job of a captured transcript.

    Args:
        transcript: The messages.
        scenario: Gives the threat model and further attacks; its parameters take precedence. Or None.
        prepared: The records of that plan, or None without one. The private ones belong to no client here: they
            serve the controls, as records with known images.
        place: Folder, device and progress of the work.
        again: The same messages captured again, of the same records.
        gallery: Candidates that may be in the messages, or None.
    """
    seed = None if scenario is None else scenario.plan.seeds[0]
    attacks = _attacks(scenario, gallery is not None)
    judge = _Judge(scenario is not None, _control_records(transcript, prepared), _known_images(prepared))
    spec, base = (None, Path()) if scenario is None else (scenario.plan.similarity.lpips, scenario.base)
    return CellJob(
        key="captured",
        entry=CellEntry(transcript.method, transcript.method, {}, {}, _target(transcript), seed),
        source=CapturedSource(transcript),
        known=CellData(
            clients=(),
            test=judge.controls if prepared is None else prepared.test,
            fresh=judge.controls if prepared is None else prepared.fresh,
            control=judge.controls if prepared is None else prepared.control,
            attacker=judge.controls.take(np.zeros(0, np.int64)) if prepared is None else prepared.attacker,
            backbone=None if prepared is None else prepared.backbone,
            classes=transcript.classes,
            gallery=gallery,
        ),
        threat=ThreatModel(colluding=len(colluders_of(transcript.messages)))
        if scenario is None
        else scenario.plan.threat,
        attacks=attacks,
        # The audit of the ledger alone is left out: the claim has nothing else here either.
        audits=tuple(
            _entry(name, facts, judge, transcript, again)
            for name, facts in sorted(every_audit().items())
            if facts.place.section != "accounts"
        ),
        num_tests=sum(facts.tests_per_cell for facts in every_audit().values()),
        seeds=Seeds(0 if seed is None else seed),
        similarity=partial(similarity_of, spec, base, place.device),
        place=place,
    )


@dataclass(frozen=True)
class CapturedSource:
    """Messages that were sent elsewhere, once."""

    transcript: Transcript

    def first(self, stages: Stages) -> Produced:
        """The transcript as it was captured; there is no model to measure."""
        return Produced(Outcome(self.transcript, None))

    def run_on(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """Refuse: captured messages cannot be drawn again."""
        raise NotRunError("captured messages cannot be drawn again")

    def run_shadow(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """See `run_on`."""
        return self.run_on(clients, seeds)

    def run_nonprivate(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """See `again`."""
        raise NotRunError("of captured messages there is no method that could be run without privacy")

    def rerun(self, asked: Rerun) -> Replayed:
        """See `run_on`."""
        raise NotRunError("captured messages cannot be drawn again")


def _attacks(scenario: Scenario | None, gallery: bool) -> tuple[Component[Attack], ...]:
    """The attacks on messages, with a gallery those that take one, and the plan's own; its parameters win."""
    given = () if scenario is None else scenario.attacks
    named = {part.name for part in given}
    plain = [name for name in (*message_attacks(), *(gallery_attacks() if gallery else ())) if name not in named]
    return (*(Component(name, name, lookup("attack", name)(), {}) for name in plain), *given)


def _target(transcript: Transcript) -> PrivacyTarget:
    """Target of the ledger: the claim's own terms, where there is one."""
    claim = transcript.claim
    if not isinstance(claim, PrivacyClaim):
        return PrivacyTarget(epsilon=math.inf, delta=_DELTA, adjacency="add_remove")
    return PrivacyTarget(
        epsilon=claim.epsilon, delta=claim.delta or _DELTA, adjacency=claim.adjacency, unit=claim.unit
    )


@dataclass(frozen=True)
class _Judge:
    """Findings on attacks without the clients' records.

    Attributes:
        planned: Whether a plan was given.
        controls: A few records with features of the messages' width, none of them a client's.
        images: Records of the plan that the adversary does not hold, or None without a plan.
    """

    planned: bool
    controls: Records
    images: Records | None

    def assess(self, audit: str, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """Findings of an audit on one attack."""
        if "named" in result.artifacts:
            return [captured_gallery(audit, result, context)]
        if not attack_facts(result.attack).needs and result.reconstructions:
            return captured_inversions(audit, result, context)
        if not attack_facts(result.attack).needs:
            return captured_findings(result, context, self.controls)
        if self.images is None or not result.reconstructions:
            raise NotRunError(_lacking("another_run"))
        if not len(context.data.attacker):
            raise NotRunError("the plan gives the attacker no images, which the baseline is made of")
        return captured_image_findings(audit, result, context, self.images)

    def why_not(self, facts: AuditFacts) -> str:
        """Return the reason why an audit has nothing to judge."""
        if facts.needs:
            return _lacking(facts.needs[0])
        attacks = in_words(attacks_for(facts))
        if facts.judges and not self.planned:
            return f"{attacks} needs images of the attacker's own and a backbone: give them with --plan"
        if facts.judges:
            return f"the plan's attacks do not hold {attacks}"
        return _lacking("another_run")


def _lacking(need: AuditNeed) -> str:
    return f"{NEED_WORDS[need]}, which a captured transcript does not come with"


def _entry(
    name: str, facts: AuditFacts, judge: _Judge, transcript: Transcript, again: Sequence[Transcript]
) -> RunAuditEntry | AttackAuditEntry:
    if facts.place.section == "claim":
        return RunAuditEntry(
            name, name, lambda context: [captured_claim(name, transcript, context.accounted, again)]
        )
    why_not = judge.why_not(facts)
    if not facts.judges:
        return RunAuditEntry(name, name, _refusal(why_not))
    return AttackAuditEntry(name, name, facts, partial(judge.assess, name), why_not)


def _refusal(reason: str) -> Callable[[AuditContext], list[Finding]]:
    def refuse(context: AuditContext) -> list[Finding]:
        raise NotRunError(reason)

    return refuse


def _known_images(prepared: Prepared | None) -> Records | None:
    """Records of the plan that the adversary does not hold, for the controls."""
    if prepared is None:
        return None
    held = max(prepared.clients, key=len)
    return held.take(np.arange(min(len(held), _KNOWN)), "control")


def _control_records(transcript: Transcript, prepared: Prepared | None) -> Records:
    """A few records for controls: the plan's own, or rectified normal features of the messages' width."""
    size, known = _CONTROLS, _known_images(prepared)
    if known is not None and len(known) >= size:
        return known.take(np.arange(size), "control")
    # The rules are about arithmetic, whatever the width: controls need not be as large as what is audited.
    width = min(_width(transcript), _WIDEST, max(1, _LARGEST // transcript.classes))
    rng = Seeds(0).numpy("captured", "controls")
    features = np.maximum(rng.normal(size=(size, width)), 0).astype(np.float32)
    labels = np.arange(size) % transcript.classes
    return Records("control", np.zeros((size, 1, 1, 1), np.uint8), labels, lambda _images: features)


def _width(transcript: Transcript) -> int:
    """Feature width of the messages; 64 where none holds features, sums, means or moments."""
    for message in transcript.from_clients():
        for kind in ("features", "class_sums", "class_means", "mixture_means"):
            values = message.of_kind(kind)
            if values is not None:
                return int(values.shape[1])
        moment = message.of_kind("second_moment")
        if moment is not None and moment.ndim == 2:
            return int(moment.shape[0])
    return 64
