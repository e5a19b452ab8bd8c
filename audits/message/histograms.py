"""Truth joined to estimated label histograms: how far from the true ones, against what anybody could guess?

A histogram that is read as it is, from what leaves without noise, is a leak of labels, however close to the public
one it is, unless the adjacency makes labels public. Estimates are tested: sign-flips of the distances saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.evidence import (
    WORSE,
    Arms,
    ControlResult,
    Figures,
    LeakTest,
    Result,
    Subject,
    by_arithmetic,
    by_p_value,
)
from fedassay.audits.message.controls import attacked, view_of
from fedassay.audits.message.dealt_anew import further_readings
from fedassay.audits.message.nonprivate import Reading, also_faintly_noised, read
from fedassay.audits.message.truth import truth_of
from fedassay.audits.nonprivate_releases import nonprivate_clients, summed_only
from fedassay.audits.simulation import control_seeds
from fedassay.audits.stats.below_baseline import below_baseline
from fedassay.audits.stats.detection import drawn_trials, smallest_shift
from fedassay.audits.stats.paired import sign_flip, smallest_pairs
from fedassay.audits.stats.permutation import PermutationTest
from fedassay.audits.stats.resampling import level_of
from fedassay.audits.stats.typed_intervals import Bounded, interval
from fedassay.audits.verdict import assay
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import AGGREGATE, SERVER, Message, MessageField
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Limit, Metric
from fedassay.support.adjacency import class_counts_public
from fedassay.support.errors import FedassayError, NotRunError, Why
from fedassay.support.types import Ints

Matrix = NDArray[np.float64]

CONTROL_CLIENTS = 12
"""Control clients of two classes each; an exact histogram needs one client, an estimated histogram all of them."""

_ROUNDING = 1e-9
_PER_CLASS = 2
_SHIFTS = np.linspace(0.05, 1.0, 20)
_SHIFT_DRAWS = 100
_OF_CLASSES = {"class_counts", "class_sums", "class_means", "labels", "second_moment"}


@dataclass(frozen=True)
class Gain:
    """Total variation distances of estimates and of the baseline, shape (S,).

    Attributes:
        ours: Of the estimates.
        baseline: Of the public histogram.
        closer: Sign-flip test of whether the estimates are closer.
        farther: Of whether they are farther off.
        read: Histograms that a message which is sent without noise gives as they are: no chance is left in that.
        tests: Number of tests in the run.
    """

    ours: Matrix
    baseline: Matrix
    closer: PermutationTest
    farther: PermutationTest
    read: int
    tests: int

    @property
    def test(self) -> LeakTest:
        """The test of whether the estimates are closer than the baseline."""
        return (
            by_arithmetic(True, "total_variation")
            if self.read
            else by_p_value(self.closer.p, self.tests, "total_variation")
        )

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control."""
        return ControlResult(
            release,
            detected=self.test.rejects,
            shown=f"{len(self.ours)} histograms at a total variation distance of {self.ours.mean():.3f}, the "
            f"public one at {self.baseline.mean():.3f}",
            value=float(self.ours.mean()),
            n=len(self.ours),
            detail="total variation distance",
            end_to_end=end_to_end,
            gain=float((self.baseline - self.ours).mean()),
        )


