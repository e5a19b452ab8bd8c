"""Declared facts of the reconstruction audit."""

from __future__ import annotations

from fedassay.audits.foreseen import few_controls, few_images, joined_words
from fedassay.contracts.facts import AuditFacts, Given, ReportSection, SarifRule
from fedassay.contracts.metrics import FEATURE_COSINE, HELDOUT_GAP, IDENTIFIED, SSIM_GAIN, pair_metrics
from fedassay.contracts.sizes import Load, Sizes
from fedassay.plan import rates as rate
from fedassay.support.metrics import MetricFacts


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    pairs = sizes.private * (sizes.attacker + sizes.private)
    return load.cells * (rate.SSIM * pairs * sizes.pixels + 10 * rate.AUDIT)


RECONSTRUCTION = AuditFacts(
    judges=("reconstructions",),
    metrics=(
        *pair_metrics(),
        SSIM_GAIN,
        HELDOUT_GAP,
        *IDENTIFIED,
        MetricFacts(
            "worst_person",
            "SSIM gain of the person worst off",
            "The largest gain of a person over the baseline, where data.groups names their persons.",
            worse="higher",
        ),
        FEATURE_COSINE,
    ),
    place=ReportSection("images", "Reconstruction", order=10, always=True),
    rule=SarifRule(
        "Images must not be reconstructed better than without what was sent.",
        taxa=("CWE-359", "AML.T0024.001", "ML03"),
        help="Images come back from what is sent: lower epsilon, or send fewer statistics.",
    ),
    threats=("data_reconstruction",),
    tests_per_cell=6,
    cost=_seconds,
    foresee=lambda given, planned: joined_words((few_images(planned), few_controls(planned, given["at_least"]))),
)
