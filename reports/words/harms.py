"""Harm of a finding, by facts alone, and the worst harm of a release.

Findings state their harm. For a third party's audit that states none only the kind is known, from its threats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedassay.contracts.facts import Threat
from fedassay.contracts.registry import attack_facts, audit_facts, judges_the_claim, metrics
from fedassay.records.facts import HARMS, NEAREST, Harm, HarmKind, Obstacle
from fedassay.records.record import CellRecord, Finding
from fedassay.support.adjacency import UNIT_ORDER, Unit
from fedassay.support.registry import entries

FALSE_ALARMS = {"tpr_at_10pct": 0.1, "tpr_at_1pct": 0.01, "tpr_at_0.1pct": 0.001}
"""The rates of false alarms at which true-positive rates stand, by metric."""

BY_CLAIM = "claim"
"""Name of a planted leak for limits that follow from a claim, and not from a run."""

_IMAGES = {"reconstructions", "inversions"}
"""Kinds of attack results that are images."""

BY_THREAT: dict[Threat, HarmKind] = {
    "model_inversion": "pictures",
    "regurgitation": "pictures",
    "data_reconstruction": "exact",
    "membership_inference": "members",
    "attribute_inference": "attributes",
}
"""Harm that an audit looks for, by the first threat that it declares to test."""

_TOLD = ("persons_told", "clients_told", "records_told")
"""Metrics for counts of units that are inferred better than by chance."""

_OF_GROUPS: dict[Unit, tuple[str, ...]] = {
    "client": ("clients_told", "worst_client_told"),
    "person": ("persons_told", "persons_above_all", "worst_person_told"),
}
"""Metrics by which a finding is about more than single records, and about whom."""

_JOINTLY = "joint"
"""Selection of findings on all candidates at once: the adversary's list leaves no record out."""

_OF_CLIENTS = "clients"
"""Source of findings on whether a whole client took part, whatever was measured."""

_SHOWN = ("ssim_gain", "auc", "auc_swaps", "auc_clients", "worst_record", "heldout_gap", "fraction_recovered")
"""Metrics that order harms of one kind without a known share by size; a larger one is worse."""


@dataclass(frozen=True)
class Leak:
    """A finding that shows a harm, with the cell that it was found in.

    Attributes:
        harm: The harm.
        finding: The finding that shows it.
        cell: The cell of the finding.
    """

    harm: Harm
    finding: Finding = field(repr=False)
    cell: CellRecord = field(repr=False)

    @property
    def order(self) -> tuple[float, float, float, float]:
        """Sorts leaks, the worst first: by kind, by share, by how many there are, and last by the effect."""
        shown = (self.finding.metrics.get(name) for name in _SHOWN)
        effect = next((each.value for each in shown if each is not None and each.value is not None), 0.0)
        return *rank(self.harm), -float(self.harm.count or self.harm.total or 0), -effect


def faint(harm: Harm) -> bool:
    """Whether images come closer than the attacker's own, and are too unlike the private ones to be known."""
    if harm.kind == "pictures" and harm.metric == NEAREST:
        return True
    if harm.kind != "pictures" or harm.count is not None or harm.value is None:
        return False
    facts = metrics().get(harm.metric)
    return facts is not None and facts.recognisable is not None and harm.value < facts.recognisable


def rank(harm: Harm) -> tuple[float, float]:
    """Sorts harms, the worst first: by kind, then by share, the larger first.

    Faint images come after the named, and an artificial worst pair after harms to records of the run.
    """
    share = harm.share
    if share is None and harm.count is not None and harm.whole:
        share = harm.count / harm.whole
    place = HARMS.index("named") + 0.5 if faint(harm) else float(HARMS.index(harm.kind))
    place += 0.5 * (harm.of == "worst_neighbours")
    return place, -(share or 0.0)


def leaks(cells: Iterable[CellRecord]) -> list[Leak]:
    """Every harm that the findings of some cells show, the worst first."""
    found = [
        Leak(harm, finding, cell)
        for cell in cells
        for finding in cell.findings
        if not judges_the_claim(finding.audit) and (harm := harm_of(finding)) is not None
    ]
    answered = {id(leak.cell) for leak in found if _of_stated_list(leak.finding)}
    kept = [leak for leak in found if not (of_full_list(leak.finding) and id(leak.cell) in answered)]
    return sorted(kept, key=lambda leak: leak.order)


def _of_stated_list(finding: Finding) -> bool:
    """Whether an adversary was asked who has the list of candidates that the plan gives it, and no other."""
    return finding.attack in entries("attack") and attack_facts(finding.attack).takes_gallery


def of_full_list(finding: Finding) -> bool:
    """Whether the same was asked for an adversary with a list of everybody, whatever the plan gives it."""
    return finding.selection == _JOINTLY and not _of_stated_list(finding)


def harm_of(finding: Finding) -> Harm | None:
    """The harm that a finding shows: as stated, or of the kind that it looks for; None where nothing leaks."""
    if finding.verdict not in ("leak", "unsound"):
        return None
    return finding.harm or Harm(kind=kind_sought(finding), of="record", mechanism=finding.source or "")


def kind_sought(finding: Finding) -> HarmKind:
    """The harm that a finding looked for, whether it found it or not."""
    if finding.harm is not None:
        return finding.harm.kind
    facts, metrics = audit_facts(finding.audit), finding.metrics
    if facts is not None and _IMAGES & set(facts.judges):
        return "pictures"
    if "senders_told" in metrics or "total_variation" in metrics:
        return "attributes"
    if "rules_met" in metrics:
        return "counts"
    threats = () if facts is None else facts.threats
    if "membership_inference" in threats and finding.selection == "property":
        return "attributes"
    return next((BY_THREAT[threat] for threat in threats), "attributes")


def names(finding: Finding) -> bool:
    """Whether a finding looked for who took part by name: from a list of candidates, or one at a time."""
    return _of_stated_list(finding) or of_full_list(finding) or any(name in finding.metrics for name in _TOLD)


def unit_sought(finding: Finding) -> Unit | None:
    """Unit of the participation that a finding looked for; None for labels, attributes or counts."""
    if kind_sought(finding) in ("attributes", "counts"):
        return None
    stated = None if finding.limit is None else finding.limit.of
    told: list[str] = ["client"] if finding.source == _OF_CLIENTS else []
    told += [unit for unit, names in _OF_GROUPS.items() if any(name in finding.metrics for name in names)]
    return next((unit for unit in reversed(UNIT_ORDER) if unit in (stated, *told)), "record")


def obstacle_of(finding: Finding) -> Obstacle | None:
    """Return the obstacle to a finding: as stated, or read off its controls; None where it says something."""
    if finding.verdict not in ("inconclusive", "not_run"):
        return None
    if finding.obstacle is not None:
        return finding.obstacle
    positive, negative = finding.controls.positive, finding.controls.negative
    if negative is not None and negative.flagged:
        return Obstacle(kind="control_flagged")
    if positive is not None and not positive.caught:
        return Obstacle(kind="control_missed")
    return Obstacle(kind="unstated")


def worked(finding: Finding) -> bool:
    """Whether the attack was caught on all of the method's own messages without privacy, whatever it missed."""
    own = [control.detected for control in finding.all_controls if control.role == "end_to_end"]
    return bool(own) and all(own)
