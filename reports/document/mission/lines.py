"""Rows of the mission's table: one method at one epsilon, from the findings of its cells.

The strongest finding stands for each kind of attack: a leak before silence, silence before an undecided result,
images of everybody before images of a few, and then the figure that gives most away. An undecided number is never
left out: it stands there with the reason in two words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.metrics import SSIM
from fedassay.contracts.registry import audit_facts, every_audit
from fedassay.records.record import CellRecord, Finding, Metric, RunRecord, Verdict, epsilon_metric
from fedassay.reports.document.mission.reasons import NO_CLAIM, absent, undecided
from fedassay.reports.document.privacy_tables import utility_over_seeds
from fedassay.reports.gate.usefulness import majority
from fedassay.reports.words.groups import Group, groups, over_seeds
from fedassay.reports.words.verdicts import worst
from fedassay.support.epsilon import Epsilon, largest
from fedassay.support.metrics import MetricFacts

_COPIES, _MEMBERS = "under_threshold", "auc"
"""The metrics by which an audit is known to look for copies, and for members."""

_MADE = frozenset({"reconstructions", "inversions"})
"""Kinds of results that are images."""

_EVERYBODY = frozenset({"all", "oracle_all", None})
"""Selections that score every private image, not a part that somebody chose."""

_ARTIFICIAL = frozenset({"worst_case"})
"""Selections of records that no client holds: they are no members, and speak of the claim alone."""

_DECIDED: Mapping[Verdict, int] = {"leak": 3, "no_leak_found": 2, "inconclusive": 1, "not_run": 0}

_UNMEASURED = Metric(value=None, reason="not measured")


@dataclass(frozen=True)
class Strongest:
    """Result of the strongest attack of a kind.

    Attributes:
        audit: The kind: the audit that judges it.
        why: Reason why nothing is decided, in two words; empty where something is.
        reason: The whole reason.
        verdict: Over seeds.
        finding: The strongest finding of the first seed that has one.
        metrics: Its figures, over seeds.
        baseline: The same without the attack: for images, those of look-alikes.
    """

    audit: str
    why: str
    reason: str
    verdict: Verdict
    finding: Finding | None = field(default=None, repr=False)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    baseline: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        """Whether something follows."""
        return not self.why

    def lead(self, first: str) -> tuple[MetricFacts, Metric] | None:
        """The figure that stands for the whole: the named one, else the first declared one that was measured."""
        facts = audit_facts(self.audit)
        declared = () if facts is None else facts.metrics
        ordered = sorted(declared, key=lambda metric: metric.name != first)
        for metric in ordered:
            found = self.metrics.get(metric.name)
            if found is not None and found.value is not None:
                return metric, found
        return None


@dataclass(frozen=True)
class Line:
    """A method at one epsilon, over its seeds.

    Attributes:
        group: The group of releases.
        accuracy: Of its model.
        majority: Accuracy of always naming the largest class.
        images: The strongest attack of every kind that makes images; of a generator, in the place of the first
            kind, the samples that are most like its records.
        copies: Strongest finding on copies that a generator gives back.
        members: Strongest finding on membership.
        claim: The verdict on its claim.
        no_claim: Reason why there is none, in two words; empty where there is one.
        claimed: Epsilon.
        observed: The largest that an attack showed, over seeds.
    """

    group: Group
    accuracy: Metric
    majority: Metric
    images: tuple[Strongest, ...]
    copies: Strongest
    members: Strongest
    claim: Verdict
    no_claim: str
    claimed: Metric
    observed: Metric


def image_audits() -> list[str]:
    """The audits that judge images which attacks made of private ones, in the order of a report."""
    found = [(name, facts) for name, facts in every_audit().items() if _MADE & set(facts.judges)]
    return [name for name, _ in sorted(found, key=lambda item: (item[1].place.order, item[0]))]


def has_images(record: RunRecord) -> bool:
    """Whether the run is about images: an audit of its plan judges some, or a finding has their likeness."""
    asked = record.plan.get("audits") if isinstance(record.plan, dict) else None
    named = {name for entry in asked or () if isinstance(entry, dict) for name in entry}
    if named & set(image_audits()) and not record.plan.get("transcript"):
        return True
    found = (finding for cell in record.cells for finding in cell.findings)
    return any(_value(finding.metrics, SSIM.name) is not None for finding in found)


def lines(record: RunRecord) -> tuple[Line, ...]:
    """The rows of the mission's table in the record's order; none where the run has no images."""
    return tuple(line_of(group) for group in groups(record)) if has_images(record) else ()


def missing_groups(record: RunRecord) -> tuple[tuple[str, Epsilon], ...]:
    """Methods and epsilons missing from a stopped run: the name as `Group.name`, and the epsilon asked for."""
    if record.unfinished is None:
        return ()
    held = {(group.name, group.asked) for group in groups(record)}
    wanted = dict.fromkeys(
        (cell.label if cell.label == cell.method else f"{cell.label} ({cell.method})", cell.asked)
        for cell in record.unfinished.cells
    )
    return tuple(each for each in wanted if each not in held)


def line_of(group: Group) -> Line:
    """The row of a method at one epsilon."""
    images = [_strongest(group, audit, SSIM.name) for audit in image_audits()]
    copies = _strongest(group, copies_audit(), _COPIES)
    samples = copies.metrics.get(SSIM.name)
    # A receiver of a generator has rebuilt a record by the most similar sample.
    if images and SSIM.name not in images[0].metrics and samples is not None and samples.value is not None:
        images[0] = copies
    return Line(
        group=group,
        accuracy=utility_over_seeds(group, "accuracy"),
        majority=over_seeds(group.cells, lambda cell: majority(cell).value, "not on record"),
        images=tuple(images),
        copies=copies,
        members=_strongest(group, members_audit(), _MEMBERS),
        claim=worst(cell.privacy.verdict for cell in group.cells),
        no_claim=NO_CLAIM if all(_claims_nothing(cell) for cell in group.cells) else "",
        claimed=epsilon_metric(largest(cell.claimed for cell in group.cells)),
        observed=epsilon_metric(largest(cell.observed for cell in group.cells)),
    )


def copies_of(found: Strongest) -> tuple[MetricFacts, Metric] | None:
    """Number of a generator's images that are copies."""
    return found.lead(_COPIES)


