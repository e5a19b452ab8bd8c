"""What message attacks say of messages whose records nobody gave: a transcript captured from a running system.

Without the true records no vector can be matched, so a verdict rests on what can be known without them: an
identity of arithmetic (the sum over one record is that record), or the agreement of independent runs of a
factorization that has one solution only. The controls are complete: the same attacks on messages made of records
at hand, which are the plan's own where there is a plan and synthetic rectified features otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedassay.audits.message.controls import SENDER, algebra_view, attacked, noised_view, sums_view, view_of
from fedassay.audits.message.structure import structure_finding
from fedassay.audits.message.truth import EXACT, NEAR, Matrix, match
from fedassay.contracts.audit import AttackedContext, AttackResult, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.release import exact
from fedassay.exchange.statistics import noise_of
from fedassay.exchange.transcript import AGGREGATE, SERVER, Message, MessageField
from fedassay.records.record import (
    Controls,
    Finding,
    Metric,
    NegativeControl,
    PositiveControl,
    Verdict,
    unmeasured,
)

_CERTAIN = {"labels", "sent", "second_moment", "constant_feature"}
"""Evidence on label histograms that is the histogram itself, where no noise is declared on it."""

_NO_RECORDS = "the clients' records were not given, so nothing was matched with them"


def captured_findings(result: AttackResult, context: AttackedContext, controls: Records) -> list[Finding]:
    """Findings on what one of the attacks on messages computed.

    Args:
        result: Of `message_algebra`, `gram_factorization` or `label_distribution`.
        context: Without clients; its `attack` runs the same attack on the controls.
        controls: A few records with features of the messages' width, none of them a client's.
    """
    if result.attack == "label_distribution":
        return [_histograms(result, context, controls)]
    if result.attack == "gram_factorization":
        return [_factors(result, context, controls)]
    known = replace(context, clients=(controls,))
    found = [_arithmetic(part, context, controls) for part in (*result.vectors, *_raw(context.view))]
    return [*found, structure_finding(result, context, controls=known)]


def _encode(records: Records) -> Matrix:
    return np.asarray(records.features, np.float64)


def _raw(view: object) -> tuple[VectorSource, ...]:
    found = sources(view, np.random.default_rng(0))  # type: ignore[arg-type]
    return tuple(part for part in found if part.name == "raw")


def _arithmetic(source: VectorSource, context: AttackedContext, controls: Records) -> Finding:
    """Vectors that are records' features by an identity, or would be but for noise or soft assignments."""
    size = len(source.vectors)
    certain = int(_certain(source, context).sum())
    positive, caught = _recovers(source.name, context, controls)
    empty = attacked(context, noised_view(controls, context, _encode))
    flagged = any(part.name == source.name and len(part.vectors) for part in empty.vectors)
    senders = len(set(source.senders))
    shown = f"{certain} vectors from {senders} sender(s) are single records' features as they are ({source.name})"
    verdict: Verdict = "leak"
    if flagged:
        verdict, shown = "inconclusive", f"the negative control was flagged; {shown}"
    elif not caught:
        verdict, shown = "inconclusive", f"the attack does not recover records that are known; {shown}"
    elif not certain:
        verdict = "inconclusive"
        shown = f"{size} vectors may be single records' features ({source.name}); {_NO_RECORDS}"
    return _finding(
        "message_algebra",
        source.name,
        {"vectors_certain": Metric(value=float(certain), n=size), "relative_error": unmeasured(_NO_RECORDS)},
        Controls(
            positive=PositiveControl(
                release="messages of the same form, made of records that are known",
                caught=caught,
                value=positive,
                detail="median relative error",
            ),
            negative=NegativeControl(
                release="their sums under noise ten times as large", flagged=flagged, detail="no vector comes out"
            ),
        ),
        verdict,
        shown,
        ("exact means that the messages declare no noise on what the vectors were computed from",),
    )


