"""Epsilon lower bound from ONE run with many canaries, by f-DP.

Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run" (2024), Algorithm 3, in the game of
Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023): each of m canaries is included
independently with probability 1/2; the auditor, seeing the output, guesses r of the inclusions and abstains from
the rest.

Let T be the number of correct guesses among r, r_j = E[T; T >= j] / m and h_j = E[r - T; T >= j] / m.
For a mechanism with trade-off function f (symmetric), guessing canary i correctly while at least j
OTHER guesses are correct, and guessing it wrongly while at least j others are, are the same event
under the two inclusions of i. Averaging over i, with B the inverse of x -> 1 - f(x), convex,

    h_j >= B(r_{j+1}).

Suppose P[T >= v] = tau. The constraints only ease when mass moves to lower T, so the least total
mass is reached with tau at T = v and, below, no more than each constraint demands:
h_j = max(h_{j+1}, B(r_{j+1})) and r_j = r_{j+1} + j / (r - j) (h_j - h_{j+1}). If that already comes to
more than the whole, r_0 + h_0 > r / m, then P[T >= v] < tau, and v correct guesses reject f at level tau.

Assumptions: independent fair inclusion of each canary, each canary one record, guesses computed
without the inclusions. A bound of 0 says only that these canaries and scores showed nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.audits.stats.epsilon_bound import EpsilonBound, check_levels, checked_scores


def one_run_fdp_bound(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    delta: float,
    confidence: float,
    guesses: Sequence[int] | None = None,
) -> EpsilonBound:
    """Epsilon lower bound from one run's canary scores, under (epsilon, delta)-DP and nothing else.

    Args:
        scores: (m,), higher where the canary looks included.
        included: (m,) of bool; independent, each with probability 1/2.
        delta: in [0, 1).
        confidence: one-sided.
        guesses: numbers of guesses r to try, each in 2..m: the r/2 highest scores are guessed in, the
            r/2 lowest out. The best is reported at its share of the error (Bonferroni). Fixed before
            the scores are seen; None tries m/20, m/5 and m.
    """
    check_levels(delta, confidence)
    tried = guess_counts(scores, included, guesses)
    level = (1 - confidence) / len(tried)
    m = len(np.asarray(scores))

    def bound(r: int, v: int) -> float:
        return largest_rejected(lambda epsilon: rejects(approximate_inverse(epsilon, delta), m, r, v, level))

    return EpsilonBound(max(bound(r, v) for r, v in tried), confidence, "one run (f-DP)")


def rejects(inverse: Callable[[float], float], m: int, r: int, v: int, level: float) -> bool:
    """Whether v or more correct guesses out of r are less likely than `level` under a trade-off function.

    Args:
        inverse: B, the inverse of x -> 1 - f(x): convex, increasing, 0 at 0.
        m: canaries.
        r: guesses, at most m.
        v: correct guesses, at most r.
        level: tau, in (0, 1).
    """
    if not 0 <= v <= r <= m:
        raise ValueError(f"0 <= v <= r <= m must hold, got v={v}, r={r}, m={m}")
    correct, wrong = level * v / m, level * (r - v) / m
    for j in range(v - 1, -1, -1):
        demanded = inverse(correct)
        if demanded > wrong:
            correct += j / (r - j) * (demanded - wrong)
            wrong = demanded
        if correct + wrong > r / m:
            return True
    return False


def approximate_inverse(epsilon: float, delta: float) -> Callable[[float], float]:
    """B of (epsilon, delta)-DP: its 1 - f is min(1, e^epsilon x + delta, 1 - e^-epsilon (1 - delta - x))."""
    shrink, grow = math.exp(-epsilon), math.exp(min(epsilon, 700.0))
    return lambda x: max(0.0, (x - delta) * shrink, 1 - delta - (1 - x) * grow)


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
        low: Lower end of the search.
        high: First upper end of the search; raised while that is still rejected.
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
