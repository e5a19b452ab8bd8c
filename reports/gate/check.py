"""A run folder held against a policy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fedassay.records.record import RunRecord, load_record
from fedassay.reports.gate.baseline import differences
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.gate.judging import Outcome, judged
from fedassay.reports.gate.policy import Policy
from fedassay.reports.gate.required import required_now
from fedassay.reports.gate.verify import tables_unlike
from fedassay.reports.gate.vouching import refuse_contradictions, same_code, vouched
from fedassay.support.errors import DataError
from fedassay.support.text import cut


def check_run(
    run: Path,
    policy: Policy,
    *,
    key: Path | None = None,
    unverified: bool = False,
    record: RunRecord | None = None,
    baseline: RunRecord | None = None,
    method: str | None = None,
) -> Outcome:
    """Hold a run folder against a policy, trusting nothing that can be computed again.

    A run without a statement that vouches for it cannot be decided, unless that is waived.

    Args:
        run: The run folder, or a record.json.
        policy: The policy.
        key: The public key (PEM) of the run's required signer; None: no signature is required.
        unverified: Decide on a run that nothing vouches for; a contradictory one is refused all the same.
        record: The record of that folder, read before; None: it is read.
        baseline: An earlier run that this one must not be worse than; None: none.
        method: The method entry that the earlier run is asked about, by label or name; None: all.

    Raises:
        DataError: There is no record, or it is not what was written, or `key` did not sign it.
        PlanError: The key cannot be read.
    """
    held = load_record(run)
    if record is not None and record != held:
        raise DataError(f"{run}: its record is no longer the one that was read")
    found = vouched(run, held, key)
    folder = run if run.is_dir() else run.parent
    if found.files and same_code(held):
        found = replace(found, problems=(*found.problems, *tables_unlike(folder, held)))
    refuse_contradictions(run, found)
    outcome = judged(held, policy)
    judgements = [*outcome.judgements]
    judgements += required_now(held, policy.requires, found.signer, datetime.now(UTC))
    lacks = (*found.missing, *found.open)
    words = f"It is not verified: {cut(lacks[0], 200)}. {found.words}" if lacks else found.words
    if lacks and not unverified:
        why = f"{lacks[0]}{f' (and {len(lacks) - 1} more)' if len(lacks) > 1 else ''}"
        judgements.append(Judgement("verified", "", "undecided", f"{why}; --unverified decides all the same"))
    changed = None if baseline is None else tuple(differences(held, baseline, method))
    return replace(outcome, judgements=tuple(judgements), provenance=words, changed=changed)


def check_record(record: RunRecord, policy: Policy) -> Outcome:
    """Hold the record of a run that this process made against a policy."""
    outcome = judged(record, policy)
    now = required_now(record, policy.requires, None, datetime.now(UTC))
    return replace(outcome, judgements=(*outcome.judgements, *now))
