"""Observed leakage as one number per cell, so that methods can be set against their accuracy.

No single number covers every attack, so there is one plot per measure, each defined here:

| measure | definition |
|---|---|
| `ssim_gain` | the largest SSIM above the baseline over a cell's reconstruction and inversion findings |
| `auc` | the largest area under the ROC curve over its membership findings |
| `observed` | the lower bound on epsilon that an attack showed (dp_claim) |

A finding that is `inconclusive` or `not_run` counts as not measured: an attack too weak to conclude
must not make a method look private.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.contracts.registry import every_audit
from fedassay.records.record import CellRecord, Metric, epsilon_metric


@dataclass(frozen=True)
class Measure:
    """One way to measure leakage.

    Attributes:
        name: Name of the metric.
        title: Axis label and column header.
        definition: Printed under the plot.
        of_findings: Whether findings hold it; else the cell's own privacy numbers do.
    """

    name: str
    title: str
    definition: str
    of_findings: bool = True

    @property
    def audits(self) -> list[str]:
        """The installed audits that declare it; their findings are read."""
        known = every_audit().items() if self.of_findings else ()
        return [audit for audit, facts in known if any(metric.name == self.name for metric in facts.metrics)]


MEASURES = (
    Measure(
        "ssim_gain",
        "SSIM gain over baseline",
        "The largest SSIM gain over its baseline among a cell's conclusive reconstruction and inversion "
        "findings, whatever source and selection; 0 or less means no better than without what was sent.",
    ),
    Measure(
        "auc",
        "Membership AUC",
        "The largest area under the ROC curve among a cell's conclusive membership findings; 0.5 is guessing.",
    ),
    Measure(
        "observed",
        "Observed ε",
        "The 95 % lower bound on epsilon that an attack on the release showed.",
        of_findings=False,
    ),
)


def leakage(cell: CellRecord, measure: Measure) -> Metric:
    """A cell's leakage by one measure; None with the reason where it was not measured."""
    if not measure.of_findings:
        if cell.observed is not None:
            return epsilon_metric(cell.observed)
        return Metric(value=None, reason=cell.privacy.reason or "no lower bound was measured")
    audits = measure.audits
    findings = [finding for finding in cell.findings if finding.audit in audits]
    if not findings:
        return Metric(value=None, reason=f"no {' or '.join(audits)} audit in this cell")
    measured = [
        finding.metrics[measure.name]
        for finding in findings
        if finding.verdict in {"leak", "no_leak_found"} and measure.name in finding.metrics
    ]
    values = [metric for metric in measured if metric.value is not None]
    if values:
        return max(values, key=lambda metric: metric.value if metric.value is not None else float("-inf"))
    weak = next((f for f in findings if f.verdict in {"inconclusive", "not_run"}), findings[0])
    return Metric(value=None, reason=weak.reason or f"no finding gives {measure.name}")
