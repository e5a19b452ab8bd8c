"""An upper bound of the chance that a sum of randomly chosen weights reaches a bar, without drawing any.

Each weight is chosen with one probability, independently of the others (Chernoff, Annals of Mathematical
Statistics 1952, theorem 1): log P <= sum log(1 - p + p e^(t w)) - t s for every t > 0. Where exactly k of n are
chosen, as in a permutation of two groups, the chance is that of independent choices given their number: for
every t > 0 and u, log P <= sum log(1 - p + p e^(t w + u)) - t s - u k - log P(Binomial(n, p) = k) at p = k / n.
Every t and u gives a bound, so Newton's method may stop at any step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

Floats = NDArray[np.float64]

_STEPS = 25
_CLOSE = 0.1
"""A step that lowers the log by less is the last: the bound is asked for its order of magnitude."""


def log_chance(weights: Floats, bar: float, share: float, *, chosen: int | None = None) -> float:
    """Upper bound of the log of the chance that the chosen weights sum to the bar or more; at most 0.

    Args:
        weights: Shape (n,).
        bar: What the sum has to reach.
        share: Probability of each to be chosen, between 0 and 1; k / n where `chosen` is given.
        chosen: How many are chosen, k, where these are exactly so many; else each is, or is not, by itself.
    """
    if bar > float(np.maximum(weights, 0).sum()):
        return -np.inf
    scale = float(np.abs(weights).max())
    if bar <= share * float(weights.sum()) or not scale:
        return 0.0
    # One row for t and, where so many are chosen, one for u; the exponent is convex in both.
    terms = np.stack([weights / scale, np.ones(len(weights))][: 1 if chosen is None else 2])
    least = np.array([bar / scale, float(chosen or 0)][: len(terms)])
    odds, none = float(np.log(share) - np.log1p(-share)), len(weights) * float(np.log1p(-share))

    def exponent(tilt: Floats) -> float:
        return float(np.logaddexp(0, tilt @ terms + odds).sum()) + none - float(tilt @ least)

    tilt = np.zeros(len(terms))
    reached = exponent(tilt)
    for _ in range(_STEPS):
        each = expit(tilt @ terms + odds)
        slope = terms @ each - least
        curve = (terms * (each * (1 - each))) @ terms.T + 1e-9 * np.eye(len(terms))
        step = np.linalg.solve(curve, slope) if len(terms) > 1 else slope / curve[0]
        length = 1.0
        while length > 1e-3 and exponent(tilt - length * step) > reached:
            length /= 2
        found = exponent(tilt - length * step)
        if found > reached - _CLOSE:
            break
        tilt, reached = tilt - length * step, found
    if tilt[0] < 0:
        return 0.0
    if chosen is not None:
        reached -= float(binom.logpmf(chosen, len(weights), share))
    return min(0.0, reached)
