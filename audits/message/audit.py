"""Audit of messages: do they give single records or label histograms away by arithmetic alone?

Joins the truth to vectors, remarks and label histograms that attacks computed. Recovered vectors are matched to
the true features of their sender's records and compared with the mean of the record's class, which needs no
message. Every rule that applies to a sent field has a finding of its own, fired or not.

The positive control of each goes the whole way: the method's own run, without privacy, on control records in a
form that is known to give them away, seen through the same view (`nonprivate`). The same attack on messages made
by hand is a second one. Negative control: the same vectors against records that were not sent.
"""

from __future__ import annotations

from functools import cache, partial
from typing import ClassVar

from fedassay.audits.message.factors import factors_findings
from fedassay.audits.message.facts import MESSAGE
from fedassay.audits.message.histograms import histogram_finding
from fedassay.audits.message.kinds import has_expected_errors, says_counts, says_remarks
from fedassay.audits.message.remarks import known_clients, remark_finding
from fedassay.audits.message.rules import FAULTS, NUMBERS
from fedassay.audits.message.truth import nothing, parts_of
from fedassay.audits.message.vectors import vectors_finding
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import register
from fedassay.records.record import Finding
from fedassay.support.types import Parameters


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
            findings += [vectors_finding(part, result, context) for part in parts]
        return findings


def _algebra(result: AttackResult, context: AttackedContext) -> list[Finding]:
    """A finding on every rule that applies; features sent as such need no attack, but must not go unsaid."""
    parts = parts_of(result, context)
    known = cache(partial(known_clients, context))
    findings = []
    for name in (str(rule) for rule in result.artifacts["applicable"]):
        if name in NUMBERS or name in FAULTS:
            findings.append(remark_finding(name, result, context, known))
        else:
            findings.append(vectors_finding(parts.get(name, nothing(name)), result, context))
    return findings
