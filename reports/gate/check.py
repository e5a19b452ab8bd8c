"""A run held against a policy, with the files that a CI job reads."""

from __future__ import annotations

from pathlib import Path

from fedassay.records.record import RunRecord
from fedassay.reports.document.output import write_page
from fedassay.reports.gate.judging import Outcome, judged
from fedassay.reports.gate.junit import junit as junit_text
from fedassay.reports.gate.policy import Policy
from fedassay.reports.gate.sarif import sarif as sarif_text


def check_record(
    record: RunRecord, policy: Policy, sarif: Path | None = None, junit: Path | None = None
) -> Outcome:
    """Hold a run against a policy.

    Args:
        record: The run.
        policy: The policy.
        sarif: Where to write findings and judgements as SARIF, if anywhere; `-` for standard output.
        junit: Where to write them as JUnit XML, if anywhere; likewise.

    Raises:
        PlanError: A file cannot be written.
    """
    outcome = judged(record, policy)
    if sarif is not None:
        write_page(sarif_text(record, outcome, policy), sarif)
    if junit is not None:
        write_page(junit_text(record, outcome), junit)
    return outcome
