"""An upper bound of the chance that a sum of randomly chosen weights reaches a bar, without drawing any.

Each weight is chosen with one probability, independently of the others (Chernoff, Annals of Mathematical
Statistics 1952, theorem 1): log P <= sum log(1 - p + p e^(t w)) - t s for every t > 0. Where exactly k of n are
chosen, as in a permutation of two groups, the chance is that of independent choices given their number: for
every t > 0 and u, log P <= sum log(1 - p + p e^(t w + u)) - t s - u k - log P(Binomial(n, p) = k) at p = k / n.
Every t and u gives a bound, so Newton's method may stop at any step. Several sums are bounded together.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from fedassay.support.types import Matrix

_STEPS, _HALVINGS = 25, 10
_CLOSE = 0.1
"""A step that lowers no log by more is the last: the bounds are asked for their order of magnitude."""
_FLAT = 1e-9


def log_chances(
    weights: Matrix, bars: Matrix, share: float, *, chosen: int | None = None, others: int = 0
) -> Matrix:
    """Upper bounds of the logs of the chances that chosen weights sum to a bar or more, shape (m,); at most 0.

    Args:
        weights: Shape (m, n), one row for each sum.
        bars: Value that each sum has to reach, shape (m,).
        share: Probability of each weight to be chosen, between 0 and 1; k / (n + others) where `chosen` is given.
        chosen: Number that are chosen, k, where these are exactly so many; else each is, or is not, by itself.
        others: Further weights of 0 that are chosen from as well.
    """
    found = np.where(bars > np.maximum(weights, 0).sum(axis=1), -np.inf, 0.0)
    scales = np.abs(weights).max(axis=1, initial=0)
    asked = np.flatnonzero((found == 0) & (bars > share * weights.sum(axis=1)) & (scales > 0))
    if not len(asked):
        return found
    terms, least = weights[asked] / scales[asked, None], bars[asked] / scales[asked]
    odds, size = float(np.log(share) - np.log1p(-share)), weights.shape[1] + others
    none, number = size * float(np.log1p(-share)), float(chosen or 0)

    def exponents(t: Matrix, u: Matrix) -> Matrix:
        each = np.logaddexp(0, t[:, None] * terms + (u[:, None] + odds)).sum(axis=1)
        return np.asarray(each + others * np.logaddexp(0, u + odds) + none - t * least - u * number)

    # One row for t and, where so many are chosen, one for u; the exponents are convex in both.
    t, u = np.zeros(len(asked)), np.zeros(len(asked))
    reached = exponents(t, u)
    for _ in range(_STEPS):
        down, up = _newton(terms, least, number if chosen is not None else None, others, t, u, odds)
        length = np.ones(len(asked))
        lower = exponents(t - down, u - up)
        for _ in range(_HALVINGS):
            if not (worse := lower > reached).any():
                break
            length[worse] /= 2
            lower = exponents(t - length * down, u - length * up)
        length[lower > reached] = 0
        gained = float(np.max(np.where(length > 0, reached - lower, 0)))
        t, u, reached = t - length * down, u - length * up, np.minimum(reached, lower)
        if gained <= _CLOSE:
            break
    if chosen is not None:
        reached = reached - float(binom.logpmf(chosen, size, share))
    found[asked] = np.where(t < 0, 0, np.minimum(0, reached))
    return found


def log_chance(weights: Matrix, bar: float, share: float, *, chosen: int | None = None) -> float:
    """The bound of `log_chances` for one sum of weights, shape (n,)."""
    return float(log_chances(weights[None], np.array([bar]), share, chosen=chosen)[0])


def _newton(
    terms: Matrix, least: Matrix, number: float | None, others: int, t: Matrix, u: Matrix, odds: float
) -> tuple[Matrix, Matrix]:
    """Newton's steps in t and u of each exponent; in t alone where no number is chosen."""
    each = expit(t[:, None] * terms + (u[:, None] + odds))
    vary = each * (1 - each)
    slope, curve = (each * terms).sum(axis=1) - least, (vary * terms**2).sum(axis=1) + _FLAT
    if number is None:
        return slope / curve, np.zeros_like(slope)
    rest = expit(u + odds)
    slope_u = each.sum(axis=1) + others * rest - number
    curve_u = vary.sum(axis=1) + others * rest * (1 - rest) + _FLAT
    both = (vary * terms).sum(axis=1)
    area = curve * curve_u - both**2
    return (curve_u * slope - both * slope_u) / area, (curve * slope_u - both * slope) / area
