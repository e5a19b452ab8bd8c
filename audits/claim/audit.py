"""Is a claim of (epsilon, delta) true? Claimed, accounted and observed, side by side.

- claimed: what the method says it provides.
- accounted: what the ledger adds up to over everything that left, on exact sensitivities.
- observed: a lower bound from an attack on neighbouring data sets.

Besides, whether what left is what was declared is asked of the run itself, with its tape: no claim is sound
without that (`fedassay.audits.claim.tape`). Where releases refute what the ledger does not support either, the run
is not replayed: only whether the noise was added is asked. Steps of DP-SGD were measured as they were taken
(`fedassay.audits.claim.training`).

Two ways to observe. `mechanism`: the noised statistics that the method names are released 10^5 times on
the neighbours that are worst for them (`fedassay.privacy.reruns`); where they depend on a network trained on
the records, such neighbours are searched for (`fedassay.audits.claim.retraining`). `rerun`: the whole method
runs again and again on real neighbouring clients (`fedassay.audits.claim.reruns`); slower and weaker, but it
needs nothing from the method and sees what no analysis of its statistics does. For a method that names no
statistic, neighbours are searched for (`fedassay.audits.claim.tape.farthest`).

With `sequential` releases are drawn until the claim is refuted (`fedassay.audits.claim.sequential`).

Private training names no statistic. With `canaries` its declared steps are taken on gradient canaries, by the same
code, and every step is seen (`fedassay.audits.claim.seen_steps`).

How these become a verdict: `fedassay.audits.claim.judging`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from fedassay.audits.claim.bounds import Estimator, Observation, ObservedControl, observe_mechanism
from fedassay.audits.claim.detection_limit import claim_limit
from fedassay.audits.claim.facts import DP_CLAIM
from fedassay.audits.claim.judging import ground_of, refuted
from fedassay.audits.claim.ledger_claim import accounted_for, accounted_metrics, claim_words, whose, worst_of
from fedassay.audits.claim.reruns import LEAST, observe_reruns
from fedassay.audits.claim.retraining import Found, worst_retraining
from fedassay.audits.claim.seen_steps import FEWEST, observe_steps, steps_on
from fedassay.audits.claim.sequential import SequentialSettings, observe_until_refuted
from fedassay.audits.claim.tape.farthest import PAIRS
from fedassay.audits.claim.tape.questions import ask, searched
from fedassay.audits.claim.tape.sensitivity import LEAST_REPLAYS
from fedassay.audits.claim.training import TrainingFacts, training_facts
from fedassay.audits.evidence import Figures, Subject
from fedassay.audits.stats.epsilon_bound import EpsilonBound
from fedassay.audits.verdict import conclude_claim, not_run
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import register
from fedassay.exchange.ledger import Accounted
from fedassay.exchange.release import NoClaim, PrivacyClaim
from fedassay.privacy.gaussian import epsilon_of, mu_of
from fedassay.records.record import Finding, Metric, Series, epsilon_metric, unmeasured
from fedassay.support.errors import NotRunError
from fedassay.support.types import Parameters

_WHOLE = 0.99
"""A mechanism that gives away so much of the ledger's total is taken for all of it."""


