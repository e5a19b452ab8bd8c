"""The work on one cell: method, ledger, attacks, audits, and the record of all that."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from fedassay.audits.stats.intervals import wilson
from fedassay.contracts.audit import AttackResult, AuditContext, Knowledge
from fedassay.contracts.membership import MembershipGame, make_game, visible
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.ledger import Accounted, account, ledger_rows, warnings_of
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.store import Spool
from fedassay.exchange.view import View
from fedassay.execution import runfolder
from fedassay.execution.prepare import Prepared
from fedassay.execution.runfolder import FinishedCell
from fedassay.execution.stages import stage
from fedassay.plan.schema import Cell, Component, Plan, Scenario
from fedassay.privacy.tape import Tape, taped
from fedassay.records.record import CellPrivacy, CellRecord, ErrorRecord, Finding
from fedassay.similarity.metrics import Similarity, make_similarity
from fedassay.support.errors import NotRunError
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds


@dataclass
class Work:
    """One cell being worked on.

    Attributes:
        seconds: Wall seconds by stage.
        errors: What failed; the other stages go on.
        tape: What the method's noise mechanisms took in and gave out.
    """

    scenario: Scenario
    cell: Cell
    folder: Path
    device: str
    progress: Progress
    prepared: Prepared
    shared: dict[str, object]
    seconds: dict[str, float] = field(default_factory=dict)
    errors: list[ErrorRecord] = field(default_factory=list)
    tape: Tape | None = None

    def run(self) -> FinishedCell:
        """Method, ledger, attacks, audits, record."""
        task = self._task()
        outcome: Outcome | None = None
        with self._stage("method"), taped() as self.tape:
            outcome = self.cell.method.build.run(task)
        if outcome is None:
            reason = f"the method failed: {self.errors[-1].message}"
            return FinishedCell(
                cell=self._record(None, None, self._all_not_run(reason)), errors=tuple(self.errors)
            )
        with self._stage("transcript"):
            outcome.transcript.save(self.folder / "transcripts" / self.cell.key)
        utility: dict[str, float | None] = dict(outcome.utility)
        with self._stage("utility"):
            utility = {**_accuracy(outcome, task.test), **utility}
        findings: list[Finding] = []
        with self._stage("ledger"):
            accounted = account(outcome.transcript, task.privacy.adjacency, task.privacy.delta)
        if not self.errors:
            results, reasons = self._attack(visible(outcome, self.scenario.plan.threat))
            findings = self._audit(task, outcome, accounted, results, reasons)
        return FinishedCell(cell=self._record(outcome, utility, findings), errors=tuple(self.errors))

    def lost(self, reason: str) -> FinishedCell:
        """The record of a cell that could not be worked on to its end."""
        self.errors.append(ErrorRecord(cell=self.cell.key, stage="worker", message=reason))
        cell = self._record(None, None, self._all_not_run(reason))
        return FinishedCell(cell=cell, errors=tuple(self.errors))

    def _task(self, clients: Sequence[Records] | None = None, seeds: Seeds | None = None) -> MethodInput:
        return MethodInput(
            clients=tuple(clients or self.prepared.clients),
            test=self.prepared.test,
            public=self.prepared.public,
            classes=self.prepared.classes,
            backbone=self.prepared.backbone,
            privacy=self.cell.privacy,
            seeds=seeds or self._seeds(),
            device=self.device,
            progress=self.progress,
            # Reruns on other records must not continue the cell's own checkpoints.
            scratch=runfolder.scratch(self.folder, self.cell.key) if seeds is None else None,
            spool=Spool(runfolder.scratch(self.folder, self.cell.key)),
            parameters=json.dumps(self.cell.method.params, sort_keys=True),
        )

    def _seeds(self) -> Seeds:
        """The streams of this cell."""
        # Cells at several epsilons must not share their noise: both together would give away what neither does.
        own = Seeds(self.cell.seed).child("cell", self.cell.method.label)
        asked = self.cell.privacy
        if not asked.private:
            return own
        return own.child("private", repr(asked.epsilon), repr(asked.delta), asked.adjacency)

    def _attack(self, seen: View) -> tuple[dict[str, AttackResult], dict[str, str]]:
        """Run the attacks in plan order; later ones know the vectors that earlier ones recovered."""
        results: dict[str, AttackResult] = {}
        reasons: dict[str, str] = {}
        for attack in self.scenario.attacks:
            reasons[attack.label] = "the attack failed; see errors"
            with self._stage(attack.label):
                recovered = tuple(vector for result in results.values() for vector in result.vectors)
                try:
                    results[attack.label] = attack.build.run(seen, self._knowledge(attack, recovered))
                except NotRunError as error:
                    reasons[attack.label] = str(error)
        return results, reasons

    def _knowledge(self, attack: Component, recovered: tuple[VectorSource, ...] = ()) -> Knowledge:
        return Knowledge(
            attacker=self.prepared.attacker,
            classes=self.prepared.classes,
            backbone=self.prepared.backbone,
            white_box=self.scenario.plan.threat.backbone == "white_box",
            # Not the cell's own stream: one attacker model serves every cell of a seed.
            seeds=Seeds(0 if self.cell.seed is None else self.cell.seed).child("attack", attack.label),
            device=self.device,
            progress=self.progress,
            recovered=recovered,
            scratch=runfolder.scratch(self.folder, self.cell.key),
            game=self.game,
        )

    @cached_property
    def game(self) -> MembershipGame | None:
        """Membership questions about this cell's clients; None where no record is there to compare with."""

        def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
            return visible(self._rerun(clients, seeds), self.scenario.plan.threat)

        try:
            return make_game(
                self.prepared.clients,
                self.prepared.test,
                self.prepared.attacker,
                simulate,
                Seeds(0 if self.cell.seed is None else self.cell.seed).child("game", self.cell.method.label),
                classes=self.prepared.classes,
            )
        except NotRunError:
            return None

    def _rerun(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        again = self.cell.method.build.run(self._task(clients, seeds))
        assert isinstance(again, Outcome)
        return again

    def _audit(
        self,
        task: MethodInput,
        outcome: Outcome,
        accounted: Accounted,
        results: dict[str, AttackResult],
        reasons: dict[str, str],
    ) -> list[Finding]:
        findings: list[Finding] = []
        for audit in self.scenario.audits:
            reads = audit.build.reads
            attacks = [attack for attack in self.scenario.attacks if reads and attack.name in reads]
            choices: list[Component | None] = [*attacks] or [None]
            for attack in choices:
                if attack is not None and attack.label not in results:
                    findings.append(_not_run(audit, attack, reasons[attack.label]))
                    continue
                context = self._context(task, outcome, accounted, attack)
                before = len(self.errors)
                with self._stage(audit.label if attack is None else f"{audit.label}:{attack.label}"):
                    try:
                        found = audit.build.assess(results.get(attack.label) if attack else None, context)
                        findings += found
                    except NotRunError as error:
                        findings.append(_not_run(audit, attack, str(error)))
                if len(self.errors) > before:
                    findings.append(_not_run(audit, attack, "the audit failed; see errors"))
        return findings

    def _context(
        self, task: MethodInput, outcome: Outcome, accounted: Accounted, attack: Component | None
    ) -> AuditContext:
        def attack_again(seen: View, game: MembershipGame | None = None) -> AttackResult:
            assert attack is not None
            knowledge = self._knowledge(attack)
            result = attack.build.run(seen, replace(knowledge, game=game) if game is not None else knowledge)
            assert isinstance(result, AttackResult)
            return result

        return AuditContext(
            task=task,
            outcome=outcome,
            view=visible(outcome, self.scenario.plan.threat),
            threat=self.scenario.plan.threat,
            attacker=self.prepared.attacker,
            fresh=self.prepared.fresh,
            method=self.cell.method.label,
            attack=None if attack is None else attack_again,
            attack_key="" if attack is None else f"{attack.label}:{attack.params}",
            rerun=self._rerun,
            similarity=similarity_of(self.scenario.plan.model_dump_json(), self.scenario.base, self.device),
            accounted=accounted,
            bounds=bounds_in(self.scenario),
            folder=self.folder,
            prefix=self.cell.key,
            shared=self.shared,
            game=self.game,
            ask=None if attack is None else attack_again,
            tape=self.tape,
        )

    def _record(
        self, outcome: Outcome | None, utility: dict[str, float | None] | None, findings: list[Finding]
    ) -> CellRecord:
        cell, transcript = self.cell, None if outcome is None else outcome.transcript
        communication: dict[str, float] = dict(outcome.communication) if outcome else {}
        if transcript is not None:
            communication = {
                "bytes_up": float(transcript.bytes_up),
                "bytes_down": float(transcript.bytes_down),
                **communication,
            }
        return CellRecord(
            method=cell.method.name,
            label=cell.method.label,
            params=cell.method.params,
            params_given=cell.method.given,
            epsilon=cell.privacy.epsilon,
            delta=cell.privacy.delta,
            adjacency=cell.privacy.adjacency,
            seed=cell.seed,
            utility=utility or {},
            communication=communication,
            privacy=_privacy(cell, outcome, findings, min(len(client) for client in self.prepared.clients)),
            ledger=() if transcript is None else ledger_rows(transcript, cell.privacy.adjacency),
            findings=tuple(findings),
            notes=() if outcome is None else (*outcome.notes, *outcome.transcript.notes),
            seconds={stage: round(value, 3) for stage, value in self.seconds.items()},
        )

    def _all_not_run(self, reason: str) -> list[Finding]:
        return [_not_run(audit, None, reason) for audit in self.scenario.audits]

    def _stage(self, name: str) -> AbstractContextManager[None]:
        return stage(
            name, self.cell.key, f"{self.cell.method.label}: {name}", self.progress, self.seconds, self.errors
        )


@lru_cache(maxsize=4)
def similarity_of(plan: str, base: Path, device: str) -> Similarity:
    """The metrics that a plan (as JSON) asks for: LPIPS loads a network, once in a process."""
    return make_similarity(Plan.model_validate_json(plan).similarity.lpips, base, device)


def bounds_in(scenario: Scenario) -> int:
    """Number of one-sided tests in the whole run, for the correction of confidence levels."""
    per_cell = 0
    entries = Counter(attack.name for attack in scenario.attacks)
    for audit in scenario.audits:
        # `tests_per_cell` is for one entry of each attack that the audit reads; it tests every entry.
        times = max((entries[name] for name in audit.build.reads or ()), default=1)
        per_cell += int(getattr(audit.build, "tests_per_cell", 1)) * max(1, times)
    return max(1, per_cell * len(scenario.cells))


def _accuracy(outcome: Outcome, test: Records) -> dict[str, float | None]:
    if outcome.model is None:
        return {}
    correct = int((outcome.model.predict(test) == test.labels).sum())
    low, high = wilson(correct, len(test))
    return {
        "accuracy": correct / len(test),
        "accuracy_low": float(low),
        "accuracy_high": float(high),
        "accuracy_n": float(len(test)),
    }


def _not_run(audit: Component, attack: Component | None, reason: str) -> Finding:
    name = None if attack is None else attack.name
    return Finding(audit=audit.name, attack=name, verdict="not_run", reason=reason)


def _privacy(cell: Cell, outcome: Outcome | None, findings: list[Finding], smallest: int) -> CellPrivacy:
    """The three numbers; the verdict is dp_claim's."""
    claims = [finding for finding in findings if finding.audit == "dp_claim"]
    judged = claims[0] if claims else None
    verdict = judged.verdict if judged else "not_run"
    reason = judged.reason if judged else "the plan has no dp_claim audit"
    if outcome is None:
        return CellPrivacy(claimed=None, accounted=None, verdict=verdict, reason=reason)
    claim = outcome.transcript.claim
    accounted = account(outcome.transcript, cell.privacy.adjacency, cell.privacy.delta)
    observed = judged.metrics.get("observed") if judged else None
    return CellPrivacy(
        claimed=claim.epsilon if isinstance(claim, PrivacyClaim) else None,
        accounted=accounted.epsilon,
        accounted_stated=accounted.epsilon_stated,
        observed=None if observed is None else observed.value,
        mu=accounted.mu,
        exact_fields=accounted.exact_fields,
        verdict=verdict,
        reason=reason,
        warnings=warnings_of(outcome.transcript, cell.privacy, smallest),
    )
