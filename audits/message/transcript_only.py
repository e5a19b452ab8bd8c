"""Judge message attacks on a transcript captured from a running system, without the true records.

Without the true records no vector can be matched, so a verdict rests on what can be known without them: an
identity of arithmetic (the sum over one record is that record), or the agreement of independent runs of a
factorization that has one solution only. The controls are complete: the same attacks on messages made of records
at hand, which are the plan's own where there is a plan and synthetic rectified features otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedassay.audits.evidence import Arms, ControlResult, Figures, Result, Subject, by_arithmetic
from fedassay.audits.message.attributed import attributed
from fedassay.audits.message.controls import (
    SENDER,
    algebra_view,
    attacked,
    by_hand_view,
    noised_view,
    sums_view,
    view_of,
)
from fedassay.audits.message.kinds import has_expected_errors, says_counts, says_remarks
from fedassay.audits.message.nonprivate import by_hand, changed
from fedassay.audits.message.rules import FAULTS, NUMBERS, rule_finding
from fedassay.audits.message.truth import EXACT, NEAR, match, nothing, parts_of, plain, rule_of_three
from fedassay.audits.verdict import assay, not_run
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.release import exact
from fedassay.exchange.statistics import noise_of
from fedassay.exchange.transcript import AGGREGATE, SERVER, Message, MessageField, kinds_in
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Limit, Metric, unmeasured
from fedassay.support.errors import Why
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Matrix

_CERTAIN = {"labels", "sent", "second_moment", "constant_feature"}
"""Evidence on label histograms that is the histogram itself, where no noise is declared on it."""

_MAY_HOLD = ("", "nothing_to_read", "too_large")
"""Kinds of obstacles under which the factorization applies: none, noise that hides all, the plan's parameter."""

_DROWNED = "their sums under noise ten times as large"
"""The negative controls: known records that nothing may be read of."""

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
    parts = parts_of(result, context)
    for name in (str(rule) for rule in result.artifacts["applicable"]):
        if name in NUMBERS or name in FAULTS:
            readings = (by_hand(context, controls, plain, name),)
            findings.append(rule_finding(name, result, context, readings))
        else:
            part = parts.get(name, nothing(name))
            findings.append(_arithmetic(part, result.attack, context, controls, rules=True))
    return findings


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
            test=by_arithmetic(certain > 0, "vectors_certain"),
            shown=f"{certain} vectors from {senders} sender(s) are single records' features as they are "
            f"({source.name})",
            near_copies=certain,
            harm=Harm(kind="exact", of="record", count=certain, mechanism=source.name),
            undecided=f"{size} vectors may be single records' features; {_NO_RECORDS}" if size else "",
            limit=lambda: _one_message(context, source.name),
        ),
        {"vectors_certain": Metric(value=float(certain), n=size), "relative_error": unmeasured(_NO_RECORDS)},
        "exact means that the messages declare no noise on what the vectors were computed from",
        positive=_recovery("messages of the same form, made of records that are known", error, caught),
        negative=ControlResult(
            _DROWNED,
            detected=flagged,
            shown="vectors come out of noise",
            detail="no vector comes out",
        ),
    )


def _one_message(context: AuditContext, rule: str) -> Limit:
    """Arithmetic on one message misses nothing by chance: a single record would have been found."""
    messages = len(context.view.from_clients())
    return Limit(
        metric="records",
        value=1.0,
        n=max(1, messages),
        words=f"one record would have been found ({rule})",
        of="record",
        planted=rule,
    )


def _recovery(release: str, error: float | None, caught: bool, n: int | None = None) -> ControlResult:
    """A release of known records as a control, by the median relative error at which they came back."""
    shown = "no known record came back" if error is None else f"known records came back at an error of {error:.2g}"
    return ControlResult(release, caught, shown, error, n, "median relative error")