def members_of(found: Strongest) -> tuple[MetricFacts, Metric] | None:
    """Figure of how well members are inferred."""
    return found.lead(_MEMBERS)


def copies_audit() -> str:
    """The audit that looks for copies among generated images."""
    return _audit_of(_COPIES)


def members_audit() -> str:
    """The audit that looks for members."""
    return _audit_of(_MEMBERS)


def _claims_nothing(cell: CellRecord) -> bool:
    claimed = cell.claimed
    return claimed is None or not claimed.finite


def _audit_of(metric: str) -> str:
    """The first audit that declares a metric; the metric's name where none is installed."""
    return next((name for name, facts in every_audit().items() if _declares(facts, metric)), metric)


def _declares(facts: AuditFacts, metric: str) -> bool:
    return any(declared.name == metric for declared in facts.metrics)


def _strongest(group: Group, audit: str, metric: str) -> Strongest:
    """The strongest finding of an audit in each cell of a group, put together over seeds."""
    found = [(cell, finding) for cell in group.cells if (finding := _of_cell(cell, audit, metric)) is not None]
    if not found:
        why = absent(group.cells[0], audit)
        return Strongest(audit, why, f"no finding of {audit.replace('_', ' ')} in this cell", "not_run")
    open_ = [(undecided(cell, finding), finding) for cell, finding in found]
    why, first = next(((why, finding) for why, finding in open_ if why), ("", found[0][1]))
    findings = [finding for _, finding in found]
    return Strongest(
        audit=audit,
        why=why,
        reason=first.reason,
        verdict=worst(finding.verdict for finding in findings),
        finding=found[0][1],
        metrics=_joined(group, [finding.metrics for finding in findings]),
        baseline=_joined(group, [finding.baseline for finding in findings]),
    )


def _of_cell(cell: CellRecord, audit: str, metric: str) -> Finding | None:
    """The finding of an audit that speaks for a cell."""
    own = [f for f in cell.findings if f.audit == audit and f.selection not in _ARTIFICIAL]
    return max(own, key=_strength(metric), default=None)


def _strength(metric: str) -> Callable[[Finding], tuple[int, bool, bool, float, float]]:
    def strength(finding: Finding) -> tuple[int, bool, bool, float, float]:
        value = _value(finding.metrics, metric)
        gain = _value(finding.metrics, f"{metric}_gain")
        known = -math.inf if value is None else value
        return (
            _DECIDED.get(finding.verdict, 0),
            value is not None,
            finding.selection in _EVERYBODY,
            known if gain is None else gain,
            known,
        )

    return strength


def _value(metrics: Mapping[str, Metric], name: str) -> float | None:
    found = metrics.get(name)
    return None if found is None else found.value


def _joined(group: Group, held: Sequence[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Figures by name: of a single finding as they are, of several the mean over seeds with its range."""
    if len(held) == 1:
        return dict(held[0])
    names = dict.fromkeys(name for metrics in held for name in metrics)
    return {name: _over(group, [metrics.get(name, _UNMEASURED) for metrics in held]) for name in names}


def _over(group: Group, metrics: Sequence[Metric]) -> Metric:
    values = iter([metric.value for metric in metrics])
    missing = next((metric.reason for metric in metrics if metric.value is None), "not measured")
    found = over_seeds(group.cells[: len(metrics)], lambda _: next(values), missing)
    return found.model_copy(update={"unit": metrics[0].unit})
