"""Declared facts of the audits of a claim: the one that attacks, and the ledger alone."""

from __future__ import annotations

from fedassay.contracts.facts import AuditFacts, Given, ReportSection, SarifRule
from fedassay.contracts.metrics import CLAIM, NOISE_MEASURED, NOISE_P, NOISE_SHARE
from fedassay.contracts.sizes import Load, Sizes
from fedassay.plan import rates as rate

_METHOD_RUNS = 2.5
"""Runs of the method for each run that is asked for: two sides, and those that choose the direction."""

_SEEN = 0.3
"""Cost of looking at the steps of a private run again, as a share of the run."""

_WIDTH = 64
"""Number of features of a record with which the questions to a cell take `rates.AUDIT`; replays grow with them."""

_CANARY = 1e-3
"""Seconds of a gradient canary: two trainings of a linear head, in 200 steps."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    again = _METHOD_RUNS * given["method_runs"] * load.private / sizes.clients if given["mode"] == "rerun" else 0.0
    canaries = _CANARY * given["canaries"] * load.cells
    # Some steps of a private training are computed again, and the noise of every one.
    seen = _SEEN * load.private
    return float(rate.AUDIT * load.cells * max(1, sizes.width / _WIDTH) + again + canaries + seen)


DP_CLAIM = AuditFacts(
    needs=("another_run",),
    metrics=(*CLAIM, NOISE_SHARE, NOISE_P, NOISE_MEASURED),
    place=ReportSection("claim", "Claims", order=60),
    rule=SarifRule(
        "A differential-privacy claim must be supported by the ledger and survive attack.",
        help="Mend what the reason names (field, noise, sensitivity), or claim the epsilon that is accounted.",
        severity=8.5,
    ),
    tests_per_cell=2,
    cost=_seconds,
)

LEDGER = AuditFacts(
    metrics=CLAIM,
    place=ReportSection("accounts", "What the ledger says", order=70),
    rule=SarifRule(
        "Every field that leaves must be what the ledger says.",
        help="Declare the field as what it is, or noise it.",
        severity=8.5,
    ),
    tests_per_cell=0,
    cost=lambda given, sizes, load: 0.0,
)
