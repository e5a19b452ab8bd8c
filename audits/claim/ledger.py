"""The release ledger, without an attack: does its total stay within the claim, and are the releases as declared?

For methods with mechanisms that take long to run again, and for plans with many epsilons. The questions to the run
itself are asked all the same (`fedassay.audits.claim.tape`). `fedassay.audits.claim.audit` holds the same claim
against an attack as well.
"""

from __future__ import annotations

from typing import ClassVar

from fedassay.audits.claim.facts import LEDGER
from fedassay.audits.claim.ledger_claim import accounted_for, ledger_finding
from fedassay.audits.claim.tape.questions import TapeAnswers, ask
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import register
from fedassay.exchange.release import NoClaim, PrivacyClaim
from fedassay.records.record import Finding
from fedassay.support.types import Parameters


@register("audit", "ledger")
class LedgerAudit(Parameters):
    """Does what leaves add up to no more than is claimed, on exact sensitivities; without any attack."""

    facts: ClassVar[AuditFacts] = LEDGER

    def assess(self, result: None, context: AuditContext) -> list[Finding]:
        """One finding: claimed and accounted epsilon."""
        claim = context.outcome.transcript.claim
        pure = isinstance(claim, PrivacyClaim) and claim.delta == 0
        accounted = context.accounted if isinstance(claim, NoClaim) or pure else accounted_for(claim, context)
        asked = TapeAnswers(()) if isinstance(claim, NoClaim) or pure else ask(claim, accounted, context)
        return [ledger_finding("ledger", claim, accounted, context, asked)]
