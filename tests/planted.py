"""One finding of each harm, as records of schema 1 and 2 hold them: by metrics and counts alone."""

from __future__ import annotations

from typing import Any

from fedassay.records.facts import HarmKind
from fedassay.records.record import Finding, Metric


def finding(audit: str, verdict: Any = "leak", metrics: dict[str, Any] | None = None, **given: Any) -> Finding:
    held = {name: Metric(value=value, n=n) for name, (value, n) in (metrics or {}).items()}
    return Finding(audit=audit, verdict=verdict, reason="nobody reads this; (at all)", metrics=held, **given)


OLD: dict[HarmKind, Finding] = {
    "pictures": finding("reconstruction", metrics={"ssim": (0.5, 90)}, source="raw"),
    "exact": finding("message", metrics={"fraction_recovered": (0.6, 100)}, source="gram_factorization"),
    "named": finding("membership", metrics={"persons_told": (3, 12)}, source="persons"),
    "members": finding("membership", metrics={"auc": (0.8, 116)}, source="model"),
    "attributes": finding("message", metrics={"senders_told": (4, 5)}, source="label_histograms"),
    "counts": finding("message", metrics={"rules_met": (2, None)}, source="derivable_counts"),
}
"""One finding of each harm as records of schema 1 and 2 hold them: without a harm."""
