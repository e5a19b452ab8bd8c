"""The bound of the declared noise on any membership test, and the records that certificates name.

A release with Gaussian noise is mu-Gaussian-differentially private. Where a coin of its own includes every record,
the test between "in" and "out" of any one record has at most the power of N(mu, 1) against N(0, 1), whatever is
known of the others. So has one common threshold on the scores of all records. The trade-off curve is concave, so
that means over records stay below it. Its area is Phi(mu / sqrt 2).

Source: Dong, Roth and Su, "Gaussian Differential Privacy" (2022), section 2.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.roc import auc
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AuditContext
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Metric
from fedassay.support.types import Bools

_BESIDE = {"auc_alone": "messages/likelihood_ratio", "auc_joint": "messages/joint"}
"""Scores that stand beside every finding under noise, one at a time and jointly."""


def highest_auc(mu: float) -> float:
    """The largest area under the curve of a test between the neighbours of a mu-Gaussian-DP release."""
    return float(ndtr(mu / math.sqrt(2)))


def figures(result: AttackResult, *, truth: Bools, context: AuditContext) -> dict[str, Metric]:
    """Metrics beside those of a test: under noise the power alone, jointly and at most; and the named records.

    Args:
        result: Of the attack.
        truth: Whether each candidate is a member, shape (n,).
        context: The cell.
    """
    found: dict[str, Metric] = {}
    mu = context.accounted.mu
    if mu is not None and 0 < mu < math.inf:
        for name, key in _BESIDE.items():
            area = _area(result, key, truth)
            if area is not None:
                found[name] = area
        reason = f"Phi(mu / sqrt 2) for mu {mu:.3g}, one record under {context.privacy.adjacency}"
        found["auc_allowed"] = Metric(value=highest_auc(mu), reason=reason)
    names = _named(result)
    if names is not None:
        wrong = int((names & ~truth).sum())
        found["records_named"] = Metric(value=float(names.sum()), n=len(truth))
        if names.any():
            band = clopper_pearson(np.array([wrong]), int(names.sum()))
            share = wrong / int(names.sum())
            found["wrongly_named"] = Metric(
                value=share, low=float(band.low[0]), high=float(band.high[0]), n=int(names.sum())
            )
    return found


def words(context: AuditContext) -> tuple[str, ...]:
    """Return the assumption to state about the ceiling, under noise."""
    mu = context.accounted.mu
    if mu is None or not 0 < mu < math.inf:
        return ()
    return (
        f"the declared noise (mu {mu:.3g}) allows an AUC of {highest_auc(mu):.3f} to whoever knows everything but "
        f"independent inclusions, under {context.privacy.adjacency}",
    )


def harm_of(finding: Finding, result: AttackResult, truth: Bools) -> Harm:
    """Harm of a leak: records named with certificates, or members inferred better than by chance."""
    names, area = _named(result), finding.metrics.get("auc")
    if names is not None and names.any():
        right = int((names & truth).sum())
        return Harm(kind="named", of="record", count=right, total=int(truth.sum()), mechanism="linear_in_members")
    value = None if area is None else area.value
    return Harm(kind="members", of="record", metric="auc", value=value, mechanism=finding.source or "")


def _area(result: AttackResult, key: str, truth: Bools) -> Metric | None:
    scores = result.scores.get(key)
    if scores is None:
        return None
    known = ~np.isnan(scores)
    if not (known & truth).any() or not (known & ~truth).any():
        return None
    outside, inside = (np.asarray(scores[known & side], np.float64) for side in (~truth, truth))
    return auc(outside, inside).metric()


def _named(result: AttackResult) -> Bools | None:
    found = result.artifacts.get("named")
    return None if found is None else np.asarray(found, np.bool_)
