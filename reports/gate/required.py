"""Requirements of a policy on a run: its plan, its data, its age, the version that made it, and its signer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from fedassay.records.basis import data_digest, plan_digest
from fedassay.records.record import RunRecord
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.gate.policy import Requires

_DAY = 86_400.0


def required(record: RunRecord, requires: Requires) -> Iterator[Judgement]:
    """The rules that the record alone decides: plan, data and version."""
    data = data_digest((cell.seed, cell.basis) for cell in record.cells)
    for name, allowed, found in (
        ("plan", requires.plan, plan_digest(record.plan)),
        ("data", requires.data, data),
        ("versions", requires.versions, record.environment.get("fedassay")),
    ):
        if allowed:
            yield _one_of(name, allowed, found)


def _one_of(name: str, allowed: Collection[str], found: object) -> Judgement:
    rule = f"requires {name}"
    what = {"plan": "the plan", "data": "the data", "versions": "the version of fedassay"}[name]
    if not isinstance(found, str):
        return Judgement(rule, "", "undecided", f"the record does not say {what}")
    if found in allowed:
        return Judgement(rule, "", "pass", f"{what} is one that the policy names")
    return Judgement(rule, "", "broken", f"{what} is {found}, which the policy does not name")


def required_now(record: RunRecord, requires: Requires, signer: str | None, now: datetime) -> Iterator[Judgement]:
    """The rules that the record alone does not decide.

    Args:
        record: The run.
        requires: The requirements.
        signer: SHA-256 of the public key that the signature was checked with; None: none was.
        now: The present time, UTC.
    """
    if requires.days is not None:
        yield _age(record, requires.days, now)
    if not requires.signers:
        return
    rule = "requires signers"
    if signer is None:
        yield Judgement(rule, "", "undecided", "the policy names signers: give the signer's key with --key")
    elif signer in requires.signers:
        yield Judgement(rule, "", "pass", "the signer is one that the policy names")
    else:
        yield Judgement(rule, "", "broken", f"the policy does not name the run's signer, the key {signer}")


def _age(record: RunRecord, days: float, now: datetime) -> Judgement:
    rule = "requires days"
    try:
        ended = datetime.fromisoformat(str(record.environment.get("finished")))
        age = (now - (ended if ended.tzinfo else ended.replace(tzinfo=UTC))).total_seconds() / _DAY
    except (ValueError, OverflowError):
        return Judgement(rule, "", "undecided", "the record does not say when the run ended")
    if age < -1:
        return Judgement(rule, "", "undecided", "by its record the run ended after the present time")
    if age > days:
        return Judgement(rule, "", "broken", f"the run is {age:.1f} days old, above the maximum of {days:g}")
    return Judgement(rule, "", "pass", f"the run is {max(age, 0.0):.1f} days old, within {days:g}")
