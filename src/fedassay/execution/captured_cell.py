"""One captured transcript being audited: attacks on its messages, its claim, and why the rest cannot run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.audits.claim.ledger_claim import ledger_finding
from fedassay.audits.evidence import Subject
from fedassay.audits.message.captured import captured_findings
from fedassay.audits.reconstruction.captured import captured_image_findings
from fedassay.audits.verdict import not_run
from fedassay.backbones.base import Backbone
from fedassay.contracts.audit import AttackResult, AuditContext, Knowledge
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.ledger import Accounted, account, ledger_rows, warnings_of
from fedassay.exchange.release import PrivacyClaim, PrivacyTarget
from fedassay.exchange.transcript import MANIFEST, Transcript
from fedassay.exchange.view import ThreatModel, view
from fedassay.execution.prepare import Prepared
from fedassay.execution.stages import stage
from fedassay.plan.schema import Component, Scenario
from fedassay.records.record import CellPrivacy, CellRecord, ErrorRecord, Finding
from fedassay.similarity.metrics import Similarity, make_similarity
from fedassay.support.errors import NotRunError
from fedassay.support.progress import Progress
from fedassay.support.registry import entries, lookup
from fedassay.support.seeds import Seeds

MESSAGE_ATTACKS = ("message_algebra", "gram_factorization", "label_distribution")
"""Attacks that need nothing but messages."""

_CONTROLS = 4
_KNOWN = 48
_WIDEST = 2048
_LARGEST = 1 << 24
"""Width of controls without a plan, and its product with the number of classes, at most."""
_DELTA = 1e-5

_NEEDS = {
    "memorization": "it needs a generator that can be sampled and the records that it was trained on",
    "membership": "it needs records of which it is known whether a client holds them",
}


# A lower bound on epsilon takes releases drawn again and again on neighbouring records, and messages of somebody
# else's system cannot be drawn again. So the ledger decides, on what the transcript itself declares.
_NOT_DRAWN_AGAIN = "captured messages cannot be drawn again on neighbouring records"
_RESTS_ON = (
    "on the sensitivities and the noise that the transcript declares; whether the system really adds that noise "
    "was not tested"
)


@dataclass
class Work:
    """One transcript being worked on.

    Attributes:
        seconds: Wall seconds by stage.
        errors: What failed; the other stages go on.
    """

    transcript: Transcript
    scenario: Scenario | None
    prepared: Prepared | None
    out: Path
    device: str
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)
    errors: list[ErrorRecord] = field(default_factory=list)

    @property
    def threat(self) -> ThreatModel:
        """The plan's, or the strongest."""
        return ThreatModel() if self.scenario is None else self.scenario.plan.threat

    @property
    def target(self) -> PrivacyTarget:
        """What the ledger is added up for: the claim's own terms, where there is one."""
        claim = self.transcript.claim
        if not isinstance(claim, PrivacyClaim):
            return PrivacyTarget(epsilon=math.inf, delta=_DELTA, adjacency="add_remove")
        return PrivacyTarget(epsilon=claim.epsilon, delta=claim.delta or _DELTA, adjacency=claim.adjacency)

    def plan(self, name: str, folder: Path) -> dict[str, Any]:
        """What the record says was done: the transcript's identity, and what of the plan was used."""
        clients = dict.fromkeys(message.sender for message in self.transcript.from_clients())
        facts = {
            "folder": str(folder),
            "method": self.transcript.method,
            "classes": self.transcript.classes,
            "messages": len(self.transcript.messages),
            "clients": len(clients),
            "rounds": len({message.round for message in self.transcript.messages}),
            "sha256": _digest(folder),
        }
        out: dict[str, Any] = {"name": name, "transcript": facts, "threat": self.threat.model_dump(mode="json")}
        if self.scenario is not None:
            resolved = self.scenario.resolved()
            out |= {key: resolved[key] for key in ("seeds", "data", "backbone", "similarity")}
        out["attacks"] = [{part.name: part.params} for part in self.attacks()]
        out["audits"] = [{name: {}} for name in entries("audit")]
        return out

    def attacks(self) -> list[Component]:
        """The attacks on messages, and the plan's own, whose parameters win."""
        given = list(self.scenario.attacks) if self.scenario is not None else []
        named = {part.name for part in given}
        plain = [name for name in MESSAGE_ATTACKS if name not in named]
        return [*(Component(name, name, lookup("attack", name)(), {}) for name in plain), *given]

    def cell(self) -> CellRecord:
        """Ledger, attacks, audits, record."""
        target, transcript = self.target, self.transcript
        accounted: Accounted | None = None
        with self._stage("ledger"):
            accounted = account(transcript, target.adjacency, target.delta)
        findings = [] if accounted is None else self._findings(accounted)
        claim = transcript.claim
        judged = next((finding for finding in findings if finding.audit == "dp_claim"), None)
        return CellRecord(
            method=transcript.method,
            label=transcript.method,
            params={},
            params_given={},
            epsilon=target.epsilon,
            delta=target.delta,
            adjacency=target.adjacency,
            seed=None if self.scenario is None else self.scenario.plan.seeds[0],
            utility={},
            communication={"bytes_up": float(transcript.bytes_up), "bytes_down": float(transcript.bytes_down)},
            privacy=CellPrivacy(
                claimed=claim.epsilon if isinstance(claim, PrivacyClaim) else None,
                accounted=None if accounted is None else accounted.epsilon,
                accounted_stated=None if accounted is None else accounted.epsilon_stated,
                mu=None if accounted is None else accounted.mu,
                exact_fields=() if accounted is None else accounted.exact_fields,
                verdict="not_run" if judged is None else judged.verdict,
                reason="the ledger failed; see errors" if judged is None else judged.reason,
                warnings=warnings_of(transcript, target, 0),
            ),
            ledger=ledger_rows(transcript, target.adjacency),
            findings=tuple(findings),
            notes=transcript.notes,
            seconds={stage: round(value, 3) for stage, value in self.seconds.items()},
        )

    def _findings(self, accounted: Accounted) -> list[Finding]:
        results, reasons = self._attacked()
        findings = []
        for audit in entries("audit"):
            if audit == "dp_claim":
                context = self._context(accounted, audit, None)
                findings.append(
                    ledger_finding(
                        audit, self.transcript.claim, accounted, context, why=_NOT_DRAWN_AGAIN, rests_on=_RESTS_ON
                    )
                )
                continue
            if audit == "ledger":
                continue  # dp_claim has nothing but the ledger here
            reads = getattr(lookup("audit", audit), "reads", None) or ()
            for part in (part for part in self.attacks() if part.name in reads):
                found = None
                if part.label in results:
                    with self._stage(f"{audit}:{part.label}"):
                        found = self._judged(audit, results[part.label], self._context(accounted, audit, part))
                    reasons.setdefault(part.label, "the audit failed; see errors")
                findings += found or [_not_run(audit, part.name, reasons[part.label])]
            if not any(finding.audit == audit for finding in findings):
                findings.append(_not_run(audit, None, self._why_not(audit, reads)))
        return findings

    def _why_not(self, audit: str, reads: Sequence[str]) -> str:
        if audit in _NEEDS:
            return f"{_NEEDS[audit]}, which a captured transcript does not come with"
        if reads and self.scenario is None:
            return f"{' or '.join(reads)} needs images of the attacker's own and a backbone: give them with --plan"
        if reads:
            return f"the plan's attacks do not hold {' or '.join(reads)}"
        return "it needs the clients' records, or another run of the method, which a captured transcript lacks"

    def _attacked(self) -> tuple[dict[str, AttackResult], dict[str, str]]:
        """Run the attacks; later ones know the vectors that earlier ones recovered."""
        results: dict[str, AttackResult] = {}
        reasons: dict[str, str] = {}
        seen = view(self.transcript, self.threat)
        for attack in self.attacks():
            reasons[attack.label] = "the attack failed; see errors"
            with self._stage(attack.label):
                recovered = tuple(vector for result in results.values() for vector in result.vectors)
                try:
                    results[attack.label] = attack.build.run(seen, self._knowledge(attack, recovered))
                    del reasons[attack.label]
                except NotRunError as error:
                    reasons[attack.label] = str(error)
        return results, reasons

    def _judged(self, audit: str, result: AttackResult, context: AuditContext) -> list[Finding]:
        if result.attack in MESSAGE_ATTACKS:
            return captured_findings(result, context, self._controls())
        known = self._known()
        if known is None or not result.reconstructions:
            return [_not_run(audit, result.attack, self._why_not(audit, ()))]
        if context.attacker is None:
            reason = "the plan gives the attacker no images, which the baseline is made of"
            return [_not_run(audit, result.attack, reason)]
        return captured_image_findings(audit, result, context, known)

    def _known(self) -> Records | None:
        """Records of the plan that the adversary does not hold, for the controls."""
        if self.prepared is None:
            return None
        held = max(self.prepared.clients, key=len)
        return held.take(np.arange(min(len(held), _KNOWN)), "control")

    def _controls(self) -> Records:
        """A few records for controls: the plan's own, or rectified normal features of the messages' width."""
        size, known = _CONTROLS, self._known()
        if known is not None and len(known) >= size:
            return known.take(np.arange(size), "control")
        # The rules are about arithmetic, whatever the width: controls need not be as large as what is audited.
        width = min(_width(self.transcript), _WIDEST, max(1, _LARGEST // self.transcript.classes))
        features = np.maximum(np.random.default_rng(0).normal(size=(size, width)), 0).astype(np.float32)
        labels = np.arange(size) % self.transcript.classes
        return Records("control", np.zeros((size, 1, 1, 1), np.uint8), labels, lambda _images: features)

    def _seeds(self) -> Seeds:
        seed = None if self.scenario is None else self.scenario.plan.seeds[0]
        return Seeds(0 if seed is None else seed)

    def _knowledge(self, attack: Component, recovered: tuple[VectorSource, ...] = ()) -> Knowledge:
        return Knowledge(
            attacker=None if self.prepared is None else self.prepared.attacker,
            classes=self.transcript.classes,
            backbone=None if self.prepared is None else self.prepared.backbone,
            white_box=self.threat.backbone == "white_box",
            seeds=self._seeds().child("attack", attack.label),
            device=self.device,
            progress=self.progress,
            recovered=recovered,
        )

    def _context(self, accounted: Accounted, audit: str, attack: Component | None) -> AuditContext:
        prepared, controls = self.prepared, self._controls()
        task = MethodInput(
            clients=(),
            test=controls if prepared is None else prepared.test,
            public=None if prepared is None else prepared.public,
            classes=self.transcript.classes,
            backbone=_unknown_backbone() if prepared is None else prepared.backbone,
            privacy=self.target,
            seeds=self._seeds(),
            device=self.device,
            progress=self.progress,
        )

        def rerun(clients: Sequence[Records], seeds: Seeds) -> Outcome:
            raise NotRunError("captured messages cannot be drawn again")

        def attack_again(seen: Any) -> AttackResult:
            assert attack is not None
            result = attack.build.run(seen, self._knowledge(attack))
            assert isinstance(result, AttackResult)
            return result

        again: Callable[[Any], AttackResult] | None = None if attack is None else attack_again
        scenario = self.scenario
        similarity = Similarity(None, "no plan was given", self.device)
        if scenario is not None:
            similarity = make_similarity(scenario.plan.similarity.lpips, scenario.base, self.device)
        return AuditContext(
            task=task,
            outcome=Outcome(self.transcript, None),
            view=view(self.transcript, self.threat),
            threat=self.threat,
            attacker=None if prepared is None else prepared.attacker,
            fresh=controls if prepared is None else prepared.fresh,
            method=self.transcript.method,
            attack=again,
            attack_key="" if attack is None else f"{attack.label}:{attack.params}",
            rerun=rerun,
            similarity=similarity,
            accounted=accounted,
            bounds=sum(int(getattr(lookup("audit", name), "tests_per_cell", 1)) for name in entries("audit")),
            folder=self.out,
            prefix=("captured", audit, *(() if attack is None else (attack.label,))),
        )

    def _stage(self, name: str) -> AbstractContextManager[None]:
        return stage(name, "captured", name, self.progress, self.seconds, self.errors)


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


def _unknown_backbone() -> Backbone:
    """Stands where the system's backbone is not known; nothing that runs without a plan encodes an image."""
    from torch import nn

    return Backbone(
        name="unknown",
        width=0,
        module=nn.Identity(),
        image_shape=(1, 1, 1),
        device="cpu",
        description="the backbone of the captured system, not given",
        pretrained_on="not known",
        fingerprint="",
    )


def _digest(folder: Path) -> str:
    """SHA-256 over the names and contents of the transcript's files, so that a record says what it is about."""
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name == MANIFEST or path.suffix == ".safetensors":
            with path.open("rb") as stream:
                part = hashlib.file_digest(stream, "sha256").hexdigest()
            whole.update(f"{path.name}:{part};".encode())
    return whole.hexdigest()


def _not_run(audit: str, attack: str | None, reason: str) -> Finding:
    return not_run(Subject(audit, attack), reason)
