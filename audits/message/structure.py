"""Truth joined to what message algebra says of numbers of records, and of protections that are not there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.message.controls import algebra_view, attacked, control_records, noised_view
from fedassay.audits.message.truth import encoder, truth_of
from fedassay.contracts.audit import AttackedContext, AttackResult, AuditContext
from fedassay.data.records import Records
from fedassay.records.record import Controls, Finding, Metric, NegativeControl, PositiveControl, Verdict

_RECORDS = {"rank", "derivable_counts"}


def structure_finding(
    result: AttackResult, context: AttackedContext, controls: AttackedContext | None = None
) -> Finding:
    """What arithmetic says of numbers of records, and of protections that are not there.

    Args:
        result: Of `message_algebra`.
        context: With the records that the truth is taken from; without any for captured messages.
        controls: A context with the records that controls are made of, where `context` has none.
    """
    encode = encoder(context)
    rules = [str(rule) for rule in result.artifacts["rules"]]
    right = _right(result, context)
    told = [
        number
        for number, tells in enumerate(result.artifacts["discloses"])
        if tells and right.get(number, True)  # a number that is not the true one tells nothing
    ]
    figures = {"rules_met": Metric(value=float(len(rules)), reason=", ".join(sorted(set(rules))))}
    if right:
        figures["counts_right"] = Metric(
            value=float(np.mean(list(right.values()))),
            n=len(right),
            reason="derived numbers of records that are true",
        )
    shows, source = Controls(), controls or context
    # A transcript captured elsewhere comes without records to make controls of.
    if any(len(client) for client in source.clients):
        records = control_records(source)
        # The rules are about arithmetic, whatever the features: where the method's own cannot be had, the
        # backbone's serve.
        encode = encode or _plain
        caught = _says_records(attacked(context, algebra_view(records, context, encode)), len(records))
        flagged = _says_records(attacked(context, noised_view(records, context, encode)), len(records))
        shows = Controls(
            positive=PositiveControl(
                release=f"class sums and second moment of {len(records)} of the same records, without counts",
                caught=caught,
                detail="their number follows",
            ),
            negative=NegativeControl(
                release="the same under noise ten times as large", flagged=flagged, detail="no number follows"
            ),
        )
    verdict: Verdict = "leak" if told else "no_leak_found"
    shown = _summary(result, told or range(len(rules))) or "no rule applies to these messages"
    if shows.negative is not None and shows.negative.flagged:
        verdict, shown = "inconclusive", f"the negative control was flagged; {shown}"
    elif not told and (shows.positive is None or not shows.positive.caught):
        verdict, shown = "inconclusive", f"no control shows that the rules work here; {shown}"
    elif not told and "missing_noise" in rules:
        verdict, shown = "inconclusive", f"whether noise was left out, the messages alone do not say; {shown}"
    return Finding(
        audit="message",
        attack=result.attack,
        source="structure",
        selection="all",
        metrics=figures,
        controls=shows,
        verdict=verdict,
        reason=shown,
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
    found = {}
    for number, (_, sender, values) in _numbers(result).items():
        records = truth_of(context, sender)
        if records is not None:
            found[number] = round(float(values.sum())) == len(records)
    return found
