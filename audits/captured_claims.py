"""The claim of a captured transcript: claimed against accounted; nothing can be observed.

A lower bound on epsilon takes releases drawn again and again on neighbouring records, and messages of somebody
else's system cannot be drawn again. So the ledger decides, on the noise and sensitivities that the transcript
itself declares.
"""

from __future__ import annotations

from fedassay.audits.claim_verdict import claim_verdict, listed
from fedassay.lab import Accounted, Lab
from fedassay.record import Finding, Metric, unmeasured
from fedassay.release import NoClaim, PrivacyClaim

NOT_DRAWN_AGAIN = "captured messages cannot be drawn again on neighbouring records"


def captured_claim(claim: PrivacyClaim | NoClaim, accounted: Accounted, lab: Lab) -> Finding:
    """One finding: claimed and accounted epsilon, and the verdict that the ledger supports.

    Args:
        claim: What the transcript claims.
        accounted: The ledger's total at the delta and under the adjacency of the claim.
        lab: Its transcript names the fields.
    """
    mu = unmeasured(f"not everything that leaves is Gaussian: {accounted.reason}")
    metrics = {
        "accounted": Metric(value=accounted.epsilon, reason=accounted.reason),
        "accounted_stated": Metric(value=accounted.epsilon_stated),
        "mu": mu if accounted.mu is None else Metric(value=accounted.mu),
        "observed": unmeasured(f"not run: {NOT_DRAWN_AGAIN}"),
    }
    if isinstance(claim, NoClaim):
        metrics |= {"claimed": unmeasured("no claim")}
        return Finding(audit="dp_claim", metrics=metrics, verdict="not_run", reason=f"no claim: {claim.reason}")
    metrics |= {"claimed": Metric(value=claim.epsilon)}
    if claim.delta == 0:
        reason = "a claim of pure differential privacy (delta = 0) is not audited"
        return Finding(audit="dp_claim", metrics=metrics, verdict="not_run", reason=reason)
    found = claim_verdict(claim, accounted, None, NOT_DRAWN_AGAIN, None, lab)
    covered = f"; the claim speaks of {listed(claim.covers)} only" if claim.covers else ""
    return Finding(
        audit="dp_claim",
        metrics=metrics,
        verdict=found.verdict,
        reason=found.reason,
        assumptions=(
            f"claim: epsilon {claim.epsilon:g} at delta {claim.delta:g} under {claim.adjacency}, one record "
            f"({claim.source}){covered}",
            "accounted: everything that leaves, the worst record of any client, on the sensitivities and the "
            "noise that the transcript declares; whether the system really adds that noise was not tested",
        ),
    )