def histogram_finding(result: AttackResult, context: AttackedContext) -> Finding:
    """One finding on all senders' histograms.

    The baseline is the histogram of records that no client holds. Positive controls: control clients of two
    classes each, through the method's own run without privacy; and the same clients' counts, sent exactly.
    Negative control: the estimates held against the histograms of as many fresh records.

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
    names = [senders[index] for index in kept]
    owners = [truths[name] for name in names]
    rng = context.seeds.numpy("message", "histograms")
    exactly = [name not in _noised(context) for name in names]
    gain = _gain(estimates, owners, context, rng, read=exactly)
    runs = 1
    if not gain.read and not class_counts_public(context.privacy.adjacency):
        more, others, runs = _of_further_runs(len(names), context)
        if others:
            estimates, owners = np.concatenate([estimates, more]), [*owners, *others]
            exactly += [False] * len(others)
            gain = _gain(estimates, owners, context, rng, read=exactly)
    fresh = [_fresh(context, len(owner), rng) for owner in owners]
    negative = _gain(estimates, fresh, context, rng, read=[False] * len(owners))
    by_hand = _by_hand(context, rng).control("exact class counts of the same clients, by hand")
    evidence = ", ".join(sorted({str(result.artifacts["evidence"][index]) for index in kept}))
    figures = Figures(
        metrics={"total_variation": _metric(gain.ours)},
        baseline={"total_variation": _metric(gain.baseline)},
        assumptions=(
            "baseline: the label histogram of records that no client holds",
            "leak: a histogram that is read exactly from what leaves without noise; or closer than the "
            "baseline, by a sign-flip test of the distances saved, one-sided 95 %, corrected for "
            f"{context.num_tests} tests",
        ),
    )
    silent = negative.control("histograms of as many fresh (test) records, held against the same estimates")
    arms = Arms(_result(gain, negative, evidence, context, runs), _known(context), silent, (by_hand,))
    return assay(Subject("message", result.attack, "label_histograms", "all"), arms, figures)


def _of_further_runs(seen: int, context: AttackedContext) -> tuple[Matrix, list[Records], int]:
    """Estimates and owners of further runs where one has too few senders for the test, and the number of runs."""
    needed = smallest_pairs(level_of(context.num_tests))
    try:
        readings = further_readings(context, needed, seen) if seen < needed else []
    except FedassayError:
        readings = []  # of captured messages nobody has the method: the finding says how many senders would do
    return *_estimates(readings), 1 + len(readings)


def _result(gain: Gain, negative: Gain, evidence: str, context: AuditContext, runs: int) -> Result:
    adjacency, held = context.privacy.adjacency, len(gain.ours)
    public, needed = class_counts_public(adjacency), smallest_pairs(level_of(context.num_tests))
    few = Why(
        f"{held} estimated histogram(s) are too few for a test at the level of this run; {needed} senders would "
        "decide",
        "clients",
        held,
        needed,
    )
    exactly = f"; {gain.read} of them as they are, from what leaves without noise" if gain.read else ""
    of_runs = "" if runs == 1 else f" of {runs} runs, {runs - 1} of them on the same records dealt anew"
    return Result(
        test=by_arithmetic(False, "total_variation") if public else gain.test,
        shown=f"label histograms from {evidence}: total variation distance {gain.ours.mean():.3f} against "
        f"{gain.baseline.mean():.3f} for the public histogram, over {held} sender(s){of_runs}{exactly}",
        clear=f"labels are public under {adjacency}, so that no histogram is a leak" if public else "",
        harm=Harm(
            kind="attributes",
            of="client",
            count=gain.read or None,
            total=held,
            metric="total_variation",
            value=float(gain.ours.mean()),
            mechanism="label_histograms",
        ),
        below_baseline="the public histogram" if gain.farther.p <= WORSE and not gain.read else "",
        # Counts under noise are farther off than a guess; the control shows that the attack reads them.
        ruin_expected=bool(_noised(context)),
        undecided=few if held < needed and not public else "",
        limit=None if public else partial(_limit, negative, context),
        public=public,
    )


def _limit(negative: Gain, context: AuditContext) -> Limit | str:
    """The smallest distance that every estimate would have to save to be found."""
    size = len(negative.ours)
    rng = control_seeds(context, "message", "histogram limit").numpy()
    smallest = smallest_saving(negative.baseline - negative.ours, negative.tests, rng)
    if smallest is None:
        return f"not even histograms that are wholly known would be found among {size} senders; more would decide"
    return Limit(
        metric="total_variation",
        value=smallest,
        n=size,
        shift=smallest,
        shift_metric="total_variation",
        words=f"estimates closer than the public histogram by {smallest:.2g} in total variation, for each of "
        f"{size} senders, would have been found",
        of="client",
        planted="label_histogram",
    )


def smallest_saving(saved: Matrix, tests: int, rng: np.random.Generator) -> float | None:
    """The smallest distance which, saved by every sender, is found with probability .95; None where none is.

    Args:
        saved: Distances that estimates save where nothing is known, shape (S,).
        tests: Number of tests in the run.
        rng: Source of the runs.
    """
    size = len(saved)

    def finds(shift: float, run: np.random.Generator) -> bool:
        gains = np.minimum(saved[drawn_trials(size, size, run)] + shift, 1.0)
        return sign_flip(gains, run, tests=tests).p <= level_of(tests)

    return smallest_shift(_SHIFTS, finds, rng, draws=_SHIFT_DRAWS)


def _gain(
    estimates: Matrix,
    owners: Sequence[Records | Matrix],
    context: AuditContext,
    rng: np.random.Generator,
    *,
    read: Sequence[bool],
) -> Gain:
    """Distances of estimates from the histograms of these owners, or from histograms as they are."""
    true = np.stack(
        [_histogram(own.labels, context.classes) if isinstance(own, Records) else own for own in owners]
    )
    prior = _histogram(context.fresh.labels, context.classes)
    ours, baseline = np.abs(estimates - true).sum(axis=1) / 2, np.abs(prior - true).sum(axis=1) / 2
    exactly = int((np.array(read, np.bool_) & (ours < _ROUNDING)).sum())
    return Gain(
        ours,
        baseline,
        sign_flip(baseline - ours, rng, tests=context.num_tests),
        below_baseline(-ours, -baseline, rng),
        exactly,
        context.num_tests,
    )


def _noised(context: AuditContext) -> set[str]:
    """Senders of whom something that tells classes is not sent as it is; a sum of what is noised is noised."""
    sent = (*context.view.from_clients(), *context.outcome.transcript.from_clients())
    found = {
        message.sender
        for message in sent
        for item in message.fields.values()
        if item.kind in _OF_CLASSES and item.release.mechanism not in ("exact", "derived")
    }
    return {*found, *([AGGREGATE] if found else [])}


def _known(context: AttackedContext) -> tuple[ControlResult, ...] | str:
    """Control clients of two classes each, through the method's own run; or why there are none."""
    rng = control_seeds(context, "message", "histograms").numpy()
    clients = _control_clients(context, rng)
    if not clients:
        words = (
            f"the control role has {len(context.control)} records; {2 * _PER_CLASS} of two classes are needed for "
            "a client with a known histogram: give data.split.control more"
        )
        return Why(words, "control", len(context.control), 2 * _PER_CLASS * context.classes)
    group = clients[:2] if summed_only(context.view) else clients
    try:
        readings = [read(exposure, context) for exposure in nonprivate_clients(context, group, "histograms")]
    except NotRunError as error:
        return error.why
    release = "the method's own messages without privacy, of control clients of two classes each"
    controls = []
    for reading in also_faintly_noised(readings, context):
        estimates, owners = _estimates([reading])
        if not owners:
            return (ControlResult(release, False, "no histogram came back", end_to_end=True),)
        # Under faint noise what is read is as good as exact.
        gain = _gain(np.round(estimates, 3), owners, context, rng, read=[True] * len(owners))
        controls.append(gain.control(release, end_to_end=True))
    return (min(controls, key=lambda control: (control.detected, -(control.value or 0.0))),)


