"""Weighted guesses of a one-run bound on the coins of canaries, fixed before anything is seen.

The guesses follow from the declaration alone. If the mechanism is as declared, a canary is detected about as well
as under a Gaussian mechanism of the same epsilon, so the log odds of each rank of the scores are known beforehand.
A guess is worth making where they exceed the epsilon that is to be refuted, and the excess is its weight (the
likelihood ratio of the two hypotheses, Neyman and Pearson). Such a design shows little more than is declared: for
a mechanism that fails grossly, guesses on all canaries show more.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from fedassay.audits.claim.canary_scores import ALL, FEW, SHARES, CanaryScores
from fedassay.audits.stats.one_run_fdp import approximate_inverse, largest_rejected, rejects
from fedassay.audits.stats.one_run_weighted import weighted_bound, weighted_p_value, weighted_right
from fedassay.privacy.gaussian import mu_of

WEIGHTS = 8
"""Weights are whole numbers up to this one."""
_FEWEST = 5
"""Guesses at either end at least."""
_RANKS = 18
_COMPARED = 3
_TOP = 32
"""One in so many guesses has the largest weight."""


def one_run_of_all(
    scores: CanaryScores, included: NDArray[np.bool_], *, removed: bool, epsilon: float, delta: float, error: float
) -> float:
    """The largest one-run lower bound on epsilon of all scores, each at its share of the error.

    Args:
        scores: Of m canaries.
        included: Their coins, (m,).
        removed: Whether a canary is there or not, and not there with either sign.
        epsilon: Declared epsilon.
        delta: Of the claim.
        error: Of all scores together.
    """
    count, best = len(included), 0.0
    for name, values in scores.named().items():
        level = SHARES[name] * error
        pairs = (max(10, count // 200),) if name == FEW else pairs_of_guesses(count, epsilon, delta, level)
        counts, right = tuple(2 * each for each in pairs), weighted_right(values, included, pairs)
        if name == FEW and removed:
            # Only the presence of canaries is guessed: a canary that is absent leaves no trace.
            right = int(np.count_nonzero(included[np.argsort(values, kind="stable")[-counts[0] :]]))
        best = max(best, _bound(counts, right, count, delta, level))
    # Where nothing is as declared, every guess may be right, and only guesses on all canaries show how much.
    right = int(np.count_nonzero(scores.parted() == included))
    return max(best, _bound((count,), right, count, delta, SHARES[ALL] * error))


def _bound(counts: tuple[int, ...], right: int, count: int, delta: float, level: float) -> float:
    """The bound of right guesses; of equal weights the better of two, which look at the same number."""
    weighted = weighted_bound(counts, right, count, delta, level)
    if len(counts) > 1:
        return weighted
    equal = largest_rejected(
        lambda tried: rejects(approximate_inverse(tried, delta), count, counts[0], right, level)
    )
    return max(weighted, equal)


@lru_cache(maxsize=64)
def pairs_of_guesses(count: int, epsilon: float, delta: float, level: float) -> tuple[int, ...]:
    """Number of guesses of each weight, from 1 up, that a one-run bound should make at either end of the scores.

    They give the largest bound where the mechanism is as declared and right guesses fall a standard deviation
    short of their expectation.

    Args:
        count: Canaries.
        epsilon: The declared epsilon.
        delta: Of the claim.
        level: Of the bound.
    """
    odds = _log_odds(mu_of(epsilon, delta), count)
    chances = expit(odds)
    designs = []
    for rank in np.unique(np.geomspace(min(_FEWEST, len(odds)), len(odds), _RANKS).astype(int)).tolist():
        above = odds[:rank] - odds[rank - 1]
        top = above[rank // _TOP] if rank > _TOP else 0.0
        designs.append(np.ones(rank, np.int64))
        if top > 0:
            designs.append(np.ceil(WEIGHTS * above / top).clip(1, WEIGHTS).astype(np.int64))

    def short(weights: NDArray[np.int64]) -> int:
        own = chances[: len(weights)]
        spread = np.sqrt(2 * (weights**2 * own * (1 - own)).sum())
        return max(0, int(2 * (weights * own).sum() - spread))

    def p_value(weights: NDArray[np.int64]) -> float:
        return weighted_p_value(2 * np.bincount(weights)[1:], short(weights), count, aimed, delta)

    def bound(weights: NDArray[np.int64]) -> float:
        return weighted_bound(2 * np.bincount(weights)[1:], short(weights), count, delta, level)

    # p-values at one epsilon are cheap; those that are smallest near the bound that they give are compared by it.
    aimed = epsilon / 2
    aimed = bound(min(designs, key=p_value)) or aimed / 2
    best = max(sorted(designs, key=p_value)[:_COMPARED], key=bound)
    return tuple(np.bincount(best)[1:].tolist())


def _log_odds(mu: float, count: int) -> NDArray[np.float64]:
    """Log odds of a right guess on N(0, 1) and N(mu, 1), the outermost score first, shape (count // 2,)."""
    scores = np.linspace(mu / 2 + 12.0, mu / 2, 4096)
    beyond = (ndtr(mu - scores) + ndtr(-scores)) / 2
    ranks = (np.arange(count // 2) + 0.5) / count
    return np.asarray(mu * np.interp(ranks, beyond, scores) - mu**2 / 2, np.float64)
