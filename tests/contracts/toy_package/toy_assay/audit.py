"""An audit of another package: is a class of a client so small that its sum is a record?"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.facts import AuditFacts, MetricFacts, Place, SarifRule
from fedassay.contracts.registry import register
from fedassay.records.record import Controls, Finding, Metric, NegativeControl, PositiveControl
from fedassay.support.types import Parameters


@register("audit", "toy_small_classes")
class ToySmallClasses(Parameters):
    """Whether classes of one record are summed up by themselves."""

    facts: ClassVar[AuditFacts] = AuditFacts(
        judges=("vectors",),
        metrics=(
            MetricFacts("toy_share", "Share alone", "Classes of one record, of all classes.", worse="higher"),
        ),
        place=Place(title="Small classes"),
        rule=SarifRule("No class may be so small that its sum is a record.", taxa=("CWE-203",)),
        cost=lambda given, sizes, load: 0.1 * load.cells,
    )

    allowed: float = 0.0
    """Share of such classes up to which there is no leak."""

    def assess(self, result: AttackResult | None, context: AuditContext) -> list[Finding]:
        """One finding on all clients."""
        assert result is not None
        counts = [np.bincount(client.labels, minlength=context.classes) for client in context.clients]
        alone, held = sum(int((part == 1).sum()) for part in counts), sum(int((part > 0).sum()) for part in counts)
        share = alone / held
        return [
            Finding(
                audit="toy_small_classes",
                attack=result.attack,
                source="classes",
                metrics={"toy_share": Metric(value=share, low=share, high=share, n=held)},
                controls=Controls(
                    positive=PositiveControl(release="a class of one record", caught=True),
                    negative=NegativeControl(release="a class of two records", flagged=False),
                ),
                verdict="leak" if share > self.allowed else "no_leak_found",
                reason=f"{alone} of {held} classes hold one record",
            )
        ]
