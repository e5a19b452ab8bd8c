"""Declared facts of the memorization audit."""

from __future__ import annotations

from fedassay.contracts.facts import AuditFacts, Given, ReportSection, SarifRule
from fedassay.contracts.metrics import HELDOUT_GAP, pair_metrics
from fedassay.contracts.sizes import Load, Sizes
from fedassay.plan import rates as rate
from fedassay.support.metrics import MetricFacts

MOST_SAMPLES = 1000
"""Samples of a generator that are held against its records by SSIM: each meets every record of its client."""
_ALTERATIONS, _PIXELS = 98, 32 * 32 * 3


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    each = sizes.private / max(1, sizes.clients)
    # A client's images meet its records, as many held-out ones, and those of two controls likewise.
    pairs = 3 * given["samples_per_record"] * each * 2 * each * sizes.clients
    aligned = 2.0 * _ALTERATIONS * min(sizes.pixels, _PIXELS) * pairs / rate.DENSE_FLOPS
    samples = min(MOST_SAMPLES, given["samples_per_record"] * each)
    alike = rate.SSIM * samples * 2 * each * sizes.clients * sizes.pixels
    return float(load.cells * (rate.AUDIT + alike + aligned * (given["altered_copies"] == "aligned")))


MEMORIZATION = AuditFacts(
    needs=("generator",),
    metrics=(
        MetricFacts(
            "min_distance",
            "Smallest score",
            "Smallest memorization score of a generated image; below 1 is a copy.",
            worse="lower",
        ),
        MetricFacts(
            "under_threshold",
            "Under threshold",
            "Generated images whose memorization score is below 1.",
            worse="higher",
        ),
        MetricFacts(
            "share_under_threshold",
            "Share under threshold",
            "Share of the generated images whose memorization score is below 1.",
            worse="higher",
        ),
        MetricFacts(
            "copied",
            "Given back",
            "Share of training records that generated images give back, less that of held-out ones.",
            worse="higher",
        ),
        MetricFacts(
            "altered_copied",
            "Given back, altered",
            "Share of training records that come back mirrored, shifted or recoloured, less held-out ones.",
            worse="higher",
        ),
        HELDOUT_GAP,
        *pair_metrics(),
    ),
    place=ReportSection("attacks", "Memorization", order=30, always=True),
    rule=SarifRule(
        "Generated images must not be copies of training images.",
        taxa=("CWE-359", "AML.T0024.001", "ML03"),
        help="The generator copies its training images: train it privately, for fewer steps, or on more images.",
    ),
    threats=("regurgitation",),
    tests_per_cell=2,
    more_tests=lambda given: int(given["altered_copies"] != "none"),
    cost=_seconds,
)