def _certain(source: VectorSource, context: AuditContext) -> np.ndarray:
    """Which vectors are a record's feature by arithmetic alone: no declared noise, and a class of one record."""
    if source.name == "raw":
        kinds = {"features"}
    else:
        kinds = {"class_sums", "class_means", "class_counts", "mixture_means"}
    noisy: set[str] = set()
    alone: set[tuple[str, int]] = set()
    for message in context.view.from_clients():
        if any(item.kind in kinds and item.release.mechanism != "exact" for item in message.fields.values()):
            noisy.add(message.sender)
        counts, ids = message.of_kind("class_counts"), message.of_kind("class_ids")
        if counts is not None:
            order = np.arange(len(counts)) if ids is None else ids
            alone |= {(message.sender, int(label)) for label in order[np.asarray(counts) == 1]}
    return np.array(
        [
            sender not in noisy and (source.name != "collapsed_components" or (sender, int(label)) in alone)
            for sender, label in zip(source.senders, source.labels, strict=True)
        ],
        bool,
    )


def _recovers(name: str, context: AttackedContext, controls: Records) -> tuple[float | None, bool]:
    """Median relative error of the same attack on records that are known, and whether that is recovery."""
    if name == "raw":
        fields = {"features": MessageField(controls.features, "features", exact())}
        parts = _raw(view_of([Message(0, SENDER, SERVER, fields)], context))
    else:
        parts = attacked(context, algebra_view(controls, context, _encode)).vectors
    vectors = [part.vectors for part in parts if part.name == name]
    # These controls put one record into each class.
    size = len(controls) if name == "raw" else min(len(controls), context.classes)
    return _error(np.concatenate(vectors) if vectors else np.zeros((0, 1)), controls, size)


def _error(vectors: Matrix, controls: Records, size: int) -> tuple[float | None, bool]:
    """Median relative error of vectors matched to known records, and whether most of `size` came back."""
    if not len(vectors):
        return None, False
    features = _encode(controls)
    truth = [(np.arange(len(vectors)), features, controls.labels)]
    found = match(vectors.astype(np.float64), np.full(len(vectors), -1), truth, features.mean(axis=0)[None])
    median = float(np.median(found.errors))
    return median, 2 * len(found.errors) >= size and median < NEAR


def _factors(result: AttackResult, context: AttackedContext, controls: Records) -> Finding:
    """Vectors of a factorization, trusted as far as independent runs of it agree."""
    expected = np.asarray(result.scores["expected_error"], np.float64)
    records = float(np.nansum(result.scores["records"]))
    sure = int((expected < EXACT).sum())
    again = attacked(context, sums_view(controls, context, _encode))
    median, caught = _error(np.asarray(again.artifacts.get("vectors", np.zeros((0, 1)))), controls, len(controls))
    # Four features without a zero have any number of factorizations (two with a known sum have one only): runs
    # must not agree on one.
    dense = Records(controls.name, controls.images, controls.labels, lambda _: _filled(controls))
    wrong = np.asarray(
        attacked(context, sums_view(dense, context, _encode)).scores.get("expected_error", ()), np.float64
    )
    flagged = bool((wrong < EXACT).any())
    tried = f"{sure} of {records:.0f} records' features follow from second moments"
    shown = f"{tried}: independent runs agree to a relative error of {np.median(expected):.2g}" if sure else tried
    limits = [str(reason) for reason in result.artifacts["reasons"] if str(reason)]
    verdict: Verdict = "leak" if sure else "no_leak_found"
    if flagged:
        verdict, shown = "inconclusive", f"the negative control was flagged: runs agree on what is wrong; {shown}"
    elif not caught:
        verdict, shown = "inconclusive", f"the attack does not recover records that are known; {shown}"
    elif not sure and (len(expected) or any("max_records" in reason for reason in limits)):
        verdict = "inconclusive"
        shown += f"; {len(expected)} vectors agree less closely, and {_NO_RECORDS}" if len(expected) else ""
    if limits and not sure:
        shown += f"; not tried: {limits[0]}"
    return _finding(
        result.attack,
        result.attack,
        {
            "expected_error": Metric(
                value=float(np.median(expected)) if len(expected) else None,
                n=len(expected),
                reason="from the agreement of runs, without truth" if len(expected) else "no vector came out",
            ),
            "relative_error": unmeasured(_NO_RECORDS),
        },
        Controls(
            positive=PositiveControl(
                release=f"exact sums and second moment of {len(controls)} records that are known, in float64",
                caught=caught,
                value=median,
                n=len(controls),
                detail="median relative error",
            ),
            negative=NegativeControl(
                release="the same of features without any zero, which no factorization can tell apart",
                flagged=flagged,
                value=float(np.median(wrong)) if len(wrong) else None,
                n=len(wrong),
                detail="median expected error",
            ),
        ),
        verdict,
        shown,
        (
            "features are not negative and hold zeros, as after a rectifier",
            f"a record counts as recovered where independent runs agree to a relative error below {EXACT:g}",
        ),
    )


