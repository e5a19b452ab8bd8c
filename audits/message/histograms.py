"""Truth joined to estimated label histograms: how far from the true ones, against what anybody could guess?

A histogram that is read as it is, from what leaves without noise, is a leak of labels, however close to the public
one it is, unless the adjacency makes labels public. Estimates are tested: sign-flips of the distances saved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from fedassay.audits.evidence import (
    WORSE,
    Arms,
    ControlResult,
    Figures,
    Result,
    Subject,
    by_arithmetic,
)
from fedassay.audits.message.controls import attacked, view_of
from fedassay.audits.message.dealt_anew import further_readings
from fedassay.audits.message.histogram_gain import Gain, gain_of, smallest_saving
from fedassay.audits.message.nonprivate import OWN_MESSAGES, Reading, also_faintly_noised, read
from fedassay.audits.message.truth import truth_of
from fedassay.audits.nonprivate_releases import nonprivate_clients, summed_only
from fedassay.audits.simulation import control_seeds
from fedassay.audits.stats.paired import smallest_pairs
from fedassay.audits.stats.resampling import ALONE, level_of
from fedassay.audits.stats.typed_intervals import mean_within
from fedassay.audits.verdict import assay
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim, exact
from fedassay.exchange.transcript import AGGREGATE, SERVER, Message, MessageField
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Limit
from fedassay.support.adjacency import class_counts_public
from fedassay.support.errors import FedassayError, NotRunError, Why
from fedassay.support.types import Ints, Matrix

CONTROL_CLIENTS = 12
"""Control clients of two classes each; an exact histogram needs one client, an estimated histogram all of them."""

_PER_CLASS = 2
_OF_CLASSES = {"class_counts", "class_sums", "class_means", "labels", "second_moment"}


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
    labels = [truths[name].labels for name in names]
    rng = context.seeds.numpy("message", "histograms")
    exactly = [name not in _noised(context) for name in names]
    runs, claimed = 1, _claimed(context)
    gain = gain_of(estimates, labels, context, rng, read=exactly, epsilon=claimed)
    if not gain.read and not class_counts_public(context.privacy.adjacency):
        more, others, runs = _of_further_runs(len(names), context)
        if others:
            estimates, labels = np.concatenate([estimates, more]), [*labels, *(own.labels for own in others)]
            exactly += [False] * len(others)
            gain = gain_of(estimates, labels, context, rng, read=exactly, epsilon=claimed)
    fresh = [_fresh(context, len(owner), rng) for owner in labels]
    negative = gain_of(estimates, fresh, context, rng, read=[False] * len(labels), epsilon=claimed)
    by_hand = _by_hand(context, rng).control("exact class counts of the same clients, by hand")
    evidence = ", ".join(sorted({str(result.artifacts["evidence"][index]) for index in kept}))
    figures = Figures(
        metrics={"total_variation": mean_within(gain.ours, 0.0, 1.0).metric()},
        baseline={"total_variation": mean_within(gain.baseline, 0.0, 1.0).metric()},
        assumptions=(
            "baseline: the label histogram of records that no client holds",
            "leak: a histogram that is read exactly from what leaves without noise; or closer than the "
            "baseline, and under a claim closer than counts with geometric noise of its epsilon, by a sign-flip "
            "test of the distances saved, one-sided 95 %, corrected for "
            f"{context.num_tests} tests",
        ),
    )
    silent = negative.control("histograms of as many fresh (test) records, held against the same estimates")
    arms = Arms(_result(gain, negative, evidence, context, runs), _known(context), silent, (by_hand,))
    return assay(Subject("message", result.attack, "label_histograms", "all"), arms, figures)


def _claimed(context: AuditContext) -> float | None:
    """The epsilon that is claimed; None where there is no claim, or an infinite one."""
    claim = context.outcome.transcript.claim
    return claim.epsilon if isinstance(claim, PrivacyClaim) and math.isfinite(claim.epsilon) else None


def _of_further_runs(seen: int, context: AttackedContext) -> tuple[Matrix, list[Records], int]:
    """Estimates and owners of further runs where one has too few senders for the test, and the number of runs."""
    needed = smallest_pairs(level_of(context.num_tests))
    try:
        readings = further_readings(context, needed, seen) if seen < needed else []
    except FedassayError:
        readings = []  # captured messages come without the method: the finding says how many senders would do
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
    clear = f"labels are public under {adjacency}, so that no histogram is a leak" if public else ""
    if gain.allowed is not None and not public:
        exactly += f", and {gain.allowed.mean():.3f} is what the claim allows"
        clear = "labels are told no better than the claim allows" if gain.within_claim else ""
    return Result(
        test=by_arithmetic(False, "total_variation") if public else gain.test,
        shown=f"label histograms from {evidence}: total variation distance {gain.ours.mean():.3f} against "
        f"{gain.baseline.mean():.3f} for the public histogram, over {held} sender(s){of_runs}{exactly}",
        clear=clear,
        harm=Harm(
            kind="attributes",
            of="sum" if summed_only(context.view) else "client",
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
        limit=None if public else partial(_limit, gain, negative, context),
        public=public,
    )


def _limit(gain: Gain, negative: Gain, context: AuditContext) -> Limit | str:
    """The smallest distance that every estimate would have to save to be found."""
    size = len(negative.ours)
    rng = control_seeds(context, "message", "histogram limit").numpy()
    nothing = negative.baseline - negative.ours
    if gain.allowed is not None and gain.within_claim:
        # The estimates are held against the claim's allowance: two draws of that differ by chance alone.
        nothing = gain.allowed - rng.permutation(gain.allowed)
    smallest = smallest_saving(nothing, negative.tests, rng)
    if smallest is None:
        return f"not even histograms that are wholly known would be found among {size} senders; more would decide"
    against = "the claim allows" if gain.within_claim else "the public histogram"
    return Limit(
        metric="total_variation",
        value=smallest,
        n=size,
        shift=smallest,
        shift_metric="total_variation",
        words=f"estimates closer than {against} by {smallest:.2g} in total variation, for each of "
        f"{size} senders, would have been found",
        of="client",
        planted="label_histogram",
    )


def _noised(context: AuditContext) -> set[str]:
    """Senders with noise on some field that reveals classes; a sum of noised fields is noised."""
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
            f"the control role has {len(context.data.control)} records; {2 * _PER_CLASS} of two classes are "
            "needed for a client with a known histogram: give data.split.control more"
        )
        return Why(words, "control", len(context.data.control), 2 * _PER_CLASS * context.data.classes)
    # A sum is one histogram a run: as many runs as one test by itself takes.
    group = clients[: smallest_pairs(ALONE)] if summed_only(context.view) else clients
    try:
        readings = [read(exposure, context) for exposure in nonprivate_clients(context, group, "histograms")]
    except NotRunError as error:
        return error.why
    release = f"{OWN_MESSAGES} control clients of two classes each"
    controls = []
    both = also_faintly_noised(readings, context)
    for start in range(0, len(both), len(readings)):
        estimates, owners = _estimates(both[start : start + len(readings)])
        if not owners:
            return (ControlResult(release, False, "no histogram came back", end_to_end=True),)
        # Under faint noise what is read is as good as exact.
        labels = [own.labels for own in owners]
        gain = gain_of(np.round(estimates, 3), labels, context, rng, read=[True] * len(owners))
        controls.append(gain.control(release, end_to_end=True))
    return (min(controls, key=lambda control: (control.detected, -(control.value or 0.0))),)


def _estimates(readings: Sequence[Reading]) -> tuple[Matrix, list[Records]]:
    """Estimated histograms of known clients, and these; the sum over all only where no single client is seen."""
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
    control = context.data.control
    pools = [rng.permutation(np.flatnonzero(control.labels == label)) for label in np.unique(control.labels)]
    # Of two classes alike a client's histogram is the public one, which is no known leak.
    sizes = (2 * _PER_CLASS, 1) if len(pools) == 2 else (_PER_CLASS, _PER_CLASS)
    clients: list[Records] = []
    for number in range(CONTROL_CLIENTS):
        ready = sorted(
            (pool for pool in range(len(pools)) if len(pools[pool]) >= max(sizes)), key=lambda i: -len(pools[i])
        )
        if len(ready) < 2:
            break
        rows = []
        for index, size in zip(ready[:2], sizes, strict=True):
            rows.append(pools[index][:size])
            pools[index] = pools[index][size:]
        clients.append(control.take(np.concatenate(rows), f"client/{number}"))
    return clients


def _by_hand(context: AttackedContext, rng: np.random.Generator) -> Gain:
    """Every client's exact counts, through the same attack."""
    clients = [client for client in context.data.clients if len(client)]
    messages = [
        Message(
            0, client.name, SERVER, {"N": MessageField(_counts(client, context), "class_counts", exact("labels"))}
        )
        for client in clients
    ]
    again = attacked(context, view_of(messages, context))
    estimates = np.asarray(again.artifacts["histograms"], np.float64)
    return gain_of(estimates, [own.labels for own in clients], context, rng, read=[True] * len(clients))


def _counts(client: Records, context: AuditContext) -> Ints:
    return np.bincount(client.labels, minlength=context.data.classes).astype(np.int64)


def _fresh(context: AuditContext, size: int, rng: np.random.Generator) -> Ints:
    labels = context.data.test.labels
    return labels[rng.permutation(len(labels))[:size]]
