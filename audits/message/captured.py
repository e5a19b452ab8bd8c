"""What message attacks say of messages whose records nobody gave: a transcript captured from a running system.

Without the true records no vector can be matched, so a verdict rests on what can be known without them: an
identity of arithmetic (the sum over one record is that record), or the agreement of independent runs of a
factorization that has one solution only. The controls are complete: the same attacks on messages made of records
at hand, which are the plan's own where there is a plan and synthetic rectified features otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.audits.evidence import Control, Figures, Result, Subject, by_arithmetic
from fedassay.audits.message.controls import SENDER, algebra_view, attacked, noised_view, sums_view, view_of
from fedassay.audits.message.exposed import by_hand
from fedassay.audits.message.kinds import has_expected_errors, says_counts, says_remarks
from fedassay.audits.message.rules import FAULTS, NUMBERS, rule_finding
from fedassay.audits.message.truth import EXACT, NEAR, Matrix, match, nothing, plain
from fedassay.audits.verdict import conclude
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.release import exact
from fedassay.exchange.statistics import noise_of
from fedassay.exchange.transcript import AGGREGATE, SERVER, Message, MessageField
from fedassay.exchange.view import View
from fedassay.records.record import Finding, Limit, Metric, unmeasured

_CERTAIN = {"labels", "sent", "second_moment", "constant_feature"}
"""Evidence on label histograms that is the histogram itself, where no noise is declared on it."""

_NO_RECORDS = "the clients' records were not given, so nothing was matched with them"


def captured_findings(result: AttackResult, context: AttackedContext, controls: Records) -> list[Finding]:
    """Findings on what one of the attacks on messages computed.

    Args:
        result: Vectors, remarks or label histograms.
        context: Without clients; its `attack` runs the same attack on the controls.
        controls: A few records with features of the messages' width, none of them a client's.
    """
    findings = [_histograms(result, context, controls)] if says_counts(result) else []
    if has_expected_errors(result):
        return [*findings, _factors(result, context, controls)]
    if not says_remarks(result):
        return [*findings, *(_arithmetic(part, result.attack, context, controls) for part in result.vectors)]
    parts = {part.name: part for part in (*result.vectors, *_raw(context.view, context))}
    for name in (str(rule) for rule in result.artifacts["applicable"]):
        if name in NUMBERS or name in FAULTS:
            readings = (by_hand(context, controls, plain, name),)
            findings.append(rule_finding(name, result, context, readings))
        else:
            part = parts.get(name, nothing(name))
            findings.append(_arithmetic(part, result.attack, context, controls, rules=True))
    return findings


def _raw(view: View, context: AuditContext) -> tuple[VectorSource, ...]:
    """Features that are sent as they are."""
    parts = sources(view, context.seeds.numpy("message", "sources"))
    return tuple(part for part in parts if part.name == "raw")


def _arithmetic(
    source: VectorSource, attack: str, context: AttackedContext, controls: Records, *, rules: bool = False
) -> Finding:
    """Vectors that are records' features by an identity, or would be but for noise or soft assignments.

    Only of vectors that the rules of arithmetic read (`rules`) is it known whether they are.
    """
    size = len(source.vectors)
    certain = int(_certain(source, context).sum()) if rules else 0
    error, caught = _recovers(source.name, context, controls)
    empty = attacked(context, noised_view(controls, context, plain))
    flagged = any(part.name == source.name and len(part.vectors) for part in empty.vectors)
    senders = len(set(source.senders))
    return _concluded(
        Subject("message", attack, source.name, "all"),
        Result(
            test=by_arithmetic(certain > 0),
            shown=f"{certain} vectors from {senders} sender(s) are single records' features as they are "
            f"({source.name})",
            near_copies=certain,
            undecided=f"{size} vectors may be single records' features; {_NO_RECORDS}" if size else "",
            limit=lambda: _one_message(context, source.name),
        ),
        {"vectors_certain": Metric(value=float(certain), n=size), "relative_error": unmeasured(_NO_RECORDS)},
        "exact means that the messages declare no noise on what the vectors were computed from",
        positive=_recovery("messages of the same form, made of records that are known", error, caught),
        negative=Control(
            "their sums under noise ten times as large",
            detected=flagged,
            shown="vectors come out of noise",
            detail="no vector comes out",
        ),
    )


def _one_message(context: AuditContext, rule: str) -> Limit:
    """Arithmetic on one message misses nothing by chance: a single record would have been found."""
    messages = len(context.view.from_clients())
    return Limit(
        metric="records", value=1.0, n=max(1, messages), words=f"one record would have been found ({rule})"
    )


def _recovery(release: str, error: float | None, caught: bool, n: int | None = None) -> Control:
    """A release of known records as a control, by the median relative error at which they came back."""
    shown = "no known record came back" if error is None else f"known records came back at an error of {error:.2g}"
    return Control(release, caught, shown, error, n, "median relative error")


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
        parts = _raw(view_of([Message(0, SENDER, SERVER, fields)], context), context)
    else:
        parts = attacked(context, algebra_view(controls, context, plain)).vectors
    vectors = [part.vectors for part in parts if part.name == name]
    # These controls put one record into each class.
    size = len(controls) if name == "raw" else min(len(controls), context.classes)
    return _error(np.concatenate(vectors) if vectors else np.zeros((0, 1)), controls, size)


def _error(vectors: Matrix, controls: Records, size: int) -> tuple[float | None, bool]:
    """Median relative error of vectors matched to known records, and whether most of `size` came back."""
    if not len(vectors):
        return None, False
    features = plain(controls)
    truth = [(np.arange(len(vectors)), features, controls.labels)]
    matched = match(vectors.astype(np.float64), np.full(len(vectors), -1), truth, features.mean(axis=0)[None])
    median = float(np.median(matched.errors))
    return median, 2 * len(matched.errors) >= size and median < NEAR


def _factors(result: AttackResult, context: AttackedContext, controls: Records) -> Finding:
    """Vectors of a factorization, trusted as far as independent runs of it agree."""
    expected = np.asarray(result.scores["expected_error"], np.float64)
    records = float(np.nansum(result.scores["records"]))
    sure = int((expected < EXACT).sum())
    again = attacked(context, sums_view(controls, context, plain))
    median, caught = _error(np.asarray(again.artifacts.get("vectors", np.zeros((0, 1)))), controls, len(controls))
    # Four features without a zero have any number of factorizations (two with a known sum have one only): runs
    # must not agree on one.
    dense = Records(controls.name, controls.images, controls.labels, lambda _: _filled(controls))
    wrong = np.asarray(
        attacked(context, sums_view(dense, context, plain)).scores.get("expected_error", ()), np.float64
    )
    shown = f"{sure} of {records:.0f} records' features follow from second moments"
    if sure:
        shown += f": independent runs agree to a relative error of {np.median(expected):.2g}"
    limits = [str(reason) for reason in result.artifacts["reasons"] if str(reason)]
    if limits and not sure:
        shown += f"; not tried: {limits[0]}"
    undecided = f"{len(expected)} vectors agree less closely, and {_NO_RECORDS}" if len(expected) else ""
    if not undecided and any("max_records" in reason for reason in limits):
        undecided = "not tried on all messages"
    return _concluded(
        Subject("message", result.attack, result.attack, "all"),
        Result(test=by_arithmetic(sure > 0), shown=shown, undecided=undecided),
        {"expected_error": _expected(expected), "relative_error": unmeasured(_NO_RECORDS)},
        "features are not negative and hold zeros, as after a rectifier",
        f"a record counts as recovered where independent runs agree to a relative error below {EXACT:g}",
        positive=_recovery(
            f"exact sums and second moment of {len(controls)} records that are known, in float64",
            median,
            caught,
            len(controls),
        ),
        negative=Control(
            "the same of features without any zero, which no factorization can tell apart",
            detected=bool((wrong < EXACT).any()),
            shown="runs agree on what is wrong",
            value=float(np.median(wrong)) if len(wrong) else None,
            n=len(wrong),
            detail="median expected error",
        ),
    )


def _expected(errors: Matrix) -> Metric:
    return Metric(
        value=float(np.median(errors)) if len(errors) else None,
        n=len(errors),
        reason="from the agreement of runs, without truth" if len(errors) else "no vector came out",
    )


def _filled(records: Records) -> Matrix:
    features = plain(records)
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
    certain = [
        sender
        for sender, why in zip(senders, evidence, strict=True)
        if why in _CERTAIN and not (why in {"labels", "sent"} and sender in noisy)
    ]
    single = [sender for sender in certain if sender != AGGREGATE]
    whose = f"{len(single)} client(s)" if single else "all clients together"
    positive, negative = _histogram_controls(context, controls)
    return _concluded(
        Subject("message", result.attack, "label_histograms", "all"),
        Result(
            test=by_arithmetic(bool(certain)),
            shown=f"the label histogram of {whose} follows exactly from what is sent ({_listed(evidence)})"
            if certain
            else f"label histograms were estimated ({_listed(evidence)})",
            undecided=f"label histograms could only be estimated, and {_NO_RECORDS}",
        ),
        {
            "senders_told": Metric(value=float(len(certain)), n=len(senders)),
            "total_variation": unmeasured(_NO_RECORDS),
        },
        "counts without declared noise are the true ones",
        positive=positive,
        negative=negative,
    )


def _histogram_controls(context: AttackedContext, controls: Records) -> tuple[Control, Control]:
    """Exact counts, from which the histogram must follow, and sums under much noise, from which none may."""
    counts = np.bincount(controls.labels, minlength=context.classes)
    fields = {"counts": MessageField(counts, "class_counts", exact("labels"))}
    known = attacked(context, view_of([Message(0, SENDER, SERVER, fields)], context)).artifacts.get("histograms")
    distance = None if known is None else float(np.abs(known[0] - counts / counts.sum()).sum() / 2)
    unclear = attacked(context, noised_view(controls, context, plain)).artifacts.get(
        "evidence", np.zeros(0, np.str_)
    )
    return (
        Control(
            "exact class counts of records that are known",
            detected=distance is not None and distance <= EXACT,
            shown="no histogram came back" if distance is None else f"total variation distance {distance:.2g}",
            value=distance,
            detail="total variation distance",
        ),
        Control(
            "their sums under noise ten times as large",
            detected=any(str(why) in _CERTAIN for why in unclear),
            shown="counts follow from noise",
            detail="no count follows",
        ),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(name.replace("_", " ") for name in names))


def _concluded(
    subject: Subject,
    result: Result,
    metrics: dict[str, Metric],
    *assumptions: str,
    positive: Control,
    negative: Control,
) -> Finding:
    figures = Figures(metrics, assumptions=(_NO_RECORDS, *assumptions))
    return conclude(subject, result, figures, positive=positive, negative=negative)
