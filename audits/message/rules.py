"""Truth joined to the facts that message algebra reads off: numbers of records, and protections that are missing.

Every rule that reads something in the view has a finding of its own, fired or not, and a control of its own: a
release of known records that makes it fire. That is the method's own, without privacy, as it is where a rule reads
exact numbers, and with one thing changed where it looks for a fault that no method of ours has: noise that is
declared and was left out, a field without protection beside protected ones, a field that is the sum of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.evidence import Arms, ControlResult, Figures, Result, Subject, by_arithmetic
from fedassay.audits.message.controls import attacked
from fedassay.audits.message.nonprivate import FAINT, Reading, changed, counts_of, drowned, gaussian, redeclared
from fedassay.audits.message.truth import truth_of
from fedassay.audits.nonprivate_releases import summed_only
from fedassay.audits.simulation import control_seeds
from fedassay.audits.verdict import assay
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records
from fedassay.exchange.message import any_protected
from fedassay.exchange.release import exact
from fedassay.exchange.statistics import noise_of
from fedassay.exchange.transcript import Message, MessageField
from fedassay.exchange.view import View
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Limit, Metric
from fedassay.support.adjacency import class_counts_public

NUMBERS = ("exact_counts", "derivable_counts", "rank")
"""Rules that say numbers of records."""

FAULTS = ("redundant_field", "missing_noise", "unprotected_field")
"""Rules that say what a declaration leaves open."""


@dataclass(frozen=True)
class Remarked:
    """One remark of an attack's result.

    Attributes:
        rule: The rule that made it.
        sender: The sender of the message.
        field: The field of the message.
        text: One sentence.
        discloses: Whether it reveals something that the fields do not state themselves, or breaks a protection.
        values: The numbers derived.
    """

    rule: str
    sender: str
    field: str
    text: str
    discloses: bool
    values: NDArray[np.float64]


def remarked(result: AttackResult, rule: str) -> list[Remarked]:
    """The remarks of one rule."""
    names = result.artifacts.get("rules", np.zeros(0, np.str_))
    return [
        Remarked(
            rule,
            str(result.artifacts["senders"][number]),
            str(result.artifacts["fields"][number]),
            str(result.artifacts["texts"][number]),
            bool(result.artifacts["discloses"][number]),
            np.asarray(result.scores[f"values/{number}"], np.float64),
        )
        for number, name in enumerate(names)
        if str(name) == rule
    ]


def rule_finding(
    rule: str, result: AttackResult, context: AttackedContext, readings: Sequence[Reading], missing: str = ""
) -> Finding:
    """Finding of one rule on the audited messages, and whether it fires where it must.

    Args:
        rule: One of `NUMBERS` or `FAULTS`.
        result: Of the attack on the audited messages.
        context: The cell with the true records; without any for captured messages.
        readings: Releases of known records, at least one.
        missing: Reason why the releases are not the method's own, where a method could have made them. Captured
            messages come without it, and messages of their form stand in.
    """
    said = remarked(result, rule)
    # A number that is not the true one gives nothing away.
    true = [
        each for each in said if rule not in NUMBERS or _right(each, truth_of(context, each.sender)) is not False
    ]
    public = _public(rule, context)
    leaking = [each for each in true if (each.discloses or rule == "exact_counts") and not public]
    checked = [right for each in said if (right := _right(each, truth_of(context, each.sender))) is not None]
    metrics = {"rules_met": Metric(value=float(len(said)), reason=rule)}
    if rule in NUMBERS and checked:
        metrics["counts_right"] = Metric(
            value=float(np.mean(checked)), n=len(checked), reason="numbers of records that are true"
        )
    unsaid = "whether noise was left out, the messages alone do not say"
    made = Result(
        test=by_arithmetic(bool(leaking), "rules_met"),
        shown=_summary(leaking or said) or f"{_words(rule)} in no message",
        clear=public if said else "",
        harm=Harm(
            kind="counts",
            of="sum" if summed_only(context.view) else "message",
            count=len(leaking),
            total=max(1, len(context.view.from_clients())),
            mechanism=rule,
        ),
        undecided=unsaid if rule == "missing_noise" and said else "",
        limit=lambda: _limit(rule, result, context),
    )
    positive, negative = _positive(rule, context, readings), _negative(rule, context, readings)
    arms = Arms(made, missing or (positive,), negative, (positive,) if missing else ())
    return assay(Subject("message", result.attack, rule, "all"), arms, Figures(metrics))


def _words(rule: str) -> str:
    return {
        "exact_counts": "class counts leave exactly",
        "derivable_counts": "counts follow from other fields",
        "rank": "the number of records follows from the rank of a second moment",
        "redundant_field": "a noised field can be averaged with another one",
        "missing_noise": "declared noise is visibly absent",
        "unprotected_field": "a field without protection stands beside protected ones",
    }[rule]


def _public(rule: str, context: AuditContext) -> str:
    """Return the reason why the numbers that a rule reads are public, empty where they are not."""
    adjacency = context.privacy.adjacency
    if rule == "rank" and adjacency != "add_remove":
        return f"the number of records is public under {adjacency}"
    if rule in NUMBERS and class_counts_public(adjacency):
        return f"labels are public under {adjacency}"
    return ""


def _right(remark: Remarked, records: Records | None) -> bool | None:
    """Whether the numbers of a remark are the true ones; None where the truth is unknown, or it has none."""
    if records is None or remark.rule not in NUMBERS:
        return None
    if remark.rule == "rank":
        return round(float(remark.values.sum())) == len(records)
    found = np.rint(remark.values).astype(np.int64)
    return bool(np.array_equal(np.sort(found[found != 0]), counts_of(records)))


def _summary(said: Sequence[Remarked]) -> str:
    """Remarks on one field in one clause: the first, and of how many other messages it holds."""
    by_field: dict[str, list[Remarked]] = {}
    for each in said:
        by_field.setdefault(each.field, []).append(each)
    clauses = []
    for same in by_field.values():
        others = f" and {len(same) - 1} more" if len(same) > 1 else ""
        clauses.append(f"{same[0].text} ({same[0].sender}{others})")
    return "; ".join(clauses)


def _limit(rule: str, result: AttackResult, context: AuditContext) -> Limit:
    """Arithmetic on one message misses nothing by chance: a single one would have been found."""
    messages = len(context.view.from_clients())
    return Limit(
        metric="messages",
        value=1.0,
        n=max(1, messages),
        words=f"one message of {messages} with this property would have been found ({rule.replace('_', ' ')})",
        of="message",
        planted=rule,
    )


def _positive(rule: str, context: AttackedContext, readings: Sequence[Reading]) -> ControlResult:
    """A release of known records that makes the rule fire, for every reading."""
    change = _CHANGES.get(rule)
    sizes = ", ".join(str(sum(len(client) for client in reading.clients)) for reading in readings)
    fired, own = True, True
    for reading in readings:
        own = own and reading.end_to_end
        if change is None:
            said = remarked(reading.result, rule)
            fired = fired and bool(said) and all(_right(each, reading.truth(each.sender)) for each in said)
        else:
            result = attacked(context, change(reading.exposure.view, context.view))
            fired = fired and any(each.discloses or rule == "missing_noise" for each in remarked(result, rule))
    what = "the method's own messages without privacy" if own else "messages made by hand"
    return ControlResult(
        f"{what}, of {sizes} control records{_CHANGED.get(rule, '')}",
        detected=fired and bool(readings),
        shown=f"{_words(rule)}: {'found' if fired else 'not found'} in {what} of {sizes} known records",
        detail=_words(rule),
        end_to_end=own,
    )


def _negative(rule: str, context: AttackedContext, readings: Sequence[Reading]) -> ControlResult:
    flagged = False
    for reading in readings[:1]:
        rng = control_seeds(context, "message", "drowned").numpy()
        said = remarked(attacked(context, drowned(reading.exposure.view, rng)), rule)
        flagged = any(rule not in ("unprotected_field", "redundant_field") or each.discloses for each in said)
    return ControlResult(
        "the same under noise ten times as large, which it declares",
        detected=flagged,
        shown=f"{_words(rule)} under noise",
        detail="nothing follows",
    )


def _one_unprotected(view: View, audited: View) -> View:
    """Every field declares what the audited one does, but for one that is a function of the records."""
    declared = redeclared(view, audited)
    spared: list[str] = []

    def change(name: str, item: MessageField) -> MessageField:
        # Fields that are exact in the audited release count already; one more field must be found.
        if item.release.mechanism in {"gaussian", "pure", "dp_sgd"} and not spared:
            spared.append(name)
            return replace(item, release=exact())
        return item

    changed_view = changed(declared, change)
    return changed_view if any_protected(changed_view.from_clients()) else _with_protected(changed_view)


def _with_protected(view: View) -> View:
    """The view with a field of ones beside it that declares noise, where no other field does."""
    return _with_field(view, lambda _: MessageField(np.ones(1), "other", gaussian(1.0)))


def _with_a_sum(view: View, audited: View) -> View:
    """Beside sums or counts of classes, which declare faint noise, a field that is their total."""

    def faint(_: str, item: MessageField) -> MessageField:
        if item.kind not in ("class_sums", "class_counts"):
            return item
        values = item.values.astype(np.float64)
        scale = FAINT * max(float(np.abs(values).max(initial=0.0)), 1.0)
        return replace(item, sent=values, release=gaussian(scale))

    def total(message: Message) -> MessageField | None:
        of = next((item for item in message.fields.values() if item.kind == "class_sums"), None)
        of = of or next((item for item in message.fields.values() if item.kind == "class_counts"), None)
        if of is None or noise_of(of) == 0:
            return None
        return MessageField(np.atleast_1d(of.values.sum(axis=0)), "other", of.release)

    return _with_field(changed(view, faint), total)


def _with_field(view: View, make: Callable[[Message], MessageField | None]) -> View:
    messages = []
    for message in view.messages:
        item = make(message)
        fields = dict(message.fields) if item is None else {**message.fields, "control total": item}
        messages.append(Message(message.round, message.sender, message.receiver, fields))
    return replace(view, messages=tuple(messages))


_CHANGES: Mapping[str, Callable[[View, View], View]] = {
    "redundant_field": _with_a_sum,
    "missing_noise": redeclared,
    "unprotected_field": _one_unprotected,
}
"""Changes of a release without privacy that make a rule fire; each takes the audited view as well."""

_CHANGED = {
    "redundant_field": ", with one more field that is the total of another",
    "missing_noise": ", which declare the noise of the audited ones",
    "unprotected_field": ", which declare the noise of the audited ones in all fields but one",
}