def _certain(source: VectorSource, context: AuditContext) -> np.ndarray:
    """Whether each vector is a record's feature by arithmetic alone: without noise, of a class of one record."""
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
        view = view_of([Message(0, SENDER, SERVER, fields)], context)
        parts = sources(view, context.seeds.numpy("message", "sources"))
    else:
        parts = attacked(context, algebra_view(controls, context, plain)).vectors
    vectors = [part.vectors for part in parts if part.name == name]
    # These controls put one record into each class.
    size = len(controls) if name == "raw" else min(len(controls), context.data.classes)
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
    subject = Subject("message", result.attack, result.attack, "all")
    expected = np.asarray(result.scores["expected_error"], np.float64)
    sizes = np.nan_to_num(np.asarray(result.scores["records"], np.float64))
    sure = int((expected < EXACT).sum())
    reasons = [
        Why(str(words), kind=str(kind))
        for words, kind in zip(result.artifacts["reasons"], result.artifacts["obstacles"], strict=True)
    ]
    beyond = [reason for reason in reasons if reason.kind not in _MAY_HOLD]
    if len(beyond) == len(reasons):
        return not_run(subject, beyond[0].said(f"the factorization does not apply: {beyond[0]}"))
    known = _controls_as_large(sizes[[reason.kind in _MAY_HOLD for reason in reasons]], controls)
    largest = max(len(each) for each in known)
    errors = [_factored(each, context) for each in known]
    median, caught = max((each for each in errors), key=lambda each: np.inf if each[0] is None else each[0])
    # Four features without a zero have any number of factorizations (two with a known sum have one only): runs
    # must not agree on one.
    dense = Records(controls.name, controls.images, controls.labels, lambda _: _filled(controls))
    wrong = np.asarray(
        attacked(context, sums_view(dense, context, plain)).scores.get("expected_error", ()), np.float64
    )
    return _concluded(
        subject,
        Result(
            test=by_arithmetic(sure > 0, "expected_error"),
            shown=_follow(sure, sizes, expected, reasons),
            harm=Harm(
                kind="exact", of="record", count=sure, total=int(sizes.sum()) or None, mechanism="second_moment"
            ),
            undecided=_unfactored(result, expected, reasons, beyond, sizes),
            limit=partial(_share_of_messages, len(reasons), largest),
        ),
        {
            "expected_error": _expected(expected),
            "relative_error": unmeasured(_NO_RECORDS),
            **attributed(result, context)[0],
        },
        "features are not negative and hold zeros, as after a rectifier",
        f"a record counts as recovered where independent runs agree to a relative error below {EXACT:g}",
        positive=_recovery(
            f"exact sums and second moment of {', '.join(str(len(each)) for each in known)} known records",
            median,
            caught and all(each[1] for each in errors),
            sum(map(len, known)),
        ),
        negative=ControlResult(
            "the same of features without any zero, which no factorization can tell apart",
            detected=bool((wrong < EXACT).any()),
            shown="runs agree on what is wrong",
            value=float(np.median(wrong)) if len(wrong) else None,
            n=len(wrong),
            detail="median expected error",
        ),
    )


def _share_of_messages(messages: int, largest: int) -> Limit:
    return Limit(
        metric="share",
        value=rule_of_three(messages),
        n=messages,
        words=f"0 of {messages} messages gave a record away; controls of up to {largest} records were recovered",
        of="message",
        scope="population",
        planted="factored_client",
    )


def _follow(sure: int, sizes: Matrix, expected: Matrix, reasons: Sequence[Why]) -> str:
    """Return a clause on the number of records' features that a factorization gives, and their error."""
    shown = f"{sure} of {sizes.sum():.0f} records' features follow from second moments"
    if sure:
        furthest = float(expected[expected < EXACT].max())
        return f"{shown}: independent runs agree on each to a relative error of at most {furthest:.2g}"
    said = next((reason for reason in reasons if reason), "")
    return f"{shown}; not tried: {said}" if said else shown


def _unfactored(
    result: AttackResult, expected: Matrix, reasons: Sequence[Why], beyond: Sequence[Why], sizes: Matrix
) -> str:
    """Return the reason why nothing is concluded about some messages, and what would decide it."""
    if len(expected):
        return f"{len(expected)} vectors agree less closely, and {_NO_RECORDS}"
    if result.limited is not None:
        return result.limited.said("not tried on all messages: a larger max_records would decide")
    if beyond:
        return beyond[0].said(
            f"nothing is known of messages that the factorization does not apply to ({beyond[0]})"
        )
    if not sizes.all():
        return (
            "the number of records behind noise is not known, so that no control is as large; the audit of a "
            "simulated run would decide"
        )
    return ""


