"""Truth joined to what message algebra says of numbers of records, and of protections that are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.evidence import Control, Figures, Result, Subject, by_arithmetic
from fedassay.audits.message.controls import algebra_view, attacked, control_records, noised_view
from fedassay.audits.message.truth import encoder, truth_of
from fedassay.audits.verdict import conclude
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records
from fedassay.records.record import Finding, Metric

_RECORDS = {"rank", "derivable_counts"}


def structure_finding(
    result: AttackResult, context: AttackedContext, controls: AttackedContext | None = None
) -> Finding:
    """What arithmetic says of numbers of records, and of protections that are not there.

    Args:
        result: With remarks.
        context: With the records that the truth is taken from; without any for captured messages.
        controls: A context with the records that controls are made of, where `context` has none.
    """
    rules = [str(rule) for rule in result.artifacts["rules"]]
    right = _right(result, context)
    # A number that is not the true one gives nothing away.
    disclosing = [
        number
        for number, discloses in enumerate(result.artifacts["discloses"])
        if discloses and right.get(number, True)
    ]
    shown = _summary(result, disclosing or range(len(rules))) or "no rule applies to these messages"
    subject, figures = Subject("message", result.attack, "structure", "all"), Figures(_metrics(rules, right))
    positive, negative = _controls(controls or context, encoder(context) or _plain)
    return conclude(
        subject,
        Result(
            test=by_arithmetic(bool(disclosing)),
            shown=shown,
            undecided="whether noise was left out, the messages alone do not say"
            if "missing_noise" in rules
            else "",
        ),
        figures,
        positive=positive,
        negative=negative,
    )


def _metrics(rules: Sequence[str], right: Mapping[int, bool]) -> dict[str, Metric]:
    figures = {"rules_met": Metric(value=float(len(rules)), reason=", ".join(sorted(set(rules))))}
    if right:
        figures["counts_right"] = Metric(
            value=float(np.mean(list(right.values()))),
            n=len(right),
            reason="derived numbers of records that are true",
        )
    return figures


def _controls(
    source: AttackedContext, encode: Callable[[Records], NDArray[np.float64]]
) -> tuple[Control, Control]:
    """Exact sums of a few records, whose number follows from them, and the same under much noise.

    The rules are about arithmetic, whatever the features: where the method's own cannot be had, the backbone's
    serve.
    """
    records = control_records(source)
    caught = _says_records(attacked(source, algebra_view(records, source, encode)), len(records))
    flagged = _says_records(attacked(source, noised_view(records, source, encode)), len(records))
    return (
        Control(
            f"class sums and second moment of {len(records)} records that are known, without counts",
            detected=caught,
            shown=f"the number of {len(records)} known records {'follows' if caught else 'does not follow'}",
            detail="their number follows",
        ),
        Control(
            "the same under noise ten times as large",
            detected=flagged,
            shown="a number of records is read from noise",
            detail="no number follows",
        ),
    )


def _plain(records: Records) -> NDArray[np.float64]:
    return records.features.astype(np.float64)


def _summary(result: AttackResult, numbers: Iterable[int]) -> str:
    """Remarks of one rule on one field in one clause: the first, and of how many other messages it holds."""
    clauses: dict[tuple[str, str], list[int]] = {}
    for number in numbers:
        key = str(result.artifacts["rules"][number]), str(result.artifacts["fields"][number])
        clauses.setdefault(key, []).append(number)
    said = []
    for same in clauses.values():
        text, sender = str(result.artifacts["texts"][same[0]]), str(result.artifacts["senders"][same[0]])
        others = f" and {len(same) - 1} more" if len(same) > 1 else ""
        said.append(f"{text} ({sender}{others})")
    return "; ".join(said)


def _numbers(result: AttackResult) -> dict[int, tuple[str, str, NDArray[np.float64]]]:
    """Rule, sender and numbers of every remark on numbers of records, by its position."""
    rows = zip(result.artifacts.get("rules", ()), result.artifacts.get("senders", ()), strict=True)
    return {
        number: (str(rule), str(sender), np.asarray(result.scores[f"values/{number}"], np.float64))
        for number, (rule, sender) in enumerate(rows)
        if str(rule) in _RECORDS
    }


def _says_records(result: AttackResult, size: int) -> bool:
    return any(rule == "rank" and values.sum() == size for rule, _, values in _numbers(result).values())


def _right(result: AttackResult, context: AuditContext) -> dict[int, bool]:
    """For each derived number of records, by the remark's position: is it the true one?"""
    right = {}
    for number, (_, sender, values) in _numbers(result).items():
        records = truth_of(context, sender)
        if records is not None:
            right[number] = round(float(values.sum())) == len(records)
    return right
