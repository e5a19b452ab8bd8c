"""An entry for a registry of deployments of differential privacy.

The fields are those that Dwork, Kohli and Mulligan ask of a registry ("Differential Privacy in Practice:
Expose your Epsilons!", Journal of Privacy and Confidentiality 9(2), 2019) and that OpenDP's registry of
deployments holds: unit, adjacency, trust model, parameters, what is not protected, accounting, implementation.
"""

from __future__ import annotations

from typing import Any

from fedassay.records.record import CellRecord, RunRecord, finite_json
from fedassay.reports.evidence.lines import PERSON
from fedassay.reports.evidence.release import Release


def entries(release: Release) -> list[dict[str, Any]]:
    """One entry for each seed of a release that asks for a finite epsilon, each value beside its place."""
    return [_entry(release.record, number, cell) for number, cell in release.cells if cell.asked.finite]


def _entry(record: RunRecord, number: int, cell: CellRecord) -> dict[str, Any]:
    at = f"/cells/{number}"
    plan = record.plan if isinstance(record.plan, dict) else {}

    def traced(value: Any, *pointers: str) -> dict[str, Any]:
        return {"value": finite_json(value), "record": list(pointers)}

    person = {"value": PERSON, "record": []}
    threat = traced(plan["threat"], "/plan/threat") if "threat" in plan else person
    noised = [row for row in cell.ledger if not row.exact and row.mechanism not in {"public", "derived"}]
    return {
        "deployment": person,
        "data_curator": person,
        "purpose": person,
        "data": traced(plan["data"], "/plan/data") if "data" in plan else person,
        "method": traced({"name": cell.method, "parameters": cell.params}, f"{at}/method", f"{at}/params"),
        "unit_of_privacy": traced(cell.unit, f"{at}/unit"),
        "adjacency": traced(cell.adjacency, f"{at}/adjacency"),
        "trust_model": {
            "noise": traced("added by the clients" if noised else "no field is noised", f"{at}/ledger"),
            "secure_aggregation": traced(sorted({row.field for row in cell.ledger if row.secure}), f"{at}/ledger"),
            "adversary": threat,
        },
        "parameters": {
            "epsilon_claimed": traced(cell.privacy.claimed, f"{at}/privacy/claimed"),
            "delta": traced(cell.delta, f"{at}/delta"),
            "mu": traced(cell.privacy.mu, f"{at}/privacy/mu"),
        },
        "unprotected_quantities": traced(
            sorted({row.field for row in cell.ledger if row.exact}), f"{at}/ledger", f"{at}/privacy/exact_fields"
        ),
        "accounting": {
            "epsilon_accounted": traced(cell.privacy.accounted, f"{at}/privacy/accounted"),
            "mechanisms": traced(sorted({row.mechanism for row in cell.ledger}), f"{at}/ledger"),
            "hyper_parameters_and_earlier_releases": person,
        },
        "test": {
            "verdict": traced(cell.privacy.verdict, f"{at}/privacy/verdict"),
            "epsilon_observed_at_least": traced(cell.privacy.observed, f"{at}/privacy/observed"),
            "reason": traced(cell.privacy.reason, f"{at}/privacy/reason"),
        },
        "implementation": traced(
            {key: record.environment.get(key) for key in ("fedassay", "git_revision", "python", "packages")},
            "/environment",
        ),
        "review_and_contact": person,
    }