def _controls_as_large(sizes: Matrix, controls: Records) -> list[Records]:
    """Controls of the smallest and the largest number of records, with rectified normal features."""
    width = controls.features.shape[1]
    made = [controls]
    for size in sorted({int(sizes.min(initial=np.inf)) if len(sizes) else 0, int(sizes.max(initial=0))}):
        if len(controls) < size <= width:
            rng = Seeds(0).numpy("captured", "controls", size)
            rows = np.maximum(rng.normal(size=(size - len(controls), width)), 0).astype(np.float32)
            features = np.concatenate([controls.features, rows * (controls.features.max(initial=0.0) or 1.0)])
            images = np.zeros((size, 1, 1, 1), np.uint8)
            made.append(Records(controls.name, images, np.zeros(size, np.int64), partial(_given, features)))
    return made


def _given(features: Floats, images: Images) -> Floats:
    return features


def _factored(controls: Records, context: AttackedContext) -> tuple[float | None, bool]:
    """Recover known records from messages of the captured form (its types, with counts or without)."""
    audited = {item.kind: item for m in context.view.from_clients() for item in m.fields.values()}
    counts = "class_counts" in audited
    together = Records(controls.name, controls.images, np.zeros_like(controls.labels), lambda _: controls.features)

    def like(_: str, item: MessageField) -> MessageField:
        as_sent = audited.get(item.kind)
        if as_sent is None or as_sent.dtype.kind != "f":
            return item
        return replace(item, sent=item.values.astype(as_sent.dtype))

    view = changed(by_hand_view(together, context, plain, counts=counts), like)
    vectors = attacked(context, view).artifacts.get("vectors", np.zeros((0, 1)))
    return _error(np.asarray(vectors, np.float64), controls, len(controls))


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
    subject = Subject("message", result.attack, "label_histograms", "all")
    if context.data.classes < 2:
        return not_run(subject, "all records count as of one class, so there is no histogram of labels")
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
        subject,
        Result(
            test=by_arithmetic(bool(certain), "senders_told"),
            shown=f"the label histogram of {whose} follows exactly from what is sent ({_listed(evidence)})"
            if certain
            else f"label histograms were estimated ({_listed(evidence)})",
            undecided=f"label histograms could only be estimated, and {_NO_RECORDS}",
            harm=Harm(
                kind="attributes",
                of="client" if single else "sum",
                count=len(single) or None,
                total=len(senders),
                mechanism="label_histograms",
            ),
        ),
        {
            "senders_told": Metric(value=float(len(certain)), n=len(senders)),
            "total_variation": unmeasured(_NO_RECORDS),
        },
        "counts without declared noise are the true ones",
        positive=positive,
        negative=negative,
    )


def _histogram_controls(context: AttackedContext, controls: Records) -> tuple[ControlResult, ControlResult]:
    """Controls of the histogram in the captured form: messages that determine it, and sums under much noise."""
    counts = np.bincount(controls.labels, minlength=context.data.classes)
    sent = kinds_in(context.view.from_clients())
    if sent & {"class_counts", "labels"} or "second_moment" not in sent:
        release = "exact class counts of records that are known"
        fields = {"counts": MessageField(counts, "class_counts", exact("labels"))}
        view = view_of([Message(0, SENDER, SERVER, fields)], context)
    else:
        release = "class sums and second moment of records that are known, without counts"
        view = by_hand_view(controls, context, plain, counts=False)
    known = attacked(context, view).artifacts.get("histograms")
    distance = None if known is None else float(np.abs(known[0] - counts / counts.sum()).sum() / 2)
    unclear = attacked(context, noised_view(controls, context, plain)).artifacts.get(
        "evidence", np.zeros(0, np.str_)
    )
    return (
        ControlResult(
            release,
            detected=distance is not None and distance <= EXACT,
            shown="no histogram came back" if distance is None else f"total variation distance {distance:.2g}",
            value=distance,
            detail="total variation distance",
        ),
        ControlResult(
            _DROWNED,
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
    positive: ControlResult,
    negative: ControlResult,
) -> Finding:
    # The method is unknown: messages of the captured form are the whole way that there is.
    arms = Arms(result, (positive,), negative)
    return assay(subject, arms, Figures(metrics, assumptions=(_NO_RECORDS, *assumptions)))
