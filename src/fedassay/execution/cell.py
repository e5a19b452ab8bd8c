"""The work on one cell: outcome, ledger, attacks, audits, and the record of all that.

The only runner of cells: it does not know whether a method of ours was run or messages were captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from fedassay.audits.claim.tape.measured import as_believed, unbelieved
from fedassay.audits.evidence import Subject
from fedassay.audits.verdict import admitted, not_run
from fedassay.backbones.precomputed import REASON, is_precomputed
from fedassay.contracts.attack import Attack, AttackResult, Knowledge
from fedassay.contracts.audit import AuditContext, AuditIO, RunAttack
from fedassay.contracts.membership import MembershipGame, make_game, no_questions, visible
from fedassay.contracts.method import Outcome
from fedassay.contracts.registry import claim_audit, judges_the_claim
from fedassay.data.images import NO_PICTURES
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.ledger import Accounted, account, ledger_rows
from fedassay.exchange.privacy_unit import warnings_of
from fedassay.exchange.recount import released
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.transcript import MANIFEST, Transcript
from fedassay.exchange.view import View
from fedassay.execution import runfolder
from fedassay.execution.attacked import Attacked
from fedassay.execution.cell_job import AttackAuditEntry, CellJob, Produced
from fedassay.execution.coverage import coverage, with_remedies
from fedassay.execution.order import Step, Teller, decisive_first, steps_of
from fedassay.execution.repeated import run_once
from fedassay.execution.runfolder import FinishedCell
from fedassay.execution.stages import Stages
from fedassay.plan.schema import Component
from fedassay.records.basis import Released
from fedassay.records.digests import file_digest
from fedassay.records.manifest import note
from fedassay.records.record import CellPrivacy, CellRecord, Coverage, ErrorRecord, Finding, LedgerRow, Verdict
from fedassay.reports.words.sentences import at_epsilon
from fedassay.support.errors import NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.text import file_name


def _no_coverage(findings: Sequence[Finding]) -> tuple[Coverage, ...]:
    """The coverage of a cell without a view."""
    return ()


@dataclass
class Work:
    """One cell being worked on.

    Attributes:
        job: The cell's job.
        stages: Durations and failures of the stages; after a failure the other stages go on.
        seen: The adversary's view; None before there is one.
        unbelieved: See `fedassay.audits.claim.tape.measured.unbelieved`.
        coverage: Says of findings whether everything that applies to what was seen was tried.
    """

    job: CellJob
    stages: Stages = field(init=False)
    seen: View | None = field(init=False, default=None)
    unbelieved: Mapping[str, float] = field(init=False, default_factory=dict)
    coverage: Callable[[Sequence[Finding]], tuple[Coverage, ...]] = field(
        init=False, default_factory=lambda: _no_coverage
    )

    def __post_init__(self) -> None:
        self.stages = Stages(self.job.key, self.job.entry.label, self.job.place.progress)

    def run(self) -> FinishedCell:
        """Outcome, ledger, attacks, audits, record."""
        note(self.job.place.folder, self.job.key, ())
        produced = self.job.source.first(self.stages)
        if produced is None:
            return self._finished(self._none_run(f"the method failed: {self.stages.errors[-1].message}"))
        asked, transcript = self.job.entry.privacy, produced.outcome.transcript
        rows: tuple[LedgerRow, ...] = ()
        accounted: Accounted | None = None
        sent: Released | None = None
        with self.stages("accounting"):
            rows = ledger_rows(transcript, asked.adjacency)
            accounted = account(transcript, asked.adjacency, asked.delta, asked.unit)
            sent = released(transcript, self._manifest())
        if accounted is None or self.stages.errors:
            failed = self.stages.errors[-1]
            findings = self._none_run(f"not tried after a failure: {failed.stage}: {failed.message}")
        else:
            with self.stages("view"):
                self.seen = self._visible(produced.outcome)
            if self.seen is None:
                findings = self._none_run(f"nothing is seen: {self.stages.errors[-1].message}")
            else:
                findings = self._audited(produced, accounted, self.seen)
        return self._finished(findings, produced, accounted, rows, sent)

    def lost(self, reason: str) -> FinishedCell:
        """The record of a cell that could not be worked on to its end."""
        self.stages.errors.append(ErrorRecord(cell=self.job.key, stage="worker", message=reason))
        return self._finished(self._none_run(reason))

    def _manifest(self) -> str:
        """SHA-256 of the manifest of the transcript that the run keeps; empty where it keeps none."""
        name = f"transcripts/{self.job.key}/{MANIFEST}"
        return (file_digest(self.job.place.folder, name) or "") if self.job.keeps else ""

    def _none_run(self, reason: str) -> list[Finding]:
        return [_not_run(audit.name, None, reason) for audit in self.job.audits]

    def _audited(self, produced: Produced, accounted: Accounted, seen: View) -> list[Finding]:
        """The findings of every audit, on every attack that it reads."""
        job = self.job
        context = self._context(produced, accounted, seen)
        if job.attacks:
            with self.stages("noise"):
                self.unbelieved = unbelieved(context)
            seen = self.seen = self._visible(produced.outcome)
            context = replace(context, view=seen)
        attacked = Attacked(job.attacks, self.stages, partial(self._attack, seen))
        found: dict[int, list[Finding]] = {}
        teller = Teller(_named(job), job.place.progress.tell)
        for step in decisive_first(steps_of(job.audits, job.attacks), job.another):
            found[step.place] = self._step(step, attacked, context)
            teller.hear(found[step.place])
        for attack in job.attacks:
            attacked.result(attack)
        backbone = job.known.backbone
        self.coverage = partial(
            coverage,
            seen,
            attacks=job.attacks,
            audits=job.audits,
            idle=attacked.idle,
            another=job.another,
            width=None if backbone is None else backbone.width,
        )
        return [finding for place in sorted(found) for finding in found[place]]

    def _step(self, step: Step, attacked: Attacked, context: AuditContext) -> list[Finding]:
        """The findings of one audit, on one attack where it judges attacks."""
        audit, attack = step.audit, step.attack
        if not isinstance(audit, AttackAuditEntry):
            named = _naming(context, audit.label)
            return self._assessed(audit.name, audit.label, None, partial(audit.assess, named))
        if attack is None:
            return [_not_run(audit.name, None, audit.otherwise)]
        result = attacked.result(attack)
        if result is None:
            return [_not_run(audit.name, attack, attacked.reasons[attack.label])]
        own = _naming(context, audit.label, attack.label).attacked(
            self._again(attack), f"{attack.label}:{attack.params}", self.game
        )
        stage = f"{audit.label}:{attack.label}"
        return self._assessed(audit.name, stage, attack, partial(audit.assess, result, own))

    def _visible(self, outcome: Outcome) -> View:
        """View of the adversary on an outcome, with no more noise than was found."""
        transcript = as_believed(outcome.transcript, self.unbelieved)
        return visible(replace(outcome, transcript=transcript), self.job.threat)

    def _assessed(
        self, audit: str, stage: str, attack: Component[Attack] | None, assess: Callable[[], list[Finding]]
    ) -> list[Finding]:
        with self.stages(stage):
            try:
                # Every audit of the plan is in the record, whatever its outcome.
                found = admitted(audit, assess())
                return found or [_not_run(audit, attack, "the audit gave no finding")]
            except NotRunError as error:
                return [_not_run(audit, attack, error.why)]
        return [_not_run(audit, attack, "the audit failed; see errors")]

    def _attack(self, seen: View, attack: Component[Attack], recovered: tuple[VectorSource, ...]) -> AttackResult:
        self._check_given(attack)
        return attack.build.run(seen, self._knowledge(attack, recovered))

    def _check_given(self, attack: Component[Attack]) -> None:
        """Refuse an attack what is not there: candidates to ask about, images to reconstruct, or a network.

        Raises:
            NotRunError: It needs one of them; the message says which.
        """
        facts, known = attack.build.facts, self.job.known
        if "membership_game" in facts.needs and not self.game.questions and known.clients:
            raise NotRunError(self.game.why)
        # Captured messages without a plan have neither; images may be computed from the messages all the same.
        alone = known.backbone is not None and not known.fresh.pictures
        if alone and {"reconstructions", "inversions"} & set(facts.gives):
            raise NotRunError(NO_PICTURES)
        if "backbone_gradients" in facts.needs and known.backbone is not None and is_precomputed(known.backbone):
            raise NotRunError(f"{REASON} differentiate through")

    def _again(self, attack: Component[Attack]) -> RunAttack:
        def attack_again(
            view: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
        ) -> AttackResult:
            # An attack that chooses among vectors is another one without those that it chooses from.
            chooses = _goes_on(attack) and "vectors" in attack.build.facts.gives
            before = self._recovered_before(attack, view) if rerun_previous_attacks or chooses else ()
            knowledge = self._knowledge(attack, before)
            if game is not None:
                return attack.build.run(view, replace(knowledge, game=game))
            return run_once(attack, view, knowledge, self.job.known.shared)

        return attack_again

    def _recovered_before(self, attack: Component[Attack], seen: View) -> tuple[VectorSource, ...]:
        """Vectors that the attacks before one recover from another view; one that cannot be run recovers none."""
        recovered: list[VectorSource] = []
        for other in self.job.attacks[: self.job.attacks.index(attack)]:
            if "vectors" in other.build.facts.gives:
                with suppress(NotRunError):
                    knowledge = self._knowledge(other, tuple(recovered) if _goes_on(other) else ())
                    recovered += run_once(other, seen, knowledge, self.job.known.shared).vectors
        return tuple(recovered)

    def _knowledge(self, attack: Component[Attack], recovered: tuple[VectorSource, ...] = ()) -> Knowledge:
        known, place = self.job.known, self.job.place
        return Knowledge(
            attacker=known.attacker or None,
            classes=known.classes,
            backbone=known.backbone,
            white_box=self.job.threat.backbone == "white_box",
            # Not the cell's own stream: one attacker model serves every cell of a seed.
            seeds=self._seeds_of_all_cells("attack", attack.label),
            device=place.device,
            progress=place.progress,
            recovered=recovered,
            # Two entries of one attack must not take each other's checkpoints.
            scratch=runfolder.scratch(place.folder, self.job.key) / file_name("attack", attack.label),
            game=self.game if self.game.questions else None,
        )

    @cached_property
    def game(self) -> MembershipGame:
        """Membership questions about the clients; none without clients or records to compare with."""
        job, known = self.job, self.job.known
        if known.gallery is not None and not known.clients:
            return self._of_gallery(known.gallery)

        def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
            return self._visible(job.source.run_shadow(clients, seeds))

        seeds = self._seeds_of_all_cells("game", job.entry.label)
        try:
            return make_game(
                *(known.clients, known.test, known.attacker or None, simulate, seeds),
                classes=known.classes,
                candidates=known.gallery,
            )
        except NotRunError as error:
            return no_questions(error.why)

    def _of_gallery(self, gallery: Records) -> MembershipGame:
        """The same candidates for every sender of captured messages, with an unknown number of members."""
        if self.seen is None:
            return no_questions()
        senders = dict.fromkeys(message.sender for message in self.seen.from_clients())
        seeds = self._seeds_of_all_cells("game", self.job.entry.label)
        game = replace(no_questions(), questions=dict.fromkeys(senders, gallery), sizes={}, seeds=seeds)
        return replace(game, gallery=gallery)

    def _seeds_of_all_cells(self, *path: str) -> Seeds:
        """Streams that the cells of one seed have in common."""
        return Seeds(0 if self.job.entry.seed is None else self.job.entry.seed).child(*path)

    def _context(self, produced: Produced, accounted: Accounted, seen: View) -> AuditContext:
        job, place = self.job, self.job.place
        return AuditContext(
            data=job.known,
            method=job.source,
            method_key=f"{job.entry.method}:{job.entry.params}",
            outcome=produced.outcome,
            view=seen,
            accounted=accounted,
            tape=produced.tape,
            privacy=job.entry.privacy,
            num_tests=job.num_tests,
            similarity=job.similarity(),
            seeds=job.seeds,
            io=AuditIO(place.device, place.progress, place.folder, (job.key,)),
        )

    def _finished(
        self,
        findings: Sequence[Finding],
        produced: Produced | None = None,
        accounted: Accounted | None = None,
        rows: tuple[LedgerRow, ...] = (),
        sent: Released | None = None,
    ) -> FinishedCell:
        entry = self.job.entry
        findings = with_remedies(findings, self.job.another)
        record = CellRecord(
            method=entry.method,
            label=entry.label,
            params=entry.params,
            params_given=entry.params_given,
            epsilon=entry.privacy.epsilon,
            delta=entry.privacy.delta,
            adjacency=entry.privacy.adjacency,
            unit=entry.privacy.unit,
            seed=entry.seed,
            utility={} if produced is None else dict(produced.utility),
            communication={} if produced is None else _communication(produced.outcome),
            privacy=self._privacy(findings, produced, accounted),
            ledger=rows,
            findings=tuple(finding.model_copy(update={"tape": ()}) for finding in findings),
            tape=next((finding.tape for finding in findings if finding.tape), ()),
            coverage=self.coverage(findings),
            notes=(
                *self.job.warnings,
                *(() if produced is None else (*produced.outcome.notes, *produced.outcome.transcript.notes)),
            ),
            seconds={stage: round(value, 3) for stage, value in self.stages.seconds.items()},
            key=self.job.key,
            basis=self.job.basis,
            released=sent,
        )
        return FinishedCell(
            cell=record, errors=tuple(self.stages.errors), out_of_memory=bool(self.stages.out_of_memory)
        )

    def _not_judged(self, produced: Produced | None, verdict: Verdict, reason: str) -> CellPrivacy:
        """The unjudged claim of a cell that failed: of the outcome, else of the plan's target."""
        claim = self.job.entry.privacy.claim("the plan") if produced is None else produced.outcome.transcript.claim
        claimed = None
        if isinstance(claim, PrivacyClaim):
            claimed, reason = claim.epsilon, f"the claim of epsilon {claim.guarantee} was not judged: {reason}"
        return CellPrivacy(claimed=claimed, accounted=None, verdict=verdict, reason=reason)

    def _privacy(
        self, findings: Sequence[Finding], produced: Produced | None, accounted: Accounted | None
    ) -> CellPrivacy:
        """The three numbers; the verdict is dp_claim's."""
        judged = next((finding for finding in findings if judges_the_claim(finding.audit)), None)
        verdict = judged.verdict if judged else "not_run"
        reason = judged.reason if judged else f"the plan has no {claim_audit()} audit"
        if produced is None or accounted is None:
            return self._not_judged(produced, verdict, reason)
        transcript = produced.outcome.transcript
        observed = judged.metrics.get("observed") if judged else None
        return CellPrivacy(
            claimed=transcript.claim.epsilon if isinstance(transcript.claim, PrivacyClaim) else None,
            accounted=accounted.epsilon,
            accounted_stated=accounted.epsilon_stated,
            observed=None if observed is None else observed.value,
            mu=accounted.mu,
            exact_fields=accounted.exact_fields,
            verdict=verdict,
            reason=reason,
            warnings=warnings_of(transcript, self.job.entry.privacy, self._units(transcript)),
        )

    def _units(self, transcript: Transcript) -> int:
        """Number of the largest client's units that the claim protects, or number of clients."""
        clients = self.job.known.clients
        unit = transcript.claim.unit if isinstance(transcript.claim, PrivacyClaim) else "record"
        if unit == "client":
            return len(clients)
        persons = unit == "person"
        held = (
            len(np.unique(each.groups)) if persons and each.groups is not None else len(each) for each in clients
        )
        return max(held, default=0)


def _communication(outcome: Outcome) -> dict[str, float]:
    sent = {"bytes_up": float(outcome.transcript.bytes_up), "bytes_down": float(outcome.transcript.bytes_down)}
    return {**sent, **outcome.communication}


def _naming(context: AuditContext, *labels: str) -> AuditContext:
    """The context of one audit, with pictures named after it."""
    own = replace(context.io, prefix=(*context.io.prefix, *labels))
    return replace(context, io=own)


def _goes_on(attack: Component[Attack]) -> bool:
    """Whether it goes on from vectors that attacks before it recovered."""
    return "vectors" in attack.build.facts.takes


def _named(job: CellJob) -> str:
    """A cell as whoever waits for it reads it: `fedcgs at ε = 2 (one record added or removed)`."""
    seeds = 1 if job.another is None else len(job.another.scenario.plan.seeds)
    seed = f", seed {job.entry.seed}" if seeds > 1 else ""
    return f"{job.entry.label} {at_epsilon(job.entry.privacy.guarantee)}{seed}"


def _not_run(audit: str, attack: Component[Attack] | None, reason: str) -> Finding:
    name = None if attack is None else attack.name
    return not_run(Subject(audit, name), reason)
