"""Do the messages give single records or label histograms away by arithmetic alone?

Joins the truth to what `gram_factorization`, `message_algebra` and `label_distribution` computed. Recovered
vectors are matched to the true features of their sender's records and compared with the mean of the record's
class, which needs no message. Every finding carries both controls: the same attack on exact statistics of a few
of the same records must recover them; records that nobody sent must not come out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.audits.message.controls import algebra_view, attacked, control_records, sums_view
from fedassay.audits.message.histograms import histogram_finding
from fedassay.audits.message.structure import structure_finding
from fedassay.audits.message.truth import (
    EXACT,
    Judged,
    Matrix,
    class_means,
    encoder,
    judge,
    match,
    metrics,
    truth_of,
)
from fedassay.contracts.audit import AttackedContext, AttackResult, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.transcript import AGGREGATE
from fedassay.records.record import (
    Controls,
    Finding,
    Metric,
    NegativeControl,
    PositiveControl,
    Verdict,
    unmeasured,
)
from fedassay.support.registry import register
from fedassay.support.types import Ints, Parameters

_FACTORS = "gram_factorization"
_SIGNED = "the factorization needs features that are not negative, and this backbone's are signed"


@register("audit", "message")
class MessageAudit(Parameters):
    """Match what arithmetic reads from messages with the true records and label histograms."""

    reads: ClassVar[tuple[str, ...]] = ("gram_factorization", "message_algebra", "label_distribution")
    tests_per_cell: ClassVar[int] = 6

    draws: int = Field(default=2000, ge=200)
    """Bootstrap resamples."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding a source of vectors, one on what messages say of counts, one on label histograms."""
        if result.attack == "label_distribution":
            return [histogram_finding(result, context, self.draws)]
        if result.attack == "message_algebra":
            return [*self._algebra(result, context), structure_finding(result, context)]
        return [self._factors(result, context)]

    def _factors(self, result: AttackResult, context: AttackedContext) -> Finding:
        senders = [str(name) for name in result.artifacts["senders"]]
        vectors = np.asarray(result.artifacts["vectors"], np.float64)
        source = result.vectors[0] if result.vectors else _nothing(_FACTORS)
        finding = self._of_vectors(source, vectors, senders, result, context)
        extra = {"expected_error": _expected(result)}
        limited = [str(reason) for reason in result.artifacts["reasons"] if "max_records" in str(reason)]
        verdict, reason = finding.verdict, finding.reason
        if verdict == "inconclusive" and not result.vectors and _signed(context):
            return _not_run(_FACTORS, result.attack, _SIGNED)
        if verdict == "no_leak_found" and limited:
            verdict, reason = "inconclusive", f"not tried on all messages: {limited[0]}; {reason}"
        elif not result.vectors and result.notes:
            reason = f"{result.notes[0]}; {reason}"
        return finding.model_copy(
            update={"metrics": {**finding.metrics, **extra}, "verdict": verdict, "reason": reason}
        )

    def _algebra(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        found = list(result.vectors)
        # Features that are sent as such need no attack, but must not go unsaid.
        found += [part for part in sources(context.view, np.random.default_rng(0)) if part.name == "raw"]
        everybody = [message.sender for message in context.view.from_clients() if message.sender != AGGREGATE]
        return [
            self._of_vectors(part, part.vectors.astype(np.float64), [*part.senders, *everybody], result, context)
            for part in found
        ]

    def _of_vectors(
        self,
        source: VectorSource,
        vectors: Matrix,
        senders: list[str],
        result: AttackResult,
        context: AttackedContext,
    ) -> Finding:
        """Match to all records of the senders (repeats are ignored), judge, run the controls."""
        encode = encoder(context)
        truths = {sender: records for sender in senders if (records := truth_of(context, sender)) is not None}
        if encode is None or not truths:
            what = "features of the clients' own networks" if encode is None else "senders without known records"
            return _not_run(source.name, result.attack, f"vectors of {what} cannot be compared with any record's")
        means = class_means(context, encode)
        if len(vectors) and vectors.shape[1] != means.shape[1]:
            widths = f"the vectors have width {vectors.shape[1]}, the records' features {means.shape[1]}"
            return _not_run(source.name, result.attack, widths)
        vectors = vectors if len(vectors) else np.zeros((0, means.shape[1]))
        own = {sender: np.flatnonzero([name == sender for name in source.senders]) for sender in truths}
        rng = context.seeds.numpy("message", source.name)

        def judged(pairs: list[tuple[Ints, Records]]) -> Judged:
            truth = [(rows, encode(records), records.labels) for rows, records in pairs]
            found = match(vectors, source.labels, truth, means)
            return judge(found, rng, tests=context.bounds, draws=self.draws)

        ours = judged([(own[sender], truths[sender]) for sender in truths])
        test = context.test
        fresh = [test.take(rng.permutation(len(test))[: len(truths[sender])]) for sender in truths]
        negative = judged(list(zip(own.values(), fresh, strict=True)))
        positive = self._positive(source.name, context, encode, means)
        figures, baseline = metrics(ours.matched, rng, self.draws)
        verdict, reason = _verdict(source.name, ours, positive, negative)
        return Finding(
            audit="message",
            attack=result.attack,
            source=source.name,
            selection="all",
            metrics=figures,
            baseline=baseline,
            controls=Controls(
                positive=PositiveControl(
                    release=f"exact statistics of {positive.matched.records} of the same records, in float64",
                    caught=positive.caught,
                    value=_median(positive),
                    n=len(positive.matched.errors),
                    detail="median relative error",
                ),
                negative=NegativeControl(
                    release="the same vectors against features of fresh (test) records",
                    flagged=negative.beats,
                    value=_median(negative),
                    n=len(negative.matched.errors),
                    detail="median relative error",
                ),
            ),
            verdict=verdict,
            reason=reason,
            assumptions=(
                "vectors are matched to their sender's records one to one, at the least total distance",
                "baseline: the nearest of the class means over records that no client holds",
                f"leak: a record recovered to a relative error below {EXACT:g}, or a mean error below the "
                f"baseline's, one-sided 95 %, corrected for {context.bounds} tests",
            ),
        )

    def _positive(
        self, name: str, context: AttackedContext, encode: Callable[[Records], Matrix], means: Matrix
    ) -> Judged:
        """The attack on exact statistics of a few records; the same for every cell that encodes alike."""
        records = control_records(context)
        features = encode(records)
        make = sums_view if name == _FACTORS else algebra_view
        found = attacked(context, make(records, context, encode))
        part = next((item for item in found.vectors if item.name == name), _nothing(name))
        if name == "raw":  # nothing is computed: what is sent is the feature
            part = VectorSource(
                name, features, records.labels, ("control",) * len(records), np.arange(len(records))
            )
        vectors = found.artifacts.get("vectors") if name == _FACTORS else part.vectors
        whole = np.asarray(vectors, np.float64).reshape(-1, means.shape[1])
        truth = [(np.arange(len(whole)), features, records.labels)]
        rng = np.random.default_rng(0)
        return judge(match(whole, part.labels, truth, means), rng, tests=context.bounds, draws=self.draws)


def _signed(context: AuditContext) -> bool:
    """Whether the features that the method sums up are negative in places."""
    encode = encoder(context)
    if encode is None:
        return False
    features = encode(control_records(context))
    return bool(features.min() < -1e-6 * np.abs(features).max())


def _verdict(name: str, ours: Judged, positive: Judged, negative: Judged) -> tuple[Verdict, str]:
    found = ours.matched
    if not len(found.errors):
        shown = f"no record's features were recovered ({name})"
    else:
        shown = (
            f"{found.exact} of {found.records} records' features computed exactly ({name}); median relative error "
            f"{np.median(found.errors):.2g} over {len(found.errors)} vectors, {np.median(found.baseline):.2g} for "
            "the nearest class means"
        )
    control = f"the positive control came back at {_median(positive):.2g}" if len(positive.matched.errors) else ""
    if negative.beats:
        return "inconclusive", f"the negative control was flagged: fresh records match as well; {shown}"
    if not positive.caught:
        return "inconclusive", f"the attack does not recover exact statistics of a few records here; {shown}"
    if ours.beats:
        return "leak", shown
    if ours.worse:
        return (
            "inconclusive",
            f"the vectors are farther off than class means: the attack is too weak here; {shown}",
        )
    return "no_leak_found", f"{shown}; {control}"


def _median(judged: Judged) -> float | None:
    return float(np.median(judged.matched.errors)) if len(judged.matched.errors) else None


def _expected(result: AttackResult) -> Metric:
    errors = np.asarray(result.scores["expected_error"], np.float64)
    if not len(errors):
        return unmeasured("no vector was recovered")
    return Metric(
        value=float(np.median(errors)), n=len(errors), reason="from the agreement of runs, without truth"
    )


def _nothing(name: str) -> VectorSource:
    none = np.zeros(0, np.int64)
    return VectorSource(name, np.zeros((0, 0), np.float32), none, (), none)


def _not_run(source: str, attack: str, reason: str) -> Finding:
    return Finding(
        audit="message", attack=attack, source=source, selection="all", verdict="not_run", reason=reason
    )
