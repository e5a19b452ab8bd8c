"""Epsilon lower bound from one run, by f-DP: tighter than `one_run`, which it otherwise resembles.

Mahloujifar, Melis and Chaudhuri, "Auditing f-Differential Privacy in One Run" (2024), Algorithm 3.

Let T be the number of correct guesses among r, r_j = E[T; T >= j] / m and h_j = E[r - T; T >= j] / m.
For a mechanism with trade-off function f (symmetric), guessing canary i correctly while at least j
OTHER guesses are correct, and guessing it wrongly while at least j others are, are the same event
under the two inclusions of i. Averaging over i, with B the inverse of x -> 1 - f(x), convex,

    h_j >= B(r_{j+1}).

Suppose P[T >= v] = tau. The constraints only ease when mass moves to lower T, so the least total
mass is reached with tau at T = v and, below, no more than each constraint demands:
h_j = max(h_{j+1}, B(r_{j+1})) and r_j = r_{j+1} + j / (r - j) (h_j - h_{j+1}). If that already comes to
more than the whole, r_0 + h_0 > r / m, then P[T >= v] < tau, and v correct guesses reject f at level tau.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from fedassay.audits.stats.epsilon_bound import EpsilonBound, check_levels
from fedassay.audits.stats.one_run import guess_counts, largest_rejected
from fedassay.privacy.gaussian import epsilon_of

_NAME = "one run (f-DP)"


def one_run_fdp_bound(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    family: Literal["gaussian", "approximate"] = "gaussian",
    guesses: Sequence[int] | None = None,
) -> EpsilonBound:
    """Epsilon lower bound from one run's canary scores (as `one_run_bound`, with the f-DP refinement).

    Args:
        scores: (m,), higher where the canary looks included.
        included: (m,) of bool; independent, each with probability 1/2.
        delta: in (0, 1) for `gaussian`, in [0, 1) for `approximate`.
        confidence: one-sided.
        family: `gaussian` rejects mu-GDP for growing mu and converts the largest rejected one at delta: a
            statement about epsilon only if the mechanism's trade-off is Gaussian. `approximate` rejects
            (epsilon, delta)-DP itself and assumes nothing.
        guesses: as in `one_run_bound`.
    """
    check_levels(delta, confidence)
    if family == "gaussian" and delta == 0:
        raise ValueError("delta must be greater than 0 for the gaussian family")
    tried = guess_counts(scores, included, guesses)
    level = (1 - confidence) / len(tried)
    m = len(np.asarray(scores))

    def curve(parameter: float) -> Callable[[float], float]:
        return gaussian_inverse(parameter) if family == "gaussian" else approximate_inverse(parameter, delta)

    def bound(r: int, v: int) -> float:
        return largest_rejected(lambda parameter: rejects(curve(parameter), m, r, v, level))

    found = max(bound(r, v) for r, v in tried)
    if family == "gaussian":
        return EpsilonBound(epsilon_of(found, delta), confidence, _NAME, mu=found)
    return EpsilonBound(found, confidence, _NAME)


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


def gaussian_inverse(mu: float) -> Callable[[float], float]:
    """B of mu-GDP: x -> Phi(Phi^-1(x) - mu)."""
    return lambda x: float(ndtr(ndtri(min(x, 1.0)) - mu))


def approximate_inverse(epsilon: float, delta: float) -> Callable[[float], float]:
    """B of (epsilon, delta)-DP, whose 1 - f is min(1, e^epsilon x + delta, 1 - e^-epsilon (1 - delta - x))."""
    shrink, grow = math.exp(-epsilon), math.exp(min(epsilon, 700.0))
    return lambda x: max(0.0, (x - delta) * shrink, 1 - delta - (1 - x) * grow)
