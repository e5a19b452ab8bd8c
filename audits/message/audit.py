"""Do the messages give single records or label histograms away by arithmetic alone?

Joins the truth to vectors, remarks and label histograms that attacks computed. Recovered
vectors are matched to the true features of their sender's records and compared with the mean of the record's
class, which needs no message. Every finding carries both controls: the same attack on exact statistics of a few
of the same records must recover them; records that nobody sent must not come out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.audits.evidence import Figures, Result, Subject
from fedassay.audits.message.controls import algebra_view, attacked, control_records, sums_view
from fedassay.audits.message.facts import MESSAGE
from fedassay.audits.message.histograms import histogram_finding
from fedassay.audits.message.kinds import has_expected_errors, says_counts, says_remarks
from fedassay.audits.message.structure import structure_finding
from fedassay.audits.message.truth import (
    EXACT,
    Matrix,
    Recovery,
    class_means,
    encoder,
    judge,
    match,
    metrics,
    truth_of,
)
from fedassay.audits.simulation import control_seeds
from fedassay.audits.verdict import conclude, not_run
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.transcript import AGGREGATE
from fedassay.records.record import (
    Finding,
    Metric,
    unmeasured,
)
from fedassay.support.types import Ints, Parameters

_SIGNED = "the factorization needs features that are not negative, and this backbone's are signed"


@dataclass(frozen=True)
class _Recovered:
    """Vectors that an attack computed, and what it says of them.

    Attributes:
        source: Their senders and labels.
        vectors: In float64, shape (k, d).
        senders: Whose messages were attacked, repeats included.
        metrics: Further figures.
        about: Said before the reason.
        untried: What was left out, empty where nothing was.
    """

    source: VectorSource
    vectors: Matrix
    senders: list[str]
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    about: str = ""
    untried: str = ""


@register("audit", "message")
class MessageAudit(Parameters):
    """Match what arithmetic reads from messages with the true records and label histograms."""

    facts: ClassVar[AuditFacts] = MESSAGE

    draws: int = Field(default=2000, ge=200)
    """Bootstrap resamples."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding a source of vectors, one on what messages say of counts, one on label histograms."""
        findings: list[Finding] = []
        if says_counts(result):
            findings.append(histogram_finding(result, context, self.draws))
        if says_remarks(result):
            findings += [*self._algebra(result, context), structure_finding(result, context)]
        elif has_expected_errors(result):
            findings.append(self._factors(result, context))
        elif result.vectors or not findings:
            findings += self._sources(result.vectors or (_nothing(result.attack),), result, context)
        return findings

    def _factors(self, result: AttackResult, context: AttackedContext) -> Finding:
        senders = [str(name) for name in result.artifacts["senders"]]
        vectors = np.asarray(result.artifacts["vectors"], np.float64)
        limited = [str(reason) for reason in result.artifacts["reasons"] if "max_records" in str(reason)]
        recovered = _Recovered(
            result.vectors[0] if result.vectors else _nothing(result.attack),
            vectors,
            senders,
            metrics={"expected_error": _expected(result)},
            about="" if result.vectors or limited or not result.notes else result.notes[0],
            untried=f"not tried on all messages: {limited[0]}" if limited else "",
        )
        return self._of_vectors(recovered, result, context)

    def _algebra(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        # Features that are sent as such need no attack, but must not go unsaid.
        raw = [
            part for part in sources(context.view, context.seeds.numpy("message", "sources")) if part.name == "raw"
        ]
        return self._sources((*result.vectors, *raw), result, context)

    def _sources(
        self, parts: Sequence[VectorSource], result: AttackResult, context: AttackedContext
    ) -> list[Finding]:
        """A finding for each source of vectors, whose senders' records and everybody's they are matched to."""
        everybody = [message.sender for message in context.view.from_clients() if message.sender != AGGREGATE]
        return [
            self._of_vectors(
                _Recovered(part, part.vectors.astype(np.float64), [*part.senders, *everybody]), result, context
            )
            for part in parts
        ]

    def _of_vectors(self, recovered: _Recovered, result: AttackResult, context: AttackedContext) -> Finding:
        """Match to all records of the senders (repeats are ignored), run the controls, conclude."""
        source, vectors = recovered.source, recovered.vectors
        subject = Subject("message", result.attack, source.name, "all")
        encode = encoder(context)
        truths = {
            sender: records for sender in recovered.senders if (records := truth_of(context, sender)) is not None
        }
        if encode is None or not truths:
            what = "features of the clients' own networks" if encode is None else "senders without known records"
            return not_run(subject, f"vectors of {what} cannot be compared with any record's")
        means = class_means(context, encode)
        if len(vectors) and vectors.shape[1] != means.shape[1]:
            widths = f"the vectors have width {vectors.shape[1]}, the records' features {means.shape[1]}"
            return not_run(subject, widths)
        vectors = vectors if len(vectors) else np.zeros((0, means.shape[1]))
        own = {sender: np.flatnonzero([name == sender for name in source.senders]) for sender in truths}
        rng = context.seeds.numpy("message", source.name)

        def recovery(pairs: list[tuple[Ints, Records]]) -> Recovery:
            truth = [(rows, encode(records), records.labels) for rows, records in pairs]
            matched = match(vectors, source.labels, truth, means)
            return judge(matched, rng, tests=context.bounds, draws=self.draws)

        ours = recovery([(own[sender], truths[sender]) for sender in truths])
        test = context.test
        fresh = [test.take(rng.permutation(len(test))[: len(truths[sender])]) for sender in truths]
        negative = recovery(list(zip(own.values(), fresh, strict=True)))
        positive = self._positive(source.name, has_expected_errors(result), context, encode, means)
        if has_expected_errors(result) and not positive.caught and not result.vectors and _signed(context):
            return not_run(subject, _SIGNED)
        figures, baseline = metrics(ours.matched, rng, self.draws)
        return conclude(
            subject,
            _result(recovered, ours),
            Figures({**figures, **recovered.metrics}, baseline, _assumptions(context)),
            positive=positive.control(
                f"exact statistics of {positive.matched.records} of the same records, in float64",
                detected=positive.caught,
            ),
            negative=negative.control(
                "the same vectors against features of fresh (test) records", detected=negative.test.beats
            ),
        )

    def _positive(
        self,
        name: str,
        factors: bool,
        context: AttackedContext,
        encode: Callable[[Records], Matrix],
        means: Matrix,
    ) -> Recovery:
        """The attack on exact statistics of a few records; the same for every cell that encodes alike."""
        records = control_records(context)
        features = encode(records)
        make = sums_view if factors else algebra_view
        computed = attacked(context, make(records, context, encode))
        part = next((item for item in computed.vectors if item.name == name), _nothing(name))
        if name == "raw":  # nothing is computed: what is sent is the feature
            part = VectorSource(
                name, features, records.labels, ("control",) * len(records), np.arange(len(records))
            )
        vectors = computed.artifacts.get("vectors") if factors else part.vectors
        whole = np.asarray(vectors, np.float64).reshape(-1, means.shape[1])
        truth = [(np.arange(len(whole)), features, records.labels)]
        rng = control_seeds(context, "message", name).numpy()
        return judge(match(whole, part.labels, truth, means), rng, tests=context.bounds, draws=self.draws)


def _signed(context: AuditContext) -> bool:
    """Whether the features that the method sums up are negative in places."""
    encode = encoder(context)
    if encode is None:
        return False
    features = encode(control_records(context))
    return bool(features.min() < -1e-6 * np.abs(features).max())


def _result(recovered: _Recovered, ours: Recovery) -> Result:
    matched, name = ours.matched, recovered.source.name
    if ours.median is None:
        shown = f"no record's features were recovered ({name})"
    else:
        shown = (
            f"{matched.exact} of {matched.records} records' features computed exactly ({name}); median relative "
            f"error {ours.median:.2g} over {len(matched.errors)} vectors, {np.median(matched.baseline):.2g} for "
            "the nearest class means"
        )
    return Result(
        test=ours.test,
        shown=shown,
        about=recovered.about,
        worse="the class means" if ours.worse else "",
        near_copies=matched.exact,
        undecided=recovered.untried,
    )


def _assumptions(context: AuditContext) -> tuple[str, ...]:
    return (
        "vectors are matched to their sender's records one to one, at the least total distance",
        "baseline: the nearest of the class means over records that no client holds",
        f"leak: a record recovered to a relative error below {EXACT:g}, or a mean error below the baseline's, "
        f"one-sided 95 %, corrected for {context.bounds} tests",
    )


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