def _filled(records: Records) -> Matrix:
    features = _encode(records)
    return np.asarray(features + max(float(features.max(initial=0.0)), 1.0))


def _histograms(result: AttackResult, context: AttackedContext, controls: Records) -> Finding:
    """Label histograms that a message holds or that follow exactly from it."""
    senders = [str(name) for name in result.artifacts["senders"]]
    evidence = [str(name) for name in result.artifacts["evidence"]]
    noisy = {
        message.sender
        for message in context.view.from_clients()
        for item in message.fields.values()
        if item.kind in {"class_counts", "labels"} and (noise_of(item) > 0 or item.release.mechanism != "exact")
    }
    told = [
        sender
        for sender, why in zip(senders, evidence, strict=True)
        if why in _CERTAIN and not (why in {"labels", "sent"} and sender in noisy)
    ]
    single = [sender for sender in told if sender != AGGREGATE]
    counts = np.bincount(controls.labels, minlength=context.classes)
    fields = {"counts": MessageField(counts, "class_counts", exact("labels"))}
    found = attacked(context, view_of([Message(0, SENDER, SERVER, fields)], context)).artifacts.get("histograms")
    distance = None if found is None else float(np.abs(found[0] - counts / counts.sum()).sum() / 2)
    unclear = attacked(context, noised_view(controls, context, _encode)).artifacts.get(
        "evidence", np.zeros(0, np.str_)
    )
    flagged = any(str(why) in _CERTAIN for why in unclear)
    whose = f"{len(single)} client(s)" if single else "all clients together"
    shown = f"the label histogram of {whose} follows exactly from what is sent ({_listed(evidence)})"
    verdict: Verdict = "leak"
    if flagged or distance is None or distance > EXACT:
        verdict, shown = "inconclusive", f"a control failed; {shown}"
    elif not told:
        verdict = "inconclusive"
        shown = f"label histograms could only be estimated ({_listed(evidence)}), and {_NO_RECORDS}"
    return _finding(
        result.attack,
        "label_histograms",
        {
            "senders_told": Metric(value=float(len(told)), n=len(senders)),
            "total_variation": unmeasured(_NO_RECORDS),
        },
        Controls(
            positive=PositiveControl(
                release="exact class counts of records that are known",
                caught=distance is not None and distance <= EXACT,
                value=distance,
                detail="total variation distance",
            ),
            negative=NegativeControl(
                release="their sums under noise ten times as large", flagged=flagged, detail="no count follows"
            ),
        ),
        verdict,
        shown,
        ("counts without declared noise are the true ones",),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(name.replace("_", " ") for name in names))


def _finding(
    attack: str,
    source: str,
    metrics: dict[str, Metric],
    controls: Controls,
    verdict: Verdict,
    reason: str,
    assumptions: tuple[str, ...],
) -> Finding:
    return Finding(
        audit="message",
        attack=attack,
        source=source,
        selection="all",
        metrics=metrics,
        controls=controls,
        verdict=verdict,
        reason=reason,
        assumptions=(_NO_RECORDS, *assumptions),
    )
