"""fedassay: an assay of what one-shot federated learning gives away.

From Python:

    import fedassay

    run = fedassay.run("configs/quickstart.yaml")
    run.recommend("strict").answer
    run.findings
    run.plot.tradeoff()

Everything that is stable stands in `__all__` and on the page "From Python" of the documentation; what else can be
imported may change. Nothing heavy is imported before it is used.

The package has four rooms (`methods`, `attacks`, `audits`, `reports`) and the corridor that connects them
(everything else here). Rooms import the corridor and never each other; only `fedassay.execution`, the command line
and `fedassay.api` know all four.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedassay.api.attacks import latex
    from fedassay.api.calls import audit, check, compare, load, read_plan, run, runs
    from fedassay.api.comparison import Comparison
    from fedassay.api.functions import FunctionAudit, audit_function
    from fedassay.api.membership import MembershipReport, membership_report
    from fedassay.api.run import Run
    from fedassay.api.similarity import SimilarityReport, similarity_report
    from fedassay.plan.schema import Plan
    from fedassay.recorders.plain import Declared, Recorder, record
    from fedassay.reports.gate.policy import Policy
    from fedassay.support.errors import DataError, FedassayError, MissingExtraError, PlanError
    from fedassay.support.version import __version__

__all__ = [
    "Comparison",
    "DataError",
    "Declared",
    "FedassayError",
    "FunctionAudit",
    "MembershipReport",
    "MissingExtraError",
    "Plan",
    "PlanError",
    "Policy",
    "Recorder",
    "Run",
    "SimilarityReport",
    "__version__",
    "audit",
    "audit_function",
    "check",
    "compare",
    "latex",
    "load",
    "membership_report",
    "read_plan",
    "record",
    "run",
    "runs",
    "similarity_report",
]

_PLACES = {
    **dict.fromkeys(("audit", "check", "compare", "load", "read_plan", "run", "runs"), "api.calls"),
    "Comparison": "api.comparison",
    **dict.fromkeys(("FunctionAudit", "audit_function"), "api.functions"),
    "latex": "api.attacks",
    **dict.fromkeys(("MembershipReport", "membership_report"), "api.membership"),
    "Run": "api.run",
    **dict.fromkeys(("SimilarityReport", "similarity_report"), "api.similarity"),
    "Plan": "plan.schema",
    "Policy": "reports.gate.policy",
    **dict.fromkeys(("Declared", "Recorder", "record"), "recorders.plain"),
    **dict.fromkeys(("DataError", "FedassayError", "MissingExtraError", "PlanError"), "support.errors"),
    "__version__": "support.version",
}
"""The module of each name, imported when the name is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'fedassay' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"fedassay.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
