"""Declared facts of the audit of attributes."""

from __future__ import annotations

from fedassay.contracts.facts import AuditFacts, ReportSection, SarifRule
from fedassay.plan import rates as rate
from fedassay.support.metrics import MetricFacts

ADVANTAGE = MetricFacts(
    "attribute_advantage",
    "Attribute advantage",
    "Share of attributes guessed rightly with the message, over the best guess without it and over the same guess "
    "about strangers; the smaller of both gains.",
    worse="higher",
)

ATTRIBUTES = AuditFacts(
    judges=("values",),
    metrics=(
        ADVANTAGE,
        MetricFacts(
            "attribute_told",
            "Attributes told",
            "Share of the clients' records whose attribute is guessed rightly with the message.",
            worse="higher",
        ),
        MetricFacts(
            "attribute_imputed",
            "Attributes imputed",
            "The same without the message, from what is known of each record and the adversary's own records.",
        ),
        MetricFacts(
            "attribute_strangers",
            "Strangers' attributes told",
            "The same with the message, of records that no client holds.",
        ),
        MetricFacts(
            "attribute_from_features",
            "Attributes told by features",
            "The same without the message, by whoever has all features of a record.",
        ),
    ),
    place=ReportSection("attacks", "Sensitive attributes", order=25),
    rule=SarifRule(
        "Messages must not reveal a person's attribute to those who know the rest.",
        taxa=("CWE-359", "AML.T0024", "ML04"),
        help="Send sums over more records, add noise that the ledger accounts for, or leave the attribute out.",
    ),
    threats=("attribute_inference",),
    cost=lambda given, sizes, load: rate.AUDIT * load.cells,
)
