"""What the inversion audit declares."""

from __future__ import annotations

from fedassay.contracts.facts import AuditFacts, Place, SarifRule
from fedassay.contracts.metrics import IDENTIFIED, IMAGES
from fedassay.plan import rates as rate

INVERSION = AuditFacts(
    judges=("inversions",),
    metrics=(*IMAGES, *IDENTIFIED),
    place=Place("attacks", "Inversion", order=20, always=True),
    rule=SarifRule(
        "Images must not be recovered by inverting the feature extractor.",
        taxa=("CWE-359", "AML.T0024.001", "ML03"),
        help="Images follow from what is sent: add noise, or send statistics over more records.",
    ),
    threats=("model_inversion",),
    tests_per_cell=6,
    cost=lambda given, sizes, load: 2 * rate.AUDIT * load.cells,
)