@register("audit", "dp_claim")
class DpClaimAudit(Parameters):
    """Does a claim of differential privacy hold: claimed, accounted and observed epsilon."""

    facts: ClassVar[AuditFacts] = DP_CLAIM
    mode: Literal["mechanism", "rerun", "auto"] = "mechanism"
    """Parts that are run again: the statistics that the method names, the whole method, or the latter where there
    are none of the former."""
    mechanism_trials: int = Field(default=100_000, ge=100)
    """`mechanism`: releases of each of the two neighbours."""
    method_runs: int = Field(default=200, ge=LEAST)
    """`rerun`: runs of the method on each of the two neighbours; about 2.8 times as many in all."""
    estimators: tuple[Estimator, ...] = Field(default=("gaussian", "threshold"), min_length=1)
    """`mechanism`: lower bounds to compute; `observed` is the first that applies."""
    sequential: bool = False
    """`mechanism`: releases in batches until the claim is refuted or `mechanism_trials` are spent, with bounds
    that
    hold at whatever time one stops."""
    replays: int | None = Field(default=None, ge=LEAST_REPLAYS, le=1000)
    """Replays of the run on neighbouring records; none given: 40, or 8 where trainings are private."""
    canaries: int = Field(default=0, ge=0, le=100_000)
    """`mechanism`: records with orthogonal gradients, each in or out by a fair coin, that the declared DP-SGD
    steps are taken on, every step seen, where these give more away than any named statistic; 0: none."""

    neighbours: int = Field(default=PAIRS, ge=0, le=10_000)
    """Pairs of neighbours of every client that are searched for the worst, in two replays each, where the method
    names none or what it noises is no sum over records; 0: none."""

    def assess(self, result: None, context: AuditContext) -> list[Finding]:
        """One finding: the three numbers and the verdict."""
        claim = context.outcome.transcript.claim
        if isinstance(claim, NoClaim):
            return [_no_claim(claim, context.accounted)]
        if claim.delta == 0:
            raise NotRunError("a claim of pure differential privacy (delta = 0) is not audited")
        accounted = accounted_for(claim, context)
        observation, why = None, ""
        try:
            observation = self._observe(claim, accounted, context)
        except NotRunError as error:
            why = str(error)
        training = training_facts(context.tape, context.outcome.transcript)
        fallen = refuted(claim, accounted, observation, context.num_tests)
        asked = ask(claim, accounted, context, self.replays, pairs=self.neighbours, refuted=fallen)
        return [
            conclude_claim(
                Subject("dp_claim", source=None if observation is None else observation.about),
                ground_of(claim, accounted, observation, why, asked, context),
                Figures(
                    metrics=_metrics(claim, accounted, observation, why) | _measured(training),
                    assumptions=(
                        *_assumptions(claim, observation, context.num_tests),
                        *whose(context.outcome.transcript),
                    ),
                    series={} if observation is None else {"bounds": _series(observation)},
                    tape=asked.rows,
                ),
                lambda: claim_limit(claim, observation, context),
            )
        ]

    def _observe(self, claim: PrivacyClaim, accounted: Accounted, context: AuditContext) -> Observation:
        mechanisms = context.outcome.mechanisms
        named = bool(mechanisms or context.outcome.retrained)
        steps = steps_on(context.tape, claim) if self.canaries and self.mode != "rerun" else None
        candidates = [Found(name, experiment, ()) for name, experiment in mechanisms.items()]
        if self.mode == "mechanism" and not named and steps is None and accounted.total.finite:
            candidates = self._searched(claim, context)
        if self.mode == "mechanism" and not named and steps is None and not candidates:
            raise NotRunError(
                "the method names no noised statistic that could be released again by itself; dp_claim's "
                "mode: rerun runs the whole method again"
            )
        seeds = context.seeds.child("dp_claim")
        if self.mode == "rerun" or (not candidates and not named and steps is None):
            return observe_reruns(context, claim, runs=self.method_runs, seeds=seeds)
        if context.outcome.retrained:
            candidates.append(worst_retraining(context, claim.adjacency))
        # The mechanism with the largest exact mu is chosen before any draw, so the choice costs no confidence.
        worst = max(candidates, key=lambda found: found.experiment.mu, default=None)
        if steps is not None and (worst is None or worst.experiment.mu < mu_of(steps.epsilon, claim.delta)):
            return observe_steps(
                steps, claim, count=max(self.canaries, FEWEST), tests=context.num_tests, seeds=seeds.child("steps")
            )
        assert worst is not None
        if worst.experiment.mu == 0:
            raise NotRunError(
                f"neighbours under {claim.adjacency} do not differ in what is released ({worst.name})"
            )
        if self.sequential:
            asked = SequentialSettings(
                claim.epsilon, claim.delta, context.num_tests, self.mechanism_trials, self.estimators
            )
            observation = observe_until_refuted(worst.name, worst.experiment, asked, seeds)
        else:
            observation = observe_mechanism(
                worst.name,
                worst.experiment,
                claimed=claim.epsilon,
                delta=claim.delta,
                tests=context.num_tests,
                reruns=self.mechanism_trials,
                estimators=self.estimators,
                seeds=seeds,
            )
        return replace(worst.add_to(observation), remark=_reach(worst, claim, accounted))

    def _searched(self, claim: PrivacyClaim, context: AuditContext) -> list[Found]:
        """The worst neighbours that a search finds for a method that names none."""
        if not self.neighbours or not context.tape.draws:
            return []
        found = searched(context, claim, self.neighbours)
        if found.experiment is None:
            return []
        says = (
            f"the worst of {found.tried:,} neighbours that were tried, by what goes into the noise of the run; "
            "this noise is drawn anew as it is declared",
        )
        return [Found(found.words, found.experiment, says)]


