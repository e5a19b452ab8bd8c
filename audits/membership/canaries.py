"""Canaries in one private training run: an observed epsilon for DP-SGD beside the claimed and the accounted one.

Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023). Each canary joins the smallest
client's records or stays out by a fair coin of its own; the method is run once on that; the auditor ranks the
canaries by what the client's network makes of them and guesses. A canary is a record that no data set contains and
that a network can only memorize: an image of the test role under a wrong label, drawn at random.

The score of a canary is the logit of its label under the client's last network, less the mean of the same over
networks of reference runs that hold no canary: what is left is not the canary's difficulty.

One run bounds epsilon under add_remove only, by the f-DP form of the bound (Mahloujifar, Melis and Chaudhuri 2024)
for (epsilon, delta)-DP, which assumes nothing of the scores. It is weak by nature: m canaries cannot show more
than a few units of epsilon, and a black-box score sees little of what DP-SGD released.

Positive controls: the method's own run without privacy, in the form in which it holds records by heart, on
canaries alone, made of control records; and a classifier that memorized the canaries that joined. Negative:
coins drawn anew after the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedassay.audits.evidence import WORSE, ControlResult, Figures, LeakTest, Result
from fedassay.audits.membership.controls import memorize
from fedassay.audits.membership.judging import Positives, membership
from fedassay.audits.membership.planted_canaries import LEAST, canary_network, make_canaries, mislabelled
from fedassay.audits.simulation import control_seeds
from fedassay.audits.stats.below_baseline import auc_below_half
from fedassay.audits.stats.detection import detection_limit
from fedassay.audits.stats.one_run_fdp import one_run_fdp_bound
from fedassay.audits.stats.resampling import ALONE, level_of
from fedassay.audits.stats.roc import auc
from fedassay.audits.verdict import assay, not_run
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records, joined
from fedassay.exchange.models import label_logits
from fedassay.exchange.release import PrivacyClaim
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Limit, epsilon_metric
from fedassay.support.errors import NotRunError
from fedassay.support.types import Bools, Ints, Matrix

_REFERENCES = 3
_OWN = 60
"""Canaries of the end-to-end control at most; half of them join, as many as a network can memorize."""


@dataclass(frozen=True)
class _Bounds:
    """Lower bounds on epsilon from one run: at 95 %, at 1 - `ALONE`, and at the corrected level.

    Attributes:
        shown: At 95 %.
        uncorrected: At 1 - `ALONE`.
        corrected: At the level corrected for the tests of the run.
        count: Canaries.
        area: AUC of those that joined against those that did not.
    """

    shown: float
    uncorrected: float
    corrected: float
    count: int
    area: float

    @property
    def test(self) -> LeakTest:
        """The test of whether the canaries show any epsilon above 0."""
        return self.beyond(0.0)

    def beyond(self, epsilon: float) -> LeakTest:
        """The test of whether the canaries show more than an epsilon."""
        words = f"epsilon at least {self.uncorrected:.3g}"
        return LeakTest(self.corrected > epsilon, self.uncorrected > epsilon, words, statistic="observed")

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control: whether the bound is above 0."""
        shown, detail = f"epsilon at least {self.shown:.3g} from {self.count} canaries", "lower bound on epsilon"
        gain = self.area - 0.5
        alone = self.test.uncorrected
        return ControlResult(
            release, self.test.rejects, shown, self.shown, self.count, detail, end_to_end, gain, alone=alone
        )


@dataclass(frozen=True, eq=False)
class _Scored:
    """Canaries of a control.

    Attributes:
        score: A network's score of each, shape (m,).
        included: Whether each one joined, shape (m,).
    """

    score: Matrix
    included: Bools


@dataclass(frozen=True, eq=False)
class _Planted:
    """One run with canaries in it.

    Attributes:
        canaries: All of them.
        included: Whether each one joined, shape (m,).
        score: Score of each by the owner's network, less that by other networks, shape (m,).
        owner: Name of the client that they joined.
    """

    canaries: Records
    included: Bools
    score: Matrix
    owner: str


