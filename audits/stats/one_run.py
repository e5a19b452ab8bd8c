"""Epsilon lower bound from ONE run with many canaries.

Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023). Each of m canaries
is included independently with probability 1/2; the auditor, seeing the output, guesses r of the
inclusions and abstains from the rest. Under (epsilon, delta)-DP (add_remove) the number of correct
guesses is stochastically dominated, up to delta, by Binomial(r, e^epsilon / (1 + e^epsilon))
(Theorem 3.1), which turns the number v of correct guesses into a p-value for every epsilon.

Assumptions: independent fair inclusion of each canary, each canary one record, guesses computed
without the inclusions. A bound of 0 says only that these canaries and scores showed nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from fedassay.audits.stats.epsilon_bound import EpsilonBound, check_levels, checked_scores

_NAME = "one run"


def one_run_bound(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[int] | None = None,
) -> EpsilonBound:
    """Epsilon lower bound from one run's canary scores.

    Args:
        scores: (m,), higher where the canary looks included.
        included: (m,) of bool, the inclusions drawn.
        delta: in [0, 1).
        confidence: one-sided.
        guesses: numbers of guesses r to try, each in 2..m: the r/2 highest scores are guessed in, the
            r/2 lowest out. The best is reported at its share of the error (Bonferroni). Fixed before
            the scores are seen; None tries m/20, m/5 and m.

    Returns:
        The bound, at least 0.
    """
    check_levels(delta, confidence)
    tried = guess_counts(scores, included, guesses)
    level = (1 - confidence) / len(tried)
    m = len(np.asarray(scores))

    def bound(r: int, v: int) -> float:
        return largest_rejected(lambda epsilon: p_value(m, r, v, epsilon, delta) < level)

    return EpsilonBound(max(bound(r, v) for r, v in tried), confidence, _NAME)


def p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Highest probability of v or more correct guesses out of r under (epsilon, delta)-DP.

    Steinke, Nasr and Jagielski (2023), Theorem 3.1: beta + 2 m delta alpha, with beta the binomial tail
    at v and alpha the largest over i of P[v - i <= W < v] / i.

    Args:
        m: canaries.
        r: guesses, at most m.
        v: correct guesses, at most r.
        epsilon: at least 0.
        delta: in [0, 1].
    """
    if not 0 <= v <= r <= m:
        raise ValueError(f"0 <= v <= r <= m must hold, got v={v}, r={r}, m={m}")
    accuracy = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(v - 1, r, accuracy))
    if delta == 0 or v == 0:
        return min(beta, 1.0)
    below = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, accuracy))
    alpha = float(np.max(below / np.arange(1, v + 1)))
    return min(beta + 2 * m * delta * alpha, 1.0)


def guess_counts(scores: ArrayLike, included: ArrayLike, guesses: Sequence[int] | None) -> list[tuple[int, int]]:
    """(guesses made, guesses correct) for each number of guesses; ties are broken by position."""
    values = checked_scores(scores, "scores")
    truth = np.asarray(included)
    if truth.shape != values.shape or truth.dtype != np.bool_:
        raise ValueError(f"included must be bool of shape {values.shape}, got {truth.dtype} {truth.shape}")
    m = len(values)
    candidates = [m // 20, m // 5, m] if guesses is None else list(guesses)
    if guesses is None:
        candidates = sorted({max(2, r) for r in candidates})
    if not candidates or not all(2 <= r <= m for r in candidates):
        raise ValueError(f"guesses must lie in 2..{m}, got {candidates}")
    truth = truth[np.argsort(values, kind="stable")]
    return [(2 * (r // 2), _correct(truth, r // 2)) for r in candidates]


def _correct(sorted_truth: NDArray[np.bool_], each: int) -> int:
    return int(np.count_nonzero(sorted_truth[-each:]) + np.count_nonzero(~sorted_truth[:each]))


def largest_rejected(
    rejected: Callable[[float], bool],
    *,
    low: float = 0.0,
    high: float = 1.0,
    limit: float = 500.0,
    tolerance: float = 1e-6,
) -> float:
    """Largest parameter that `rejected` (true from `low` up to some point, then false) still rejects; else 0.

    Args:
        rejected: The test.
        low: Where the search begins.
        high: Where it first looks for the end; raised while that is still rejected.
        limit: Above which it is not raised.
        tolerance: Relative; a tenth of it below 0.1.
    """
    if not rejected(low):
        return 0.0
    while high < limit and rejected(high):
        low, high = high, 2 * high
    while high - low > tolerance * max(0.1, low):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low
