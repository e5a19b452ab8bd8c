"""Audit of messages: do they give single records or label histograms away by arithmetic alone?

Joins the truth to vectors, remarks and label histograms that attacks computed. Recovered vectors are matched to
the true features of their sender's records and compared with the mean of the record's class, which needs no
message. Every rule that applies to a sent field has a finding of its own, fired or not.

The positive control of each goes the whole way: the method's own run, without privacy, on control records in a
form that is known to give them away, seen through the same view (`nonprivate`). The same attack on messages made
by hand is a second one. Negative control: the same vectors against records that were not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import ClassVar

import numpy as np

from fedassay.audits.evidence import Arms, ControlResult, Figures, Subject
from fedassay.audits.features import encoder
from fedassay.audits.message import nonprivate
from fedassay.audits.message.controls import algebra_view, attacked, control_records
from fedassay.audits.message.factors import factors_findings
from fedassay.audits.message.facts import MESSAGE
from fedassay.audits.message.histograms import histogram_finding
from fedassay.audits.message.identified import averaged, counting, identification, identification_metrics
from fedassay.audits.message.kinds import has_expected_errors, is_approximate, says_counts, says_remarks
from fedassay.audits.message.rules import FAULTS, NUMBERS, rule_finding
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
from fedassay.audits.nonprivate_releases import summed_only
from fedassay.audits.simulation import control_seeds, noised
from fedassay.audits.stats.identification import Identification
from fedassay.audits.verdict import assay, not_run
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import register
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.kinds import facts_of
from fedassay.exchange.ridge import square
from fedassay.exchange.transcript import AGGREGATE
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.types import Matrix, Parameters

_CONTROL_CLIENTS = 4


@register("audit", "message")
class MessageAudit(Parameters):
    """Match what arithmetic reads from messages with the true records and label histograms."""

    facts: ClassVar[AuditFacts] = MESSAGE

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding a rule of message algebra, one or two on a factorization, one on label histograms."""
        findings: list[Finding] = []
        if says_counts(result):
            findings.append(histogram_finding(result, context))
        if says_remarks(result):
            findings += _algebra(result, context)
        elif has_expected_errors(result):
            findings += factors_findings(result, context)
        elif result.vectors or not findings:
            parts = result.vectors or (nothing(result.attack),)
            findings += [_vectors(part, result, context) for part in parts]
        return findings


def _algebra(result: AttackResult, context: AttackedContext) -> list[Finding]:
    """A finding on every rule that applies; features sent as such need no attack, but must not go unsaid."""
    sent = sources(context.view, context.seeds.numpy("message", "sources"))
    parts = {part.name: part for part in (*result.vectors, *(part for part in sent if part.name == "raw"))}
    known = cache(partial(_known_clients, context))
    findings = []
    for name in (str(rule) for rule in result.artifacts["applicable"]):
        if name in NUMBERS or name in FAULTS:
            findings.append(_remark(name, result, context, known))
        else:
            findings.append(_vectors(parts.get(name, nothing(name)), result, context))
    return findings


def _known_clients(context: AttackedContext, sizes: bool) -> tuple[nonprivate.Reading, ...]:
    """The method's own messages of known records; with `sizes` of a client as large as an audited one, too."""
    readings = nonprivate.singletons(context)
    largest = _largest_below(context) if sizes else []
    return readings + nonprivate.alike(context, largest) if largest else readings


def _remark(
    rule: str,
    result: AttackResult,
    context: AttackedContext,
    known: Callable[[bool], tuple[nonprivate.Reading, ...]],
) -> Finding:
    """Against the method's own messages of known records; made by hand where these cannot be had, and said so."""
    missing = ""
    try:
        readings = known(rule in NUMBERS)
    except NotRunError as error:
        readings = (nonprivate.by_hand(context, control_records(context), encoder(context) or plain, rule),)
        missing = error.why
    return rule_finding(rule, result, context, readings, missing)


def _largest_below(context: AttackedContext) -> list[Records]:
    """The largest client with a number of records that a second moment can show: under half its live features.

    A feature that is zero for every record adds nothing to a rank, and rectified networks have many.
    """
    widths = [
        len(square(item.values))
        for message in context.view.from_clients()
        for item in message.fields.values()
        if facts_of(item.kind).square == 2
    ]
    encode = encoder(context)
    if widths and encode is not None and len(context.data.control):
        widths.append(int((encode(context.data.control) != 0).any(axis=0).sum()))
    most = min(widths) // 2 if widths else len(context.data.control)
    owners = (joined(AGGREGATE, context.data.clients),) if summed_only(context.view) else context.data.clients
    return sorted((client for client in owners if 0 < len(client) <= most), key=len)[-1:]


def _vectors(source: VectorSource, result: AttackResult, context: AttackedContext) -> Finding:
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
        draws = context.seeds.numpy("message", source.name, "identification")
        return identification(
            found, source.labels, held, context.data.fresh, encode, draws, tests=context.num_tests
        )

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