def _estimates(readings: Sequence[Reading]) -> tuple[Matrix, list[Records]]:
    """Estimated histograms of known clients, and these; the sum over all only where nobody else is seen."""
    rows, owners = [], []
    for reading in readings:
        senders = [str(name) for name in reading.result.artifacts.get("senders", ())]
        single = [sender for sender in senders if sender != AGGREGATE] or senders
        for row, sender in enumerate(senders):
            held = reading.truth(sender)
            if sender in single and held is not None and len(held):
                rows.append(np.asarray(reading.result.artifacts["histograms"][row], np.float64))
                owners.append(held)
    return np.array(rows), owners


def _control_clients(context: AuditContext, rng: np.random.Generator) -> list[Records]:
    """Clients of two classes each, the classes dealt in turn; they share no record."""
    control = context.control
    pools = [rng.permutation(np.flatnonzero(control.labels == label)) for label in np.unique(control.labels)]
    clients: list[Records] = []
    for number in range(CONTROL_CLIENTS):
        ready = sorted(
            (pool for pool in range(len(pools)) if len(pools[pool]) >= _PER_CLASS), key=lambda i: -len(pools[i])
        )
        if len(ready) < 2:
            break
        rows = []
        for index in ready[:2]:
            rows.append(pools[index][:_PER_CLASS])
            pools[index] = pools[index][_PER_CLASS:]
        clients.append(control.take(np.concatenate(rows), f"client/{number}"))
    return clients


def _by_hand(context: AttackedContext, rng: np.random.Generator) -> Gain:
    """Every client's exact counts, through the same attack."""
    clients = [client for client in context.clients if len(client)]
    messages = [
        Message(
            0, client.name, SERVER, {"N": MessageField(_counts(client, context), "class_counts", exact("labels"))}
        )
        for client in clients
    ]
    again = attacked(context, view_of(messages, context))
    estimates = np.asarray(again.artifacts["histograms"], np.float64)
    return _gain(estimates, clients, context, rng, read=[True] * len(clients))


def _counts(client: Records, context: AuditContext) -> Ints:
    return np.bincount(client.labels, minlength=context.classes).astype(np.int64)


def _fresh(context: AuditContext, size: int, rng: np.random.Generator) -> Matrix:
    labels = context.test.labels
    return _histogram(labels[rng.permutation(len(labels))[:size]], context.classes)


def _histogram(labels: Ints, classes: int) -> Matrix:
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    return np.asarray(counts / max(float(counts.sum()), 1.0))


def _metric(values: Matrix) -> Metric:
    mean = interval(values.clip(0, 1), Bounded(0.0, 1.0))
    return Metric(value=mean.value, low=mean.low, high=mean.high, n=mean.n)
