"""Truth joined to estimated label histograms: how far from the true ones, against what anybody could guess?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.message.controls import view_of
from fedassay.audits.message.truth import truth_of
from fedassay.audits.stats.resampling import Interval, mean_of, resampled
from fedassay.contracts.audit import AttackedContext, AttackResult, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import AGGREGATE, SERVER, Message, MessageField
from fedassay.records.record import Controls, Finding, Metric, NegativeControl, PositiveControl, Verdict
from fedassay.support.errors import NotRunError
from fedassay.support.types import Ints

Matrix = NDArray[np.float64]

CLEAR = 0.05
"""By how much a single histogram must beat the baseline to count, where no interval can be had."""

_ROUNDING = 1e-9
_OF_CLASSES = {"class_counts", "class_sums", "class_means", "labels", "second_moment"}


@dataclass(frozen=True)
class _Gain:
    """Total variation distances of estimates and of the baseline, shape (S,).

    Attributes:
        ours: Of the estimates.
        baseline: Of the public histogram.
        interval: Of the mean distance saved; None for a single histogram.
        read: Whether a message that is sent without noise gives a histogram as it is: no chance is left in that.
    """

    ours: Matrix
    baseline: Matrix
    interval: Interval | None
    read: bool = False

    @property
    def value(self) -> float:
        """Mean distance saved."""
        return float((self.baseline - self.ours).mean())

    @property
    def beats(self) -> bool:
        """Whether the estimates are closer than the baseline."""
        if self.read and self.value > CLEAR:
            return True
        return self.value > CLEAR if self.interval is None else self.interval.corrected_low > 0


def histogram_finding(result: AttackResult, context: AttackedContext, draws: int) -> Finding:
    """One finding on all senders' histograms.

    The baseline is the histogram of records that no client holds. Positive control: the same clients' counts,
    sent exactly. Negative control: the estimates held against the histograms of as many fresh records.

    Raises:
        NotRunError: No sender of the view has known records.
    """
    senders = [str(name) for name in result.artifacts["senders"]]
    truths = {sender: records for sender in senders if (records := truth_of(context, sender)) is not None}
    kept = [index for index, sender in enumerate(senders) if sender in truths and len(truths[sender])]
    # Where single clients are seen, the sum over all of them is not one more of them.
    kept = [index for index in kept if senders[index] != AGGREGATE] or kept
    if not kept:
        raise NotRunError("no sender in the view has records to compare histograms with")
    estimates = np.asarray(result.artifacts["histograms"], np.float64)[kept]
    owners = [truths[senders[index]] for index in kept]
    prior = _histogram(context.fresh.labels, context.classes)
    rng = context.seeds.numpy("message", "histograms")
    true = np.stack([_histogram(owner.labels, context.classes) for owner in owners])
    gain = _gain(estimates, true, prior, rng, context, draws)
    gain = replace(gain, read=_read(gain, [senders[index] for index in kept], context))
    fresh = np.stack([_fresh(context, len(owner), rng) for owner in owners])
    negative = _gain(estimates, fresh, prior, rng, context, draws)
    positive = _positive(context, prior, rng, draws)
    evidence = ", ".join(sorted({str(result.artifacts["evidence"][index]) for index in kept}))
    verdict, reason = _verdict(gain, positive, negative, evidence)
    return Finding(
        audit="message",
        attack=result.attack,
        source="label_histograms",
        selection="all",
        metrics={"total_variation": _metric(gain.ours, rng, draws)},
        baseline={"total_variation": _metric(gain.baseline, rng, draws)},
        controls=Controls(
            positive=PositiveControl(
                release="exact class counts of the same clients",
                caught=positive.beats,
                value=float(positive.ours.mean()),
                n=len(positive.ours),
                detail="total variation distance",
            ),
            negative=NegativeControl(
                release="histograms of as many fresh (test) records, held against the same estimates",
                flagged=negative.beats,
                value=float(negative.ours.mean()),
                n=len(negative.ours),
                detail="total variation distance",
            ),
        ),
        verdict=verdict,
        reason=reason,
        assumptions=(
            "baseline: the label histogram of records that no client holds",
            f"leak: closer than the baseline, one-sided 95 %, corrected for {context.bounds} tests; for a single "
            f"histogram, or where one is read exactly from what leaves without noise, by more than {CLEAR:g}",
        ),
    )


def _gain(
    estimates: Matrix, true: Matrix, prior: Matrix, rng: np.random.Generator, context: AuditContext, draws: int
) -> _Gain:
    ours, baseline = np.abs(estimates - true).sum(axis=1) / 2, np.abs(prior - true).sum(axis=1) / 2
    if len(ours) < 2:
        return _Gain(ours, baseline, None)
    interval = resampled(len(ours), mean_of(baseline - ours), rng, tests=context.bounds, draws=draws)
    return _Gain(ours, baseline, interval)


def _read(gain: _Gain, senders: Sequence[str], context: AuditContext) -> bool:
    """Whether some sender's histogram is the true one, and all that it sends of classes is exact."""
    noised = {
        message.sender
        for message in context.view.from_clients()
        for item in message.fields.values()
        if item.kind in _OF_CLASSES and item.release.mechanism != "exact"
    }
    return any(
        float(distance) < _ROUNDING and sender not in noised
        for distance, sender in zip(gain.ours, senders, strict=True)
    )


