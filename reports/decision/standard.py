"""The policy that a run is held to where none is named: one of those that ship."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

from fedassay.records.record import RunRecord
from fedassay.reports.gate.judging import judged
from fedassay.reports.gate.policy import Policy, load_policy
from fedassay.support.text import plain


def standard_policy(record: RunRecord) -> Policy:
    """The policy that a plan names, else `strict`; `messages` for captured ones, where less can be known."""
    return load_policy(_shipped(standard_name(record)))


def check_command(policy: str) -> str:
    """The command that shows every rule of a policy; RUN is the run folder, POLICY a file of one's own."""
    return f"fedassay check RUN{_held(policy)} --verbose"


def asking(record: RunRecord, policy: str, method: str | None, epsilon: float | None) -> str:
    """Options by which a command speaks of these releases under this policy, where it would not without them."""
    found = "" if method is None else f" --method {shlex.quote(plain(method))}"
    found += "" if epsilon is None else f" --epsilon {repr(epsilon).removesuffix('.0')}"
    return found + ("" if policy == standard_name(record) else _held(policy))


def _held(policy: str) -> str:
    return f" --policy {policy if _shipped(policy).is_file() else 'POLICY'}"


def _shipped(name: str) -> Path:
    return Path(str(resources.files("fedassay"))) / "configs" / "policies" / f"{name}.yaml"


def standard_name(record: RunRecord) -> str:
    """Name of the shipped policy that fits a run."""
    if not isinstance(record.plan, dict):
        return "strict"
    if "transcript" in record.plan:
        return "messages"
    return record.plan.get("policy") or "strict"


def decision_on(record: RunRecord) -> dict[str, str]:
    """Decision in the statement of a run: the policy, by name and digest, and the outcome."""
    policy = standard_policy(record)
    outcome = {0: "pass", 1: "broken", 2: "undecided"}[judged(record, policy).exit_code]
    return {"policy": policy.name, "sha256": policy.digest, "outcome": outcome}