def canary_finding(context: AuditContext, count: int) -> Finding:
    """Plant canaries into one run, guess, and hold the bound against the claim.

    Args:
        context: The method, the records and the claim.
        count: Canaries m, as many as test records allow.
    """
    try:
        claim = _audited_claim(context)
        rng = context.seeds.numpy("membership", "canaries")
        return _finding(_planted(context, count, rng), claim, context, rng)
    except NotRunError as error:
        return not_run(membership("canaries", "one_run"), error.why)


def _audited_claim(context: AuditContext) -> PrivacyClaim:
    """The claim, where one run can bound what it speaks of."""
    claim = context.outcome.transcript.claim
    if not isinstance(claim, PrivacyClaim):
        raise NotRunError("no claim of privacy to hold canaries against")
    if claim.adjacency != "add_remove":
        raise NotRunError(f"a canary is added or not, which a claim under {claim.adjacency} does not speak of")
    if not context.outcome.networks:
        raise NotRunError("the method sends no whole classifier that canaries could be scored by")
    return claim


def _planted(context: AuditContext, count: int, rng: np.random.Generator) -> _Planted:
    """Run the method with the canaries that their coins include, and without any."""
    canaries = make_canaries(context, count, rng)
    included = rng.random(len(canaries)) < 0.5
    seeds = context.seeds.child("membership", "canaries")
    held = [client for client in context.data.clients if len(client)]
    owner = min(held, key=len)
    with context.io.progress.step("canaries") as advance:
        advance(0, 1 + _REFERENCES)
        planted = joined(owner.name, [owner, canaries.take(np.flatnonzero(included))])
        score = label_logits(
            canary_network(context, context.method.run_on, owner, planted, seeds.child("run")), canaries
        )
        usual = []
        for number in range(_REFERENCES):
            advance(1 + number, 1 + _REFERENCES)
            reference = canary_network(
                context, context.method.run_on, owner, owner, seeds.child("reference", number)
            )
            usual.append(label_logits(reference, canaries))
    return _Planted(canaries, included, score - np.mean(usual, axis=0), owner.name)


def _positives(
    context: AuditContext,
    owner: Records,
    bounds: Callable[[Matrix, Bools], _Bounds],
    alone: ControlResult,
) -> tuple[_Scored | None, Positives]:
    """Canaries of the method's own run without privacy, where there can be any, beside the control `alone`."""
    try:
        own = _end_to_end(context, owner)
    except NotRunError as error:
        return None, Positives(error.why, (alone,))
    words = f"the method's own run without privacy on {int(own.included.sum())} canaries of control records"
    return own, Positives((bounds(own.score, own.included).control(words, end_to_end=True),), (alone,))


def _finding(planted: _Planted, claim: PrivacyClaim, context: AuditContext, rng: np.random.Generator) -> Finding:
    included, count = planted.included, len(planted.canaries)
    memory = label_logits(
        memorize(planted.canaries.take(np.flatnonzero(included)), context.data.classes), planted.canaries
    )

    def bounds(values: Matrix, included: Bools) -> _Bounds:
        shown, alone, corrected = (
            one_run_fdp_bound(values, included, delta=claim.delta, confidence=c).epsilon or 0.0
            for c in (0.95, 1 - ALONE, 1 - level_of(context.num_tests))
        )
        area = auc(values[~included], values[included]).value if 0 < included.sum() < len(included) else None
        return _Bounds(shown, alone, corrected, len(values), 0.5 if area is None else area)

    ours, negative = bounds(planted.score, included), bounds(planted.score, rng.random(count) < 0.5)
    alone = bounds(memory, included).control("a classifier that memorized the canaries that joined")
    owner = next(client for client in context.data.clients if client.name == planted.owner)
    own, positives = _positives(context, owner, bounds, alone)
    outside, inside = planted.score[~included], planted.score[included]
    area, p = auc(outside, inside), auc_below_half(outside, inside)
    against = claim.epsilon if ours.corrected > 0 else 0.0
    result = Result(
        test=ours.beyond(claim.epsilon),
        shown=f"observed epsilon at least {ours.shown:.3g} (95 %), at the corrected level "
        f"{ours.corrected:.3g}, accounted {context.accounted.total}, claimed {claim.guarantee}",
        leak="canaries show more than is claimed",
        harm=_harm(ours.shown, count),
        below_baseline=f"guessing (p = {p:.2g}; other canaries would decide)" if p <= WORSE else "",
        limit=None if own is None else partial(_limit, own, count, against, claim, context),
    )
    estimator = f"one run with {count} canaries at {planted.owner}, 95 % one-sided lower bound"
    figures = Figures(
        metrics={
            "claimed": epsilon_metric(claim.guarantee),
            "accounted": epsilon_metric(context.accounted.total, reason=context.accounted.reason),
            "observed": epsilon_metric(claim.guarantee.like(ours.shown), n=count, reason=estimator),
            "auc": area.metric(),
        },
        assumptions=(
            "canaries: test images under wrong labels; scored by the last network that the client sends, less "
            f"the mean of {_REFERENCES} runs without canaries",
        ),
    )
    silent = negative.control("the same scores, against coins drawn after the run")
    return assay(membership("canaries", "one_run"), positives.arms(result, silent), figures)


