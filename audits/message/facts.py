"""Declared facts of the audit of messages."""

from __future__ import annotations

from fedassay.audits.foreseen import few_controls
from fedassay.contracts.facts import AuditFacts, ReportSection, SarifRule
from fedassay.contracts.metrics import IDENTIFIED, TOTAL_VARIATION
from fedassay.plan import rates as rate
from fedassay.support.metrics import MetricFacts, Scale

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
        MetricFacts(
            "fraction_recovered",
            "Share recovered",
            "Of the records, how many have features that were computed exactly.",
            worse="higher",
            scale=Scale("records computed", 0.0, 1.0),
        ),
        MetricFacts(
            "label_accuracy",
            "Labels right",
            "Of the recovered features, how many have the right label.",
            worse="higher",
        ),
        MetricFacts(
            "largest_recovered",
            "Largest client recovered",
            "Records of the largest client whose features were computed exactly.",
            worse="higher",
        ),
        MetricFacts(
            "expected_error",
            "Expected error",
            "Relative error as independent runs of the attack see it, without the truth.",
            worse="lower",
        ),
        MetricFacts(
            "certified",
            "Certified",
            "Recovered features that the attacker may trust, by a rule fitted on control clients.",
            worse="higher",
        ),
        MetricFacts(
            "certified_wrong",
            "Certified and wrong",
            "Share of a client's certified features that is no record's, in the mean over clients.",
            worse="lower",
        ),
        MetricFacts(
            "attributed",
            "Attributed",
            "Of the features recovered from sums over clients, how many are one client's by what else is seen.",
            worse="higher",
        ),
        MetricFacts(
            "attribution_right",
            "Attributed rightly",
            "Of the features attributed to one client, how many are of a record of that client.",
            worse="higher",
        ),
        *IDENTIFIED,
        TOTAL_VARIATION,
        MetricFacts(
            "senders_told",
            "Histograms told",
            "Senders whose label histogram follows exactly from captured messages.",
            worse="higher",
        ),
        MetricFacts(
            "vectors_certain",
            "Features for certain",
            "Vectors of captured messages that are a single record's feature by arithmetic.",
            worse="higher",
        ),
        MetricFacts("rules_met", "Rules met", "Rules of algebra that gave something away.", worse="higher"),
        MetricFacts(
            "counts_right",
            "Counts right",
            "Of the counts that were read off, how many are right.",
            worse="higher",
            scale=Scale("counts read", 0.0, 1.0),
        ),
    ),
    place=ReportSection("attacks", "Message algebra", order=50, always=True),
    rule=SarifRule(
        "Records must not follow from a message by algebra.",
        taxa=("CWE-359", "AML.T0024.001", "ML03"),
        help="A reader of the messages can compute this: add noise before it is sent, or do not send it.",
    ),
    threats=("data_reconstruction",),
    tests_per_cell=6,
    cost=lambda given, sizes, load: rate.AUDIT * load.cells,
    foresee=lambda given, planned: few_controls(planned, 1),
)
