"""Two-word reasons in the mission's table where a number is missing or decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.metrics import LPIPS
from fedassay.contracts.registry import attack_facts, audit_facts
from fedassay.records.facts import ObstacleKind
from fedassay.records.record import CellRecord, Finding, RunRecord
from fedassay.reports.words.allowed import settled
from fedassay.reports.words.harms import obstacle_of
from fedassay.support.errors import PlanError
from fedassay.support.registry import entries

BOUNDED = "claim bounds it"
NOT_RUN = "not run"
UNFINISHED = "not finished"
NO_CLAIM = "no claim"
OWN_FEATURES = "own features"

_WORDS: Mapping[ObstacleKind, str] = {
    "records_missing": "few records",
    "control_missed": "control missed",
    "control_faint": "control faint",
    "control_flagged": "false alarms",
    "confounded": "other cause",
    "worse_than_baseline": "too weak",
    "between_levels": "not significant",
    "no_power": "few records",
    "nothing_to_read": "nothing readable",
    "other_features": OWN_FEATURES,
    "not_in_plan": NOT_RUN,
    "not_judged": "not judged",
    "signed_features": "signed features",
    "too_large": "too large",
    "asked_elsewhere": "asked elsewhere",
    "not_possible": "not testable",
    "crashed": "attack crashed",
    "unstated": "not decided",
}

_READ = (
    ("no generator", ("generator",)),
    ("no vectors", ("features", "class_means", "mixture_means")),
    ("no gradient", ("gradient",)),
    ("no model", ("model", "parameters", "head")),
)
"""Missing input in two words where the attacks have nothing to read, by the kinds that they read."""


def undecided(cell: CellRecord, finding: Finding) -> str:
    """Return the reason why a finding decides nothing; empty where it decides."""
    if finding.verdict in {"leak", "no_leak_found"}:
        return ""
    if settled(cell, finding):
        return BOUNDED
    found = obstacle_of(finding)
    if found is None:
        return _WORDS["unstated"]
    if found.kind == "nothing_to_read":
        return unread([finding.attack] if finding.attack else [], audit_facts(finding.audit))
    return _WORDS[found.kind]


def absent(cell: CellRecord, audit: str) -> str:
    """Return the reason why a cell has no finding of an audit: not run, or nothing sent that it applies to."""
    facts = audit_facts(audit)
    applying = {row.attack for row in cell.coverage}
    if facts is None or not cell.coverage or audit in applying:
        return NOT_RUN
    attacks = _judged(facts)
    if applying & set(attacks):
        return NOT_RUN
    return OWN_FEATURES if _sends_vectors(cell, attacks) else unread(attacks, facts)


def _sends_vectors(cell: CellRecord, attacks: Iterable[str]) -> bool:
    """Whether clients send vectors that attacks read, were they features of the backbone."""
    sent = {row.kind for row in cell.ledger if row.direction == "up"}
    return any(attack_facts(name).features_of and attack_facts(name).applies(sent) for name in attacks)


def _judged(facts: AuditFacts) -> list[str]:
    """The installed attacks that an audit judges."""
    found = []
    for name in entries("attack"):
        try:
            if facts.judge(attack_facts(name)):
                found.append(name)
        except PlanError:
            continue  # another package's, and broken: that is said where it is asked for
    return found


def unread(attacks: Iterable[str], facts: AuditFacts | None) -> str:
    """Return the missing input where attacks, or an audit that attacks by itself, have nothing to read."""
    kinds = {"generator"} if facts is not None and "generator" in facts.needs else set[str]()
    for name in attacks:
        if name not in entries("attack"):
            continue  # a record may name an attack that is not installed
        kinds = kinds.union(*attack_facts(name).alternatives)
    return next((words for words, read in _READ if kinds & set(read)), _WORDS["nothing_to_read"])


def unmeasured(record: RunRecord, metric: str) -> str:
    """Return the reason, in two words, why a finding with other figures lacks one of images."""
    if metric != LPIPS.name:
        return "no truth"
    asked = record.plan.get("similarity") if isinstance(record.plan, dict) else None
    return "no trunk" if isinstance(asked, dict) and asked.get("lpips") else "switched off"
