"""Receiver operating characteristics of a membership score: curve, area, and the low-error corner."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import bdtr, bdtrc, ndtri, stdtrit
from scipy.stats import rankdata

from fedassay.audits.stats.epsilon_bound import checked_scores
from fedassay.audits.stats.estimate import Estimate
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.support.types import Matrix


class Roc(NamedTuple):
    """Points of the curve, from (0, 0) to (1, 1): one for each distinct threshold "score >= t"."""

    fpr: Matrix
    tpr: Matrix


def roc_curve(scores0: ArrayLike, scores1: ArrayLike) -> Roc:
    """ROC points of scores (n0,) of non-members against scores (n1,) of members (higher: member)."""
    zero, one = checked_scores(scores0, "scores0"), checked_scores(scores1, "scores1")
    thresholds = np.unique(np.concatenate([zero, one]))[::-1]
    fpr = 1 - np.searchsorted(np.sort(zero), thresholds, side="left") / len(zero)
    tpr = 1 - np.searchsorted(np.sort(one), thresholds, side="left") / len(one)
    # (0, 0) belongs to a threshold above every score; a score may itself be infinite.
    start = np.zeros(1)
    return Roc(np.concatenate([start, fpr]), np.concatenate([start, tpr]))


def auc(scores0: ArrayLike, scores1: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Area under the ROC curve, P(member's score > non-member's) + P(tie)/2, with a score interval.

    The interval is Newcombe's method 5 ("Confidence intervals for an effect size measure based on the Mann-Whitney
    statistic. Part 2", 2006): the areas within z Hanley-McNeil standard errors (their own) of the estimate. Unlike
    Wald or DeLong intervals it does not collapse at 0 or 1. Hanley and McNeil assume the same spread of members'
    and non-members' scores. Where the spreads differ, the variance of DeLong, DeLong and Clarke-Pearson (1988) is
    larger, with the t quantile of Brunner and Munzel (2000) and its degrees of freedom for unequal sizes and
    spreads; then Hanley and McNeil's is raised to it by one factor for all areas.

    Args:
        scores0: (n0,) scores of non-members.
        scores1: (n1,) scores of members.
        confidence: two-sided, in (0, 1).
    """
    zero, one = checked_scores(scores0, "scores0"), checked_scores(scores1, "scores1")
    n0, n1 = len(zero), len(one)
    # Shares of the other side's scores below each score, ties half: "placements".
    ranks = rankdata(np.concatenate([zero, one]))
    below_zero = (ranks[:n0] - rankdata(zero)) / n1
    below_one = (ranks[n0:] - rankdata(one)) / n0
    area = float(below_one.mean())
    z = float(ndtri((1 + confidence) / 2))
    share = (n0 + n1) / 2 - 1

    def variance(theta: float) -> float:
        factor = 1 + share * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return theta * (1 - theta) * factor / (n0 * n1)

    unlike = _brunner_munzel(below_zero, below_one, (1 + confidence) / 2)
    raised = max(1.0, unlike / (z * z * variance(area))) if 0 < area < 1 else 1.0

    def excess(theta: float) -> float:
        return (area - theta) ** 2 - raised * z * z * variance(theta)

    # The excess is positive at 0 and 1, and negative at the estimate or, where that is an end, next to it.
    inside = min(max(area, 1e-12), 1 - 1e-12)
    low = 0.0 if area <= 0 else float(brentq(excess, 0.0, inside))
    high = 1.0 if area >= 1 else float(brentq(excess, inside, 1.0))
    return Estimate(area, low, high, n0 + n1)


def _brunner_munzel(below_zero: Matrix, below_one: Matrix, level: float) -> float:
    """The squared half-width of Brunner and Munzel's interval of an area, from the placements of both sides.

    0 where a side has one score, or all placements are alike: then it says nothing.
    """
    n0, n1 = len(below_zero), len(below_one)
    if min(n0, n1) < 2:
        return 0.0
    own0, own1 = float(below_zero.var(ddof=1)) / n0, float(below_one.var(ddof=1)) / n1
    total = own0 + own1
    if total == 0:
        return 0.0
    freedom = total**2 / (own0**2 / (n0 - 1) + own1**2 / (n1 - 1))
    return float(stdtrit(freedom, level)) ** 2 * total


def tpr_at_fpr(scores0: ArrayLike, scores1: ArrayLike, fpr: float) -> Estimate:
    """True-positive rate at a false-positive rate of at most `fpr`, the threshold's own error included.

    The target is P(member's score > t) at the lowest t that at most a share `fpr` of all non-members exceeds. Its
    estimate takes the k-th highest non-member score for t, k = floor(fpr (n0 + 1)): a new non-member exceeds it
    with probability k / (n0 + 1) <= fpr. The interval takes two others that enclose t (order statistics of the
    non-members), and Clopper-Pearson for the members above each; each of these four one-sided bounds takes a
    quarter of the error. It holds for every distribution, ties included. Where non-members are too few to bound t
    from above, the lower end is 0.

    Args:
        scores0: (n0,) scores of non-members.
        scores1: (n1,) scores of members.
        fpr: in (0, 1).

    Returns:
        The rate and its 95 % interval; without a value, and saying why, if n0 is too small to resolve `fpr`.
    """
    if not 0 < fpr < 1:
        raise ValueError(f"fpr must lie strictly between 0 and 1, got {fpr}")
    zero, one = checked_scores(scores0, "scores0"), checked_scores(scores1, "scores1")
    k = math.floor(fpr * (len(zero) + 1) + 1e-9)
    if k < 1:
        needed = math.ceil(1 / fpr) - 1
        reason = f"{len(zero)} non-members cannot resolve a false-positive rate of {fpr:g}; {needed} can"
        return Estimate(None, None, None, len(one), reason=reason)
    ordered = np.sort(zero)
    hits = int(np.count_nonzero(one > ordered[-k]))
    error = 0.05 / 4
    low, high = 0.0, 1.0
    below, above = _enclosing(len(zero), fpr, error)
    if above is not None:
        certain = int(np.count_nonzero(one > ordered[above]))
        low = float(clopper_pearson(certain, len(one), confidence=1 - error, side="lower").low)
    if below is not None:
        possible = int(np.count_nonzero(one > ordered[below]))
        high = float(clopper_pearson(possible, len(one), confidence=1 - error, side="upper").high)
    return Estimate(hits / len(one), low, high, len(one))


def _enclosing(n: int, fpr: float, error: float) -> tuple[int | None, int | None]:
    """Positions among n sorted scores that lie at or below, and at or above, their 1 - `fpr` quantile.

    Each fails with probability at most `error`; None where not even the lowest, or the highest, score is safe.
    Source: David and Nagaraja, "Order Statistics" (2003), section 7.1.
    """
    counts = np.arange(n)
    # The i-th smallest (from 0) is above the quantile if at most i scores lie at or below it.
    low = np.flatnonzero(bdtr(counts, n, 1 - fpr) <= error)
    # The j-th smallest (from 0) is below the quantile if at least j + 1 scores lie below it.
    high = np.flatnonzero(bdtrc(counts, n, 1 - fpr) <= error)
    return (int(low[-1]) if len(low) else None), (int(high[0]) if len(high) else None)