def _reach(attacked: Found, claim: PrivacyClaim, accounted: Accounted) -> str:
    """Remark where the mechanism that was rerun is only a part of the releases; empty where it is all of them."""
    own = epsilon_of(attacked.experiment.mu, claim.delta)
    # Both are of the claim's kind.
    if own >= _WHOLE * accounted.epsilon:
        return ""
    return f"of {attacked.name} alone, {own:.3g} by itself: the rest of what leaves was not attacked"


def _no_claim(claim: NoClaim, accounted: Accounted) -> Finding:
    metrics = accounted_metrics(accounted)
    metrics |= {"claimed": unmeasured("no claim"), "observed": unmeasured("no claim to hold against an attack")}
    return not_run(Subject("dp_claim"), f"no claim: {claim.reason}", Figures(metrics))


def _metrics(
    claim: PrivacyClaim, accounted: Accounted, observation: Observation | None, why: str
) -> dict[str, Metric]:
    observed = unmeasured(why)
    if observation is not None:
        bound, bounds = observation.bounds.observed, observation.bounds
        words = f"{bound.estimator}, 95 % one-sided lower bound"
        shown = None if bound.epsilon is None else claim.guarantee.like(bound.epsilon)
        observed = epsilon_metric(shown, n=2 * bounds.n, reason=bound.reason or words)
    return {"claimed": epsilon_metric(claim.guarantee), **accounted_metrics(accounted), "observed": observed}


def _measured(training: TrainingFacts | None) -> dict[str, Metric]:
    if training is None:
        return {}
    return {
        "noise_share": Metric(
            value=training.noise,
            low=training.low,
            high=training.high,
            n=training.coordinates,
            reason="noise added in DP-SGD steps over the declared, measured as they were taken",
        )
    }


def _assumptions(claim: PrivacyClaim, observation: Observation | None, bounds: int) -> tuple[str, ...]:
    return (
        claim_words(claim),
        f"accounted: everything that leaves, {worst_of(claim)}",
        f"unsound: a lower bound above the claim at confidence 1 - 0.05/{bounds} ({bounds} bounds in the run)",
        "noise is floating-point Gaussian, not hardened against attacks on its low bits (Mironov 2012), and a "
        "seeded run's noise is not secret",
        *(() if observation is None else observation.assumptions),
    )


def _series(observation: Observation) -> Series:
    """Every bound, of the audited release and of both controls, at both levels."""
    rows: list[tuple[str, EpsilonBound]] = [
        (release, bound)
        for release, bounds in (
            (observation.about, observation.bounds),
            *((_named(control), control.bounds) for control in (observation.positive, observation.negative)),
        )
        for bound in (*bounds.shown, *bounds.corrected)
    ]
    return Series(
        title="Lower bounds on epsilon",
        columns={
            "release": tuple(release for release, _ in rows),
            "estimator": tuple(bound.estimator for _, bound in rows),
            "confidence": tuple(bound.confidence for _, bound in rows),
            "epsilon": tuple(bound.epsilon for _, bound in rows),
            "mu": tuple(bound.mu for _, bound in rows),
            "remark": tuple(bound.reason for _, bound in rows),
        },
    )


def _named(control: ObservedControl) -> str:
    return f"control: {control.release}"