def _positive(context: AttackedContext, prior: Matrix, rng: np.random.Generator, draws: int) -> _Gain:
    """Every client's exact counts, through the same attack."""
    clients = [client for client in context.clients if len(client)]
    true = np.stack([_histogram(client.labels, context.classes) for client in clients])
    messages = [
        Message(
            0, client.name, SERVER, {"N": MessageField(_counts(client, context), "class_counts", exact("labels"))}
        )
        for client in clients
    ]
    found = context.attack(view_of(messages, context))
    gain = _gain(np.asarray(found.artifacts["histograms"], np.float64), true, prior, rng, context, draws)
    return replace(gain, read=bool((gain.ours < _ROUNDING).any()))


def _counts(client: Records, context: AuditContext) -> Ints:
    return np.bincount(client.labels, minlength=context.classes).astype(np.int64)


def _fresh(context: AuditContext, size: int, rng: np.random.Generator) -> Matrix:
    labels = context.test.labels
    return _histogram(labels[rng.permutation(len(labels))[:size]], context.classes)


def _histogram(labels: Ints, classes: int) -> Matrix:
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    return np.asarray(counts / max(float(counts.sum()), 1.0))


def _metric(values: Matrix, rng: np.random.Generator, draws: int) -> Metric:
    if len(values) < 2:
        return Metric(value=float(values[0]), n=1)
    found = resampled(len(values), mean_of(values), rng, draws=draws)
    return Metric(value=found.value, low=found.low, high=found.high, n=len(values))


def _verdict(gain: _Gain, positive: _Gain, negative: _Gain, evidence: str) -> tuple[Verdict, str]:
    shown = (
        f"label histograms from {evidence}: total variation distance {gain.ours.mean():.3f} against "
        f"{gain.baseline.mean():.3f} for the public histogram, over {len(gain.ours)} sender(s)"
    )
    if negative.beats:
        return "inconclusive", f"the negative control was flagged (it gains {negative.value:.3f}); {shown}"
    if not positive.beats:
        return "inconclusive", (
            f"exact counts of these clients are no closer to their histograms than the public one (gain "
            f"{positive.value:.3f}): the clients are too alike to tell; {shown}"
        )
    if gain.beats:
        return "leak", shown
    if gain.interval is not None and gain.interval.high < 0:
        return "inconclusive", f"the estimates are worse than the public histogram; {shown}"
    return "no_leak_found", f"{shown}; with exact counts {positive.ours.mean():.3f}"
