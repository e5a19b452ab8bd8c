"""The informed adversary: it knows every record of a client but one.

- `worst_case`: noised statistics that the method names, on the neighbours that are worst for them.
- `real_records`: the same on a client's real records (both: `statistics`).
- `differencing`: releases without noise (`differencing`).

The first two need a claim: its (epsilon, delta) holds for exactly these neighbours; their trials are independent
releases.
"""

from __future__ import annotations

from collections.abc import Callable

from fedassay.audits.membership.differencing import differencing
from fedassay.audits.membership.judging import membership
from fedassay.audits.membership.statistics import real_records, worst_case
from fedassay.audits.verdict import not_run
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.release import PrivacyClaim
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError


def informed_findings(context: AuditContext, *, trials: int, releases: int) -> list[Finding]:
    """Findings of the informed adversary on a context's outcome; none where it was not asked for.

    Args:
        context: The outcome, the records and the method.
        trials: Of `differencing`.
        releases: On either side, of the other two.
    """
    claim = context.outcome.transcript.claim
    if isinstance(claim, PrivacyClaim):
        # A training that is private step by step names no statistic; dp_claim's canaries ask this of it.
        if not releases or not context.outcome.mechanisms:
            return []
        return [
            _guarded("worst_case", lambda: worst_case(context, claim, releases)),
            _guarded("real_records", lambda: real_records(context, claim, releases)),
        ]
    return [_guarded("differencing", lambda: differencing(context, trials))] if trials else []


def _guarded(selection: str, find: Callable[[], Finding]) -> Finding:
    try:
        return find()
    except NotRunError as error:
        return not_run(membership("informed", selection), error.why)
