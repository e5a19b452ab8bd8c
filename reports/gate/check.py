"""A run held against a policy, with the files that a CI job reads."""

from __future__ import annotations

from pathlib import Path

from fedassay.records.record import RunRecord
from fedassay.reports.gate.judging import Outcome, judge
from fedassay.reports.gate.junit import junit as junit_text
from fedassay.reports.gate.policy import Policy
from fedassay.reports.gate.sarif import sarif as sarif_text
from fedassay.support.atomic import write_text
from fedassay.support.errors import PlanError


def check_record(
    record: RunRecord, policy: Policy, sarif: Path | None = None, junit: Path | None = None
) -> Outcome:
    """Hold a run against a policy.

    Args:
        record: The run.
        policy: The policy.
        sarif: Where to write findings and judgements as SARIF, if anywhere.
        junit: Where to write them as JUnit XML, if anywhere.

    Raises:
        PlanError: A file cannot be written.
    """
    outcome = Outcome(policy.name, tuple(judge(record, policy)))
    for path, text in ((sarif, sarif_text), (junit, junit_text)):
        if path is None:
            continue
        try:
            write_text(path, text(record, outcome))
        except OSError as error:
            raise PlanError(f"{path}: cannot be written ({error.strerror}); name another file") from None
    return outcome
