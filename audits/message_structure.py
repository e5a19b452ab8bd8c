"""Truth joined to what message algebra says of numbers of records, and of protections that are not there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.message_controls import algebra_view, attacked, control_records, noised_view
from fedassay.audits.message_truth import encoder, truth_of
from fedassay.lab import AttackResult, Lab
from fedassay.record import Controls, Finding, Metric, NegativeControl, PositiveControl, Verdict

_RECORDS = {"rank", "derivable_counts"}


def structure_finding(result: AttackResult, lab: Lab) -> Finding:
    """What arithmetic says of numbers of records, and of protections that are not there."""
    encode = encoder(lab)
    rules = [str(rule) for rule in result.artifacts["rules"]]
    texts = [str(text) for text in result.artifacts["texts"]]
    tells = [bool(told) for told in result.artifacts["discloses"]]
    told = [text for text, tell in zip(texts, tells, strict=True) if tell]
    figures = {"rules_met": Metric(value=float(len(rules)), reason=", ".join(sorted(set(rules))))}
    right = _counts_right(result, lab)
    if right:
        figures["counts_right"] = Metric(
            value=float(np.mean(right)),
            n=len(right),
            reason="derived numbers of records that are true",
        )
    controls = Controls()
    if encode is not None:
        records = control_records(lab)
        caught = _says_records(attacked(lab, algebra_view(records, lab, encode)), len(records))
        flagged = _says_records(attacked(lab, noised_view(records, lab, encode)), len(records))
        controls = Controls(
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
    shown = "; ".join(dict.fromkeys(told or texts)) or "no rule applies to these messages"
    if controls.negative is not None and controls.negative.flagged:
        verdict, shown = "inconclusive", f"the negative control was flagged; {shown}"
    elif not told and (controls.positive is None or not controls.positive.caught):
        verdict, shown = "inconclusive", f"no control shows that the rules work here; {shown}"
    return Finding(
        audit="message",
        attack=result.attack,
        source="structure",
        selection="all",
        metrics=figures,
        controls=controls,
        verdict=verdict,
        reason=shown,
    )


def _numbers(result: AttackResult) -> list[tuple[str, str, NDArray[np.float64]]]:
    """Rule, sender and numbers of every remark on numbers of records."""
    rows = zip(result.artifacts.get("rules", ()), result.artifacts.get("senders", ()), strict=True)
    return [
        (str(rule), str(sender), np.asarray(result.scores[f"values/{number}"], np.float64))
        for number, (rule, sender) in enumerate(rows)
        if str(rule) in _RECORDS
    ]


def _says_records(result: AttackResult, size: int) -> bool:
    return any(rule == "rank" and values.sum() == size for rule, _, values in _numbers(result))


def _counts_right(result: AttackResult, lab: Lab) -> list[bool]:
    """For each derived number of records: is it the true one?"""
    found = []
    for _, sender, values in _numbers(result):
        records = truth_of(lab, sender)
        if records is not None:
            found.append(round(float(values.sum())) == len(records))
    return found
