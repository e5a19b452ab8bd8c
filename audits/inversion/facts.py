"""Declared facts of the inversion audit."""

from __future__ import annotations

from fedassay.audits.foreseen import few_controls, few_images, joined_words
from fedassay.contracts.facts import AuditFacts, ReportSection, SarifRule
from fedassay.contracts.metrics import FEATURE_COSINE, IDENTIFIED, SSIM_GAIN, pair_metrics
from fedassay.plan import rates as rate
from fedassay.support.metrics import MetricFacts

CONTROLS = 8
"""Fewest control records that a control of inverted images is made of."""

INVERSION = AuditFacts(
    judges=("inversions",),
    metrics=(
        *pair_metrics(),
        SSIM_GAIN,
        MetricFacts(
            "psnr_gain",
            "PSNR gain",
            "PSNR to the records behind the images over that to fresh records of the same classes.",
            "dB",
            "higher",
        ),
        MetricFacts(
            "psnr_gain_others",
            "PSNR gain of others",
            "The same of images of the same clients' other records, which know nothing of these.",
            "dB",
            "higher",
        ),
        MetricFacts("psnr_each", "PSNR to all", "PSNR to all records that an image may show.", "dB", "higher"),
        MetricFacts(
            "psnr_nearest_own",
            "PSNR of the attacker's",
            "PSNR of the attacker's own image with the nearest feature, without any inversion.",
            "dB",
            "higher",
        ),
        MetricFacts(
            "misfit",
            "Misfit",
            "Remaining misfit of an image to its target, in the median; smaller fits better.",
            worse="lower",
            likeness=4,
        ),
        FEATURE_COSINE,
        *IDENTIFIED,
    ),
    place=ReportSection("attacks", "Inversion", order=20, always=True),
    rule=SarifRule(
        "Images must not be recovered by inverting the feature extractor.",
        taxa=("CWE-359", "AML.T0024.001", "ML03"),
        help="Images follow from what is sent: add noise before it is sent, or do not send it.",
    ),
    threats=("model_inversion",),
    tests_per_cell=6,
    cost=lambda given, sizes, load: 2 * rate.AUDIT * load.cells,
    foresee=lambda given, planned: joined_words((few_images(planned), few_controls(planned, CONTROLS))),
)
