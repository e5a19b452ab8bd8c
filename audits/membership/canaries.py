"""Canaries in one private training run: an observed epsilon for DP-SGD beside the claimed and the accounted one.

Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023). Each canary joins the smallest
client's records or stays out by a fair coin of its own; the method is run once on that; the auditor ranks the
canaries by what the client's network makes of them and guesses. A canary is a record that nobody's data contains
and that a network can only know by heart: an image of the test role under a wrong label, drawn at random.

The score of a canary is the logit of its label under the client's last network, less the mean of the same over
networks of reference runs that hold no canary: what is left is not the canary's difficulty.

One run bounds epsilon under add_remove only, by the f-DP form of the bound (Mahloujifar, Melis and Chaudhuri 2024)
for (epsilon, delta)-DP, which assumes nothing of the scores. It is weak by nature: m canaries cannot show more
than a few units of epsilon, and a black-box score sees little of what DP-SGD released.

Positive control: a network that memorized the canaries that joined. Negative: coins drawn anew after the run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.membership.controls import memorize, without
from fedassay.audits.membership.verdict import not_run
from fedassay.audits.stats.one_run_fdp import one_run_fdp_bound
from fedassay.audits.stats.roc import auc
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import visible
from fedassay.data.records import Records, joined
from fedassay.exchange.models import ScoringModel, label_logits
from fedassay.exchange.release import PrivacyClaim
from fedassay.records.record import Controls, Finding, Metric, NegativeControl, PositiveControl, Verdict
from fedassay.support.errors import DataError, NotRunError
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]

_REFERENCES = 3
LEAST = 20
"""Canaries that anything can be shown with, at least."""


@dataclass(frozen=True)
class _Bounds:
    """Lower bounds on epsilon from one run: at 95 %, and at the corrected level."""

    shown: float
    corrected: float


def canary_finding(context: AuditContext, count: int) -> Finding:
    """Plant canaries into one run, guess, and hold the bound against the claim.

    Args:
        context: The method, the records and the claim.
        count: Canaries m, as many as test records allow.
    """
    try:
        return _planted(context, count)
    except NotRunError as error:
        return not_run("canaries", "one_run", str(error))


def _planted(context: AuditContext, count: int) -> Finding:
    claim = context.outcome.transcript.claim
    if not isinstance(claim, PrivacyClaim):
        raise NotRunError("no claim of privacy to hold canaries against")
    if claim.adjacency != "add_remove":
        raise NotRunError(f"a canary is added or not, which a claim under {claim.adjacency} does not speak of")
    if not context.outcome.networks:
        raise NotRunError("the method sends no whole classifier that canaries could be scored by")
    rng = context.seeds.numpy("membership", "canaries")
    canaries = make_canaries(context, count, rng)
    included = rng.random(len(canaries)) < 0.5
    seeds = context.seeds.child("membership", "canaries")
    held = [client for client in context.clients if len(client)]
    owner = min(held, key=len)
    with context.workplace.progress.step("canaries") as advance:
        advance(0, 1 + _REFERENCES)
        planted = joined(owner.name, [owner, canaries.take(np.flatnonzero(included))])
        score = label_logits(_network(context, owner, planted, seeds.child("run")), canaries)
        usual = []
        for number in range(_REFERENCES):
            advance(1 + number, 1 + _REFERENCES)
            usual.append(label_logits(_network(context, owner, owner, seeds.child("reference", number)), canaries))
    score = score - np.mean(usual, axis=0)
    memory = label_logits(memorize(canaries.take(np.flatnonzero(included)), context.classes), canaries)

    def bounds(values: Matrix, coins: NDArray[np.bool_]) -> _Bounds:
        shown, corrected = (
            one_run_fdp_bound(values, coins, delta=claim.delta, confidence=c, family="approximate").epsilon or 0.0
            for c in (0.95, 1 - 0.05 / context.bounds)
        )
        return _Bounds(shown, corrected)

    ours, leaks = bounds(score, included), bounds(memory, included)
    silent = bounds(score, rng.random(len(canaries)) < 0.5)
    verdict, reason = _verdict(ours, leaks, silent, claim, context.accounted.epsilon, len(canaries))
    area = auc(score[~included], score[included])
    estimator = f"one run with {len(canaries)} canaries at {owner.name}, 95 % one-sided lower bound"
    return Finding(
        audit="membership",
        attack="membership",
        source="canaries",
        selection="one_run",
        metrics={
            "claimed": Metric(value=claim.epsilon),
            "accounted": Metric(value=context.accounted.epsilon, reason=context.accounted.reason),
            "observed": Metric(value=ours.shown, n=len(canaries), reason=estimator),
            "auc": Metric(value=area.value, low=area.low, high=area.high, n=area.n),
        },
        controls=Controls(
            positive=PositiveControl(
                release="a classifier that memorized the canaries that joined",
                caught=leaks.corrected > 0,
                value=leaks.shown,
                n=len(canaries),
                detail="lower bound on epsilon",
            ),
            negative=NegativeControl(
                release="the same scores, against coins drawn after the run",
                flagged=silent.corrected > 0,
                value=silent.shown,
                n=len(canaries),
                detail="lower bound on epsilon",
            ),
        ),
        verdict=verdict,
        reason=reason,
        assumptions=(
            "canaries: test images under wrong labels; scored by the last network that the client sends, less the "
            f"mean of {_REFERENCES} runs without canaries",
        ),
    )


def make_canaries(context: AuditContext, count: int, rng: np.random.Generator) -> Records:
    """Test images, each at most once and none of a client's, under labels that are not theirs."""
    free = without(context.test, joined("clients", context.clients))
    chosen = rng.permutation(len(free))[:count]
    if len(chosen) < LEAST:
        raise NotRunError(f"{len(chosen)} canaries; at least {LEAST} are needed, from records of the test role")
    picked = free.take(np.sort(chosen))
    labels = (picked.labels + rng.integers(1, context.classes, size=len(picked))) % context.classes
    return Records("canaries", picked.images, labels.astype(np.int64), lambda _images: picked.features)


def _network(context: AuditContext, owner: Records, records: Records, seeds: Seeds) -> ScoringModel:
    """The last classifier that the owner, or else the server, sends in a run on these records of its own."""
    clients = [records if client.name == owner.name else client for client in context.clients]
    try:
        models = visible(context.rerun(clients, seeds), context.view.threat).models
    except DataError as error:
        raise NotRunError(f"the method cannot be run on records with canaries: {error}") from None
    own = {number: model for (sender, number), model in models.items() if sender == owner.name}
    seen = own or {number: model for (_, number), model in models.items()}
    if not seen:
        raise NotRunError("the threat model sees no classifier")
    return seen[max(seen)]


def _verdict(
    ours: _Bounds, positive: _Bounds, negative: _Bounds, claim: PrivacyClaim, accounted: float, count: int
) -> tuple[Verdict, str]:
    shown = (
        f"observed epsilon at least {ours.shown:.3g} (95 %), accounted {accounted:.3g}, claimed {claim.epsilon:g}"
    )
    power = f"{count} canaries that are all known by heart show {positive.shown:.3g}"
    if negative.corrected > 0:
        return (
            "inconclusive",
            f"the negative control was flagged (epsilon at least {negative.corrected:.3g}); {shown}",
        )
    if positive.corrected <= 0:
        return "inconclusive", f"the positive control was not caught: {power}; {shown}"
    if ours.corrected > claim.epsilon:
        return "leak", f"canaries show more than is claimed, at the corrected level {ours.corrected:.3g}: {shown}"
    return "no_leak_found", f"{shown}; {power}"
