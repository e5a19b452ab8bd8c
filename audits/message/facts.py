"""What the audit of messages declares."""

from __future__ import annotations

from fedassay.contracts.facts import AuditFacts, MetricFacts, Place, SarifRule
from fedassay.plan import rates as rate

MESSAGE = AuditFacts(
    judges=("vectors", "remarks", "counts"),
    metrics=(
        MetricFacts(
            "relative_error",
            "Relative error",
            "Of recovered features, median over recovered records.",
            worse="lower",
        ),
        MetricFacts(
            "cosine",
            "Cosine",
            "Of recovered with true features, median over recovered records.",
            worse="higher",
        ),
    ),
    place=Place("attacks", "Message algebra", order=50, always=True),
    rule=SarifRule(
        "Records must not follow from a message by algebra.",
        taxa=("CWE-359", "AML.T0024.001", "ML03"),
        help="Arithmetic gives records away: add noise before sending, sum over more clients, or drop the field.",
    ),
    threats=("data_reconstruction",),
    tests_per_cell=6,
    cost=lambda given, sizes, load: rate.AUDIT * load.cells,
)
