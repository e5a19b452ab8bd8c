"""Which harm a finding shows, by facts alone, and which of a release's is the worst.

Findings state their harm since schema 3. That of an older record, or of a third party's audit, is derived here and
nowhere else: from what the audit declares and from the finding's metrics and counts, never from its sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fedassay.contracts.facts import Threat
from fedassay.contracts.registry import attack_facts, audit_facts, judges_the_claim
from fedassay.records.facts import MEANS, NEAREST, RECOGNISABLE, Harm, HarmKind, Obstacle, Thing, rank
from fedassay.records.record import CellRecord, Finding, Metric
from fedassay.support.adjacency import UNIT_ORDER, Unit
from fedassay.support.registry import entries

FALSE_ALARMS = {"tpr_at_10pct": 0.1, "tpr_at_1pct": 0.01, "tpr_at_0.1pct": 0.001}
"""The rates of false alarms at which true-positive rates stand, by metric."""

BY_CLAIM = "claim"
"""What a limit is planted by that follows from a claim, and not from a run."""

_IMAGES = {"reconstructions", "inversions"}
"""Kinds of attack results that are images."""

BY_THREAT: dict[Threat, HarmKind] = {
    "model_inversion": "pictures",
    "regurgitation": "pictures",
    "data_reconstruction": "exact",
    "membership_inference": "members",
    "attribute_inference": "attributes",
}
"""What an audit looks for, by the first threat that it declares to test."""

_TOLD: dict[str, Thing] = {"persons_told": "person", "clients_told": "client", "records_told": "record"}
"""Counts of those that are told better than by chance, and of what."""

_OF_GROUPS: dict[Unit, tuple[str, ...]] = {
    "client": ("clients_told", "worst_client_told"),
    "person": ("persons_told", "persons_above_all", "worst_person_told"),
}
"""Metrics by which a finding is about more than single records, and about whom."""

_JOINTLY = "joint"
"""Selection of findings on all candidates at once, of whom the adversary has a list that leaves nobody out."""

_OF_CLIENTS = "clients"
"""Source of findings on whether a whole client took part, whatever was measured."""

_LIKENESS = ("ssim", "psnr", "misfit", "feature_cosine")
"""Metrics of images, those against the private images first."""

_EXACT = 1e-3
"""Relative error below which a feature counts as recovered exactly."""

_SHOWN = ("ssim_gain", "auc", "auc_swaps", "auc_clients", "worst_record", "heldout_gap", "fraction_recovered")
"""Metrics whose size orders harms of one kind of which no share is known; a larger one is worse."""


@dataclass(frozen=True)
class Leak:
    """A finding that shows a harm, with the cell that it was found in.

    Attributes:
        harm: What was taken.
        finding: Who shows it.
        cell: Where.
    """

    harm: Harm
    finding: Finding = field(repr=False)
    cell: CellRecord = field(repr=False)

    @property
    def order(self) -> tuple[float, float, float, float]:
        """Sorts leaks, the worst first: by kind, by share, by how many there are, and last by the effect."""
        shown = (_value(self.finding, name) for name in _SHOWN)
        effect = next((value for value in shown if value is not None), 0.0)
        return *rank(self.harm), -float(self.harm.count or self.harm.total or 0), -effect


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
    """Whether the same was asked of an adversary whose list holds everybody, whatever the plan gives it."""
    return finding.selection == _JOINTLY and not _of_stated_list(finding)


def harm_of(finding: Finding) -> Harm | None:
    """The harm that a finding shows: as stated, or derived where it states none; None where nothing leaks."""
    if finding.verdict not in ("leak", "unsound"):
        return None
    return _of_one_set(_whose(finding.harm or _derived(finding), finding), finding)


def _whose(harm: Harm, finding: Finding) -> Harm:
    """A harm of an older record, which calls nearest pictures names, and an artificial pair a record."""
    if harm.kind == "named" and harm.metric == NEAREST:
        facts = audit_facts(finding.audit)
        images = facts is not None and _IMAGES & set(facts.judges)
        return harm.model_copy(update={"kind": "pictures" if images else "members"})
    if (finding.source, finding.selection) == ("informed", "worst_case") and harm.of == "record":
        return harm.model_copy(update={"of": "worst_neighbours"})
    if harm.kind == "attributes" and harm.of == "client" and harm.count is None and harm.total == 1:
        # No client was told of where one message is all that is seen of them.
        return harm.model_copy(update={"of": "sum"})
    return harm


def _of_one_set(harm: Harm, finding: Finding) -> Harm:
    """A harm of an older record counts all that were tried beside the mean of those selected: of these alone.

    Beside a count of near copies its total is of the images that the attack made, and of no records.
    """
    selected = _size(finding, harm.metric) if harm.kind in MEANS else None
    if harm.count is not None and harm.metric in RECOGNISABLE:
        return harm.model_copy(update={"total": None, "metric": "", "value": None})
    if selected is None or harm.total is None or selected >= harm.total:
        return harm
    return harm.model_copy(update={"total": selected, "among": harm.total})


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
    """Whose taking part a finding looked for; None where it looked for labels, attributes or counts."""
    if kind_sought(finding) in ("attributes", "counts"):
        return None
    stated = None if finding.limit is None else finding.limit.of
    told: list[str] = ["client"] if finding.source == _OF_CLIENTS else []
    told += [unit for unit, names in _OF_GROUPS.items() if any(name in finding.metrics for name in names)]
    return next((unit for unit in reversed(UNIT_ORDER) if unit in (stated, *told)), "record")


def obstacle_of(finding: Finding) -> Obstacle | None:
    """Why a finding says nothing: as stated, or read off its controls; None where it says something."""
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


def _derived(finding: Finding) -> Harm:
    kind, source = kind_sought(finding), finding.source or ""
    facts = audit_facts(finding.audit)
    if kind == "pictures":
        if facts is not None and "generator" in facts.needs:
            return _copies(finding)
        return _pictures(finding)
    if kind == "exact":
        return _exact(finding)
    if kind == "members":
        return _members(finding)
    told, total = _count(finding, "senders_told"), _size(finding, "senders_told")
    of: Thing = "client" if kind == "attributes" else "release"
    return Harm(kind=kind, of=of, count=told, total=total, share=_share(told, total), mechanism=source)


def _pictures(finding: Finding) -> Harm:
    """Images of records: how many were compared, and how near they came."""
    name = next((name for name in _LIKENESS if _value(finding, name) is not None), "")
    size = _size(finding, name)
    if name in ("misfit", "feature_cosine"):
        # Without the private images nobody can say how near they came: a number of them is all there is.
        return Harm(kind="pictures", of="record", total=size, mechanism=finding.source or "")
    return Harm(
        kind="pictures",
        of="record",
        total=size,
        metric=name,
        value=_value(finding, name),
        mechanism=finding.source or "",
    )


def _copies(finding: Finding) -> Harm:
    """Images of a generator: copies where it gives records back, or else records that it tells from others."""
    copied, count = finding.metrics.get("copied"), _count(finding, "under_threshold")
    if count and (copied is None or (copied.low is not None and copied.low > 0)):
        total = _size(finding, "under_threshold")
        return Harm(
            kind="pictures",
            of="training_record",
            count=count,
            total=total,
            share=_share(count, total),
            metric="under_threshold",
            value=float(count),
            mechanism=finding.source or "",
        )
    return Harm(
        kind="members",
        of="training_record",
        metric="heldout_gap",
        value=_value(finding, "heldout_gap"),
        mechanism=finding.source or "",
    )


def _exact(finding: Finding) -> Harm:
    """Features or records that follow by arithmetic, with their share where it was measured."""
    share, total = _value(finding, "fraction_recovered"), _size(finding, "fraction_recovered")
    if share is not None and total is not None:
        metric = finding.metrics["fraction_recovered"]
        return Harm(
            kind="exact",
            of="record",
            count=round(share * total),
            total=total,
            share=share,
            low=_finite(metric.low),
            high=_finite(metric.high),
            metric="fraction_recovered",
            value=share,
            mechanism=finding.source or "",
        )
    agreed = _value(finding, "expected_error")
    if agreed is not None and agreed < _EXACT and _value(finding, "relative_error") is None:
        # A median of the vectors says of half of them that they are exact, and an older record no more.
        vectors = _size(finding, "expected_error")
        return Harm(
            kind="exact",
            of="record",
            total=vectors,
            share=0.5,
            low=0.5,
            high=1.0,
            metric="expected_error",
            value=agreed,
            mechanism=finding.source or "",
        )
    count = _count(finding, "vectors_certain")
    count = _size(finding, "relative_error") if count is None else count
    return Harm(
        kind="exact",
        of="record",
        count=count,
        metric="relative_error",
        value=_value(finding, "relative_error"),
        mechanism=finding.source or "",
    )


def _members(finding: Finding) -> Harm:
    """Who took part: named where single ones are told, or else likelier than chance."""
    for name, of in _TOLD.items():
        if count := _count(finding, name):
            total = _size(finding, name)
            return Harm(
                kind="named",
                of=of,
                count=count,
                total=total,
                share=_share(count, total),
                metric=name,
                value=float(count),
                mechanism=finding.source or "",
            )
    name = next((name for name in _SHOWN if _value(finding, name) is not None), "")
    return Harm(
        kind="members", of="record", metric=name, value=_value(finding, name), mechanism=finding.source or ""
    )


def _metric(finding: Finding, name: str) -> Metric | None:
    return finding.metrics.get(name)


def _value(finding: Finding, name: str) -> float | None:
    metric = _metric(finding, name)
    return None if metric is None else _finite(metric.value)


def _count(finding: Finding, name: str) -> int | None:
    value = _value(finding, name)
    return None if value is None else round(value)


def _size(finding: Finding, name: str) -> int | None:
    metric = _metric(finding, name)
    return None if metric is None or metric.value is None else metric.n


def _share(count: int | None, total: int | None) -> float | None:
    return count / total if count is not None and total else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
