"""Findings on computed vectors: matched to the senders' records, with controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedassay.audits.evidence import Arms, ControlResult, Figures, Subject
from fedassay.audits.features import encoder
from fedassay.audits.message import nonprivate
from fedassay.audits.message.controls import algebra_view, attacked, control_records
from fedassay.audits.message.identified import averaged, counting, identification, identification_metrics
from fedassay.audits.message.kinds import is_approximate
from fedassay.audits.message.truth import (
    Recovery,
    assumptions,
    class_means,
    comes_back,
    fitting,
    incomparable,
    judge,
    match,
    metrics,
    nothing,
    plain,
    recovery_limit,
    result_of,
    truth_of,
)
from fedassay.audits.simulation import control_seeds, noised
from fedassay.audits.stats.identification import Identification
from fedassay.audits.verdict import assay, not_run
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.transcript import AGGREGATE
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.types import Matrix

_CONTROL_CLIENTS = 4


def vectors_finding(source: VectorSource, result: AttackResult, context: AttackedContext) -> Finding:
    """Match to all records of the senders (repeats are ignored), run the controls, conclude."""
    subject = Subject("message", result.attack, source.name, "all")
    truths, encode = _truths(source, context), encoder(context)
    if encode is None or not truths:
        return not_run(subject, incomparable(encode))
    plainly = _sent_plainly(source, truths, encode)
    encode = plain if plainly else encode
    means = class_means(context, encode)
    vectors = fitting(source.vectors.astype(np.float64), means)
    if isinstance(vectors, str):
        return not_run(subject, vectors)
    own = source.of_senders(truths)
    rng = context.seeds.numpy("message", source.name)

    def recovery(against: Sequence[Records]) -> tuple[Recovery, Identification | None]:
        truth = [
            (rows, encode(records), records.labels) for rows, records in zip(own.values(), against, strict=True)
        ]
        persons = [records.groups for records in against]
        named = asked(vectors, against)
        matched = match(vectors, source.labels, truth, means, persons)
        return judge(matched, rng, tests=context.num_tests, named=counting(named, context)), named

    def asked(found: Matrix, against: Sequence[Records]) -> Identification | None:
        held = dict(zip(own, zip(own.values(), against, strict=True), strict=True))
        return identification(found, source.labels, held, context.data.fresh, encode)

    (ours, named), test = recovery(list(truths.values())), context.data.test
    fresh = [test.take(rng.permutation(len(test))[: len(records)]) for records in truths.values()]
    negative, _ = recovery(fresh)
    figures, baseline = metrics(ours.matched)
    sent = asked(averaged(vectors, source.labels, list(own.values())), list(truths.values())) if named else None
    shares, of_means = identification_metrics(named, sent, context)
    beside = partial(_nearly_known, audited=list(truths.values())) if is_approximate(result) else _controls
    known, full, attack_only = beside(source.name, context, plainly)
    limit = partial(recovery_limit, ours, known)
    silent = negative.negative(ours)
    return assay(
        subject,
        Arms(
            result_of(ours, source.name, limit, noised=noised(context), undecided=result.limited or ""),
            full,
            silent,
            attack_only,
        ),
        Figures({**figures, **shares}, {**baseline, **of_means}, assumptions(context)),
    )


def _sent_plainly(
    source: VectorSource, truths: Mapping[str, Records], encode: Callable[[Records], Matrix]
) -> bool:
    """Whether vectors are the backbone's own features of records, and none is what the method makes of them first.

    A method that says that it clips features, and sends some that it did not clip, gives these away all the same.
    That a vector of many entries is one or the other to `EXACT` is no accident: looking twice costs no test.
    """
    vectors = source.vectors.astype(np.float64)
    rows = source.of_senders(truths)
    own = [(vectors[rows[sender]], records) for sender, records in truths.items()]
    return not any(comes_back(found, encode(records)) for found, records in own) and any(
        comes_back(found, plain(records)) for found, records in own
    )


def _truths(source: VectorSource, context: AttackedContext) -> dict[str, Records]:
    """The true records of every sender that vectors or messages come from, where they are known."""
    seen = [message.sender for message in context.view.from_clients()]
    single = [sender for sender in seen if sender != AGGREGATE] or seen
    found = {sender: truth_of(context, sender) for sender in (*source.senders, *single)}
    return {sender: records for sender, records in found.items() if records is not None}


_Beside = tuple[list[Recovery], tuple[ControlResult, ...] | str, tuple[ControlResult, ...]]
"""Recoveries of known records; the end-to-end controls, or why there are none; those of the attack alone."""


def _nearly_known(name: str, context: AttackedContext, plainly: bool, *, audited: Sequence[Records]) -> _Beside:
    """Whether what comes back nearly does so from clients of control records, as large as the audited ones.

    A count of exact copies, as other sources' controls have, would never catch it: its control is the test itself.
    """
    try:
        largest = sorted(audited, key=len)[-_CONTROL_CLIENTS:]
        found = nonprivate.recovered(nonprivate.alike(context, largest), name, context, plainly)
    except NotRunError as error:
        return [], error.why, ()
    if not any(each.test.rejects for each in found):
        found += nonprivate.recovered(nonprivate.as_audited(context, largest), name, context, plainly)
    best = max(found, key=lambda each: (each.test.rejects, len(each.matched.errors)))
    control = best.control(nonprivate.OF_AS_LARGE, end_to_end=True)
    return [], (replace(control, detected=best.test.rejects, alone=best.test.uncorrected),), ()


def _controls(name: str, context: AttackedContext, plainly: bool) -> _Beside:
    """Recover known records from the method's own messages, and from statistics by hand."""
    by_hand = _by_hand(name, context, plainly)
    try:
        known = _known(name, context, plainly)
    except NotRunError as error:
        return [], error.why, (by_hand,)
    own = nonprivate.control_of(known)
    return known, (own,), (by_hand,)


def _known(name: str, context: AttackedContext, plainly: bool) -> list[Recovery]:
    """Recover known records from the method's own messages.

    Raises:
        NotRunError: There are too few control records, or the method cannot be run on them.
    """
    if name == "differences":
        return nonprivate.recovered(nonprivate.before_and_after(context), name, context, plainly)
    readings = nonprivate.singletons(context)
    if name == "collapsed_components":
        readings += nonprivate.crowded(context)
    return nonprivate.recovered(nonprivate.also_faintly_noised(readings, context), name, context, plainly)


def _by_hand(name: str, context: AttackedContext, plainly: bool) -> ControlResult:
    """The attack alone, on exact statistics of a few records; the same for every cell that encodes alike."""
    records, encode = control_records(context), (None if plainly else encoder(context)) or plain
    features, means = encode(records), class_means(context, encode)
    computed = attacked(context, algebra_view(records, context, encode))
    part = next((item for item in computed.vectors if item.name == name), nothing(name))
    if name == "raw":  # nothing is computed: what is sent is the feature
        part = VectorSource(name, features, records.labels, ("control",) * len(records), np.arange(len(records)))
    whole = part.vectors.astype(np.float64).reshape(-1, means.shape[1])
    truth = [(np.arange(len(whole)), features, records.labels)]
    rng = control_seeds(context, "message", name).numpy()
    return judge(match(whole, part.labels, truth, means), rng, tests=context.num_tests).by_hand()
