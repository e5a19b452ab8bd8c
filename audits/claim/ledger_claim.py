"""A claim against the ledger alone: claimed and accounted epsilon, and nothing observed."""

from __future__ import annotations

from dataclasses import replace

from fedassay.audits.claim.detection_limit import claim_limit
from fedassay.audits.claim.judging import ground_of, listed
from fedassay.audits.claim.tape.questions import TapeAnswers
from fedassay.audits.evidence import Figures, Subject
from fedassay.audits.verdict import conclude_claim, not_run
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.ledger import Accounted, account
from fedassay.exchange.privacy_unit import record_as_person
from fedassay.exchange.release import NoClaim, PrivacyClaim
from fedassay.exchange.transcript import Transcript
from fedassay.records.record import Finding, Metric, epsilon_metric, unmeasured
from fedassay.support.adjacency import UNIT_WORDS

_WHY = "the ledger adds up, dp_claim attacks"
"""Reason why there is no observation."""


def ledger_finding(
    audit: str, claim: PrivacyClaim | NoClaim, accounted: Accounted, context: AuditContext, asked: TapeAnswers
) -> Finding:
    """One finding: claimed and accounted epsilon, and the verdict that the ledger supports.

    Args:
        audit: Name of the audit that gives it.
        claim: The claim.
        accounted: The ledger's total at the delta and under the adjacency of the claim.
        context: Its transcript names the fields.
        asked: The answers to the questions about what left.
    """
    figures = ledger_figures(claim, accounted, _WHY)
    if refused := not_audited(audit, claim, figures):
        return refused
    assert isinstance(claim, PrivacyClaim)
    assumptions = (
        claim_words(claim),
        f"accounted: everything that leaves, {worst_of(claim)}, on exact sensitivities and the noise that the "
        "method declares",
        *whose(context.outcome.transcript),
    )
    ground = ground_of(claim, accounted, None, _WHY, asked, context)
    shown = replace(figures, assumptions=assumptions, tape=asked.rows)
    return conclude_claim(Subject(audit), ground, shown, lambda: claim_limit(claim, None, context))


def ledger_figures(claim: PrivacyClaim | NoClaim, accounted: Accounted, why: str) -> Figures:
    """Claimed and accounted epsilon, and why nothing is observed."""
    claimed = unmeasured("no claim") if isinstance(claim, NoClaim) else epsilon_metric(claim.guarantee)
    observed = unmeasured(f"not run: {why}")
    return Figures(accounted_metrics(accounted) | {"observed": observed, "claimed": claimed})


def not_audited(audit: str, claim: PrivacyClaim | NoClaim, figures: Figures) -> Finding | None:
    """The finding where there is no claim that could be audited; None where there is one."""
    if isinstance(claim, NoClaim):
        return not_run(Subject(audit), f"no claim: {claim.reason}", figures)
    if claim.delta == 0:
        return not_run(Subject(audit), "a claim of pure differential privacy (delta = 0) is not audited", figures)
    return None


def accounted_for(claim: PrivacyClaim, context: AuditContext) -> Accounted:
    """The ledger's total at the delta and under the adjacency of the claim."""
    if claim.guarantee.kind == context.privacy.guarantee.kind:
        return context.accounted
    return account(context.outcome.transcript, claim.adjacency, claim.delta, claim.unit)


def accounted_metrics(accounted: Accounted) -> dict[str, Metric]:
    """The ledger's numbers, absent ones with their reason."""
    mu = unmeasured(f"not everything that leaves is Gaussian: {accounted.reason}")
    return {
        "accounted": epsilon_metric(accounted.total, reason=accounted.reason),
        "accounted_stated": epsilon_metric(accounted.total_stated),
        "mu": mu if accounted.mu is None else Metric(value=accounted.mu),
    }


def worst_of(claim: PrivacyClaim) -> str:
    """Name of the client or unit that the ledger adds up for."""
    return "the worst client" if claim.unit == "client" else f"the worst {claim.unit} of any client"


def whose(transcript: Transcript) -> tuple[str, ...]:
    """Say that a claim for records is no claim for persons, where one person is known to have several records."""
    mistaken = record_as_person(transcript)
    return () if mistaken is None else (mistaken.words,)


def claim_words(claim: PrivacyClaim) -> str:
    """The claim in one line."""
    covered = f"; the claim speaks of {listed(claim.covers)} only" if claim.covers else ""
    return (
        f"claim: epsilon {claim.epsilon:g} at delta {claim.delta:g} under {claim.adjacency}, "
        f"{UNIT_WORDS[claim.unit]} "
        f"({claim.source}){covered}"
    )
