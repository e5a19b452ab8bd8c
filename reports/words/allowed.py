"""Bound of a sound claim on any attack on those whom it protects: a limit on silence from above.

An audit that found nothing says how small a leak it would have found; with few records that is a large one. The
noise bounds the same leak from the other side: between neighbours no test has more power than the accounted
guarantee allows, whatever the attack. That bound is drawn only from a claim that is sound, only for records
or persons that its unit covers. It stands in for no attack that failed on the method's own messages without
privacy, unless another one, that works there, looked for the same harm and found nothing: a claim is never all
that speaks.

Sources: Dong, Roth and Su, "Gaussian Differential Privacy" (2022), eq. 6; Kairouz, Oh and Viswanath, "The
Composition Theorem for Differential Privacy" (2015), section 2; Hayes, Mahloujifar and Balle (2023).
"""

from __future__ import annotations

import math

from fedassay.records.record import CellRecord, Finding, Limit
from fedassay.reports.words.claims import claims
from fedassay.reports.words.harms import (
    BY_CLAIM,
    FALSE_ALARMS,
    kind_sought,
    obstacle_of,
    unit_sought,
    worked,
)
from fedassay.support.adjacency import UNIT_ORDER, Unit

KAPPA = 0.01
"""The stated prior of a rebuilt record: without the release, the best guess at it succeeds so often."""

_OF_NUMBERS = ("no_power", "records_missing", "between_levels", "worse_than_baseline", "control_missed")
"""Obstacles of an attack that works without privacy: records, runs or the noise keep it from a verdict.

All of them are settled alike, so that fewer records never turn an open question into one that a claim settles.
"""


def allowed(cell: CellRecord, finding: Finding) -> Limit | None:
    """The most that the claim of a cell allows of what a finding looked for; None where it bounds nothing."""
    accounted = cell.accounted
    if not claims(cell) or cell.privacy.verdict != "sound" or accounted is None or not accounted.finite:
        return None
    of = unit_sought(finding)
    if of is None or UNIT_ORDER.index(of) > UNIT_ORDER.index(cell.unit):
        return None
    own = finding.limit
    if own is not None and own.metric == "epsilon":
        return _limit("epsilon", accounted.bare, of)
    if kind_sought(finding) in ("pictures", "exact"):
        return _limit("share", _highest(cell, KAPPA), of)
    metric = own.metric if own is not None and own.metric in FALSE_ALARMS else "tpr_at_10pct"
    return _limit(metric, _highest(cell, rate_of(metric)), of)


def settled(cell: CellRecord, finding: Finding) -> bool:
    """Whether a finding is inconclusive where the attack is not what fails, of what the claim bounds anyway.

    The attack was caught on all of the method's own messages without privacy, by this selection of the pictures
    that it made of a source or by another; or another attack that was has looked for the same harm in silence.
    A control that could not be made shows no more than one that was missed.
    """
    obstacle = obstacle_of(finding)
    if finding.verdict != "inconclusive" or obstacle is None or obstacle.role == "clients":
        return False
    if obstacle.kind not in _OF_NUMBERS or allowed(cell, finding) is None:
        return False
    same = [
        each
        for each in cell.findings
        if (each.audit, each.attack, each.source) == (finding.audit, finding.attack, finding.source)
        if each.selection == finding.selection or kind_sought(each) == "pictures"
    ]
    return any(map(worked, same)) or _looked_for_elsewhere(cell, finding)


def failed(cell: CellRecord, finding: Finding) -> bool:
    """Whether a finding is settled though its attack failed on the method's own messages without privacy."""
    obstacle = obstacle_of(finding)
    missed = obstacle is not None and obstacle.kind == "control_missed" and not worked(finding)
    return missed and settled(cell, finding)


def _looked_for_elsewhere(cell: CellRecord, finding: Finding) -> bool:
    """Whether another attack, which works on the release without privacy, looked for the same harm in silence."""
    return any(
        other.verdict == "no_leak_found" and kind_sought(other) == kind_sought(finding) and worked(other)
        for other in cell.findings
        if other.attack not in (None, finding.attack)
    )


def known(cell: CellRecord, finding: Finding) -> Finding:
    """A finding with the smaller of what it may have missed and what the claim allows.

    An inconclusive one has a limit then, and no other way, where it is `settled`.
    """
    if finding.verdict != "no_leak_found" and not settled(cell, finding):
        return finding
    most, own = allowed(cell, finding), finding.limit
    if most is None or (own is not None and own.metric != "shift" and own.value <= most.value):
        return finding
    return finding.model_copy(update={"limit": most})


def rate_of(metric: str) -> float:
    """The false-positive rate, or the prior, that a limit in this metric is at."""
    return FALSE_ALARMS.get(metric, KAPPA)


def _highest(cell: CellRecord, rate: float) -> float:
    """The highest true-positive rate at a false-positive rate, by the tighter of the two guarantees on record."""
    from fedassay.privacy.gaussian import tpr_bound, tpr_bound_approx_dp  # SciPy is not needed for other pages

    assert cell.accounted is not None
    found = float(tpr_bound_approx_dp(cell.accounted.bare, cell.delta, rate))
    mu = cell.privacy.mu
    return found if mu is None or not math.isfinite(mu) else min(found, float(tpr_bound(mu, rate)))


def _limit(metric: str, value: float, of: Unit) -> Limit:
    words = "the claim, which is sound, allows no more to any attack"
    # A guarantee is about every record by itself, so it holds for one trial.
    return Limit(metric=metric, value=value, power=0.95, n=1, words=words, of=of, planted=BY_CLAIM)