def _harm(shown: float, count: int) -> Harm:
    return Harm(kind="members", of="canary", total=count, metric="observed", value=shown, mechanism="canaries")


def _end_to_end(context: AuditContext, owner: Records) -> _Scored:
    """Scores of canaries of control records after the method's run without privacy on them alone.

    Raises:
        NotRunError: There are too few control records.
    """
    rng = control_seeds(context, "membership", "canaries").numpy("records")
    control = context.data.control
    if len(control) < LEAST:
        raise NotRunError(
            f"canaries that the method is known to give away need {LEAST} control records, and there are "
            f"{len(control)}: {LEAST - len(control)} more in data.split.control would decide",
            role="control",
            held=len(control),
            needed=LEAST,
        )
    canaries = mislabelled(control.take(rng.permutation(len(control))[:_OWN]), context.data.classes, rng)
    included = rng.permutation(len(canaries)) < len(canaries) // 2
    held = canaries.take(np.flatnonzero(included), owner.name)
    seeds = control_seeds(context, "membership", "canaries", "run")
    network = canary_network(context, context.method.run_nonprivate, owner, held, seeds, alone=True)
    return _Scored(label_logits(network, canaries), included)


def _limit(own: _Scored, silent: int, against: float, claim: PrivacyClaim, context: AuditContext) -> Limit | str:
    """The smallest share of canaries as detectable as the control's for which the bound exceeds `against`."""
    rng = context.seeds.numpy("membership", "canaries", "limit")
    order = np.argsort(np.argsort(own.score, kind="stable"), kind="stable")
    ranks = (order + rng.random(len(order))) / len(order)
    inside, outside = ranks[own.included], ranks[~own.included]

    def finds(_silent: Ints, leaking: Ints, count: int) -> bool:
        draw = np.random.Generator(np.random.PCG64([int(each) for each in leaking]))
        included, values = draw.random(silent) < 0.5, draw.random(silent)
        told = np.where(included, inside[leaking % len(inside)], outside[leaking % len(outside)])
        values = np.where(np.arange(silent) < count, told, values)
        confidence = 1 - level_of(context.num_tests)
        bound = one_run_fdp_bound(values, included, delta=claim.delta, confidence=confidence)
        return (bound.epsilon or 0.0) > against

    found = detection_limit(silent, 1, len(own.score), finds, rng)
    if found.share is None or found.share >= 1:
        return (
            f"even canaries that are all as exposed as the control's would have shown more than epsilon "
            f"{against:g} in {found.found} of {found.draws} runs with {silent} of them: more canaries would decide"
        )
    return Limit(
        metric="share",
        value=found.share,
        n=silent,
        words=f"more than epsilon {against:g} is shown if {found.share:.2g} of the canaries are as exposed as the "
        "control's are",
        of="canary",
        planted="canary",
    )
