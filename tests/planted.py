"""One finding of each harm, as an audit states it."""

from __future__ import annotations

from typing import Any

from fedassay.records.facts import Harm, HarmKind
from fedassay.records.record import Finding, Metric


def finding(audit: str, verdict: Any = "leak", metrics: dict[str, Any] | None = None, **given: Any) -> Finding:
    held = {name: Metric(value=value, n=n) for name, (value, n) in (metrics or {}).items()}
    return Finding(audit=audit, verdict=verdict, reason="nobody reads this; (at all)", metrics=held, **given)


HARMFUL: dict[HarmKind, Finding] = {
    "pictures": finding(
        "reconstruction",
        metrics={"ssim": (0.5, 90)},
        source="raw",
        harm=Harm(kind="pictures", of="record", total=90, metric="ssim", value=0.5, mechanism="raw"),
    ),
    "exact": finding(
        "message",
        metrics={"fraction_recovered": (0.6, 100)},
        source="gram_factorization",
        harm=Harm(
            kind="exact",
            of="record",
            count=60,
            total=100,
            share=0.6,
            metric="fraction_recovered",
            value=0.6,
            mechanism="gram_factorization",
        ),
    ),
    "named": finding(
        "membership",
        metrics={"persons_told": (3, 12)},
        source="persons",
        harm=Harm(
            kind="named",
            of="person",
            count=3,
            total=12,
            share=0.25,
            metric="persons_told",
            value=3.0,
            mechanism="persons",
        ),
    ),
    "members": finding(
        "membership",
        metrics={"auc": (0.8, 116)},
        source="model",
        harm=Harm(kind="members", of="record", metric="auc", value=0.8, mechanism="model"),
    ),
    "attributes": finding(
        "message",
        metrics={"senders_told": (4, 5)},
        source="label_histograms",
        harm=Harm(kind="attributes", of="client", count=4, total=5, share=0.8, mechanism="label_histograms"),
    ),
    "counts": finding(
        "message",
        metrics={"rules_met": (2, None)},
        source="derivable_counts",
        harm=Harm(kind="counts", of="release", mechanism="derivable_counts"),
    ),
}
"""One finding of each harm."""
