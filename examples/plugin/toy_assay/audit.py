"""An audit of another package: are classes of a client so small that their sum is a record?"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedassay.audits.evidence import ControlResult, Figures, Result, Subject, by_arithmetic
from fedassay.audits.verdict import conclude
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.facts import AuditFacts, ReportSection, SarifRule
from fedassay.contracts.registry import register
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import View
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Limit, Metric
from fedassay.support.metrics import MetricFacts
from fedassay.support.types import Parameters


@register("audit", "toy_small_classes")
class ToySmallClasses(Parameters):
    """Whether classes of one record are summed up by themselves."""

    facts: ClassVar[AuditFacts] = AuditFacts(
        judges=("vectors",),
        metrics=(
            MetricFacts("toy_share", "Share alone", "Classes of one record, of all classes.", worse="higher"),
        ),
        place=ReportSection(title="Small classes"),
        rule=SarifRule("No class may be so small that its sum is a record.", taxa=("CWE-203",)),
        cost=lambda given, sizes, load: 0.1 * load.cells,
    )

    allowed: float = 0.0
    """Share of such classes up to which there is no leak."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding on all clients."""
        counts = {
            client.name: np.bincount(client.labels, minlength=context.data.classes)
            for client in context.data.clients
        }
        held = {(name, label) for name, own in counts.items() for label in np.flatnonzero(own)}
        alone = {(name, label) for name, label in held if counts[name][label] == 1}
        count, share = len(named(result) & alone), len(named(result) & alone) / len(held)
        # The same attack on classes that are known: all of one record, and all of two.
        classes = len(context.data.clients) * context.data.classes
        known, unknown = (len(named(context.attack(control(context, size)))) for size in (1, 2))
        return [
            conclude(
                Subject("toy_small_classes", result.attack, "classes"),
                Result(
                    by_arithmetic(share > self.allowed, "toy_share"),
                    f"{count} of {len(held)} classes hold one record, and are found",
                    harm=Harm(kind="exact", of="class", count=count, total=len(held), mechanism="class_sums"),
                    limit=lambda: Limit(metric="classes", value=1.0, n=len(held), of="class", planted="alone"),
                ),
                Figures({"toy_share": Metric(value=share, low=share, high=share, n=len(held))}),
                positive=ControlResult(
                    "classes of one record", known == classes, f"{known} of {classes} found", n=classes
                ),
                negative=ControlResult("classes of two records", unknown > 0, f"{unknown} found", n=classes),
            )
        ]


def named(result: AttackResult) -> set[tuple[str, int]]:
    """The classes that an attack takes for classes of one record: whose, and which."""
    return {
        (sender, int(label))
        for source in result.vectors
        for sender, label in zip(source.senders, source.labels, strict=True)
    }


def control(context: AttackedContext, records: int) -> View:
    """Messages of clients all of whose classes hold the same number of records."""
    feature = context.data.fresh.features[:1]
    fields = {
        "counts": MessageField(np.full(context.data.classes, float(records)), "class_counts", exact("labels")),
        "sums": MessageField(np.repeat(records * feature, context.data.classes, axis=0), "class_sums", exact()),
    }
    messages = tuple(Message(0, client.name, SERVER, fields) for client in context.data.clients)
    return View(messages, context.data.classes, context.view.threat)
