"""Epsilon lower bound from a threshold test: assumes nothing about the scores' distribution.

Any (epsilon, delta)-DP mechanism satisfies P1(E) <= exp(epsilon) P0(E) + delta for every event E,
and the same with P0 and P1 exchanged. E is "score above t" or "score at most t". As in Nasr et al.,
"Adversary Instantiation: Lower Bounds for Differentially Private Machine Learning" (2021), section
IV-B, the two probabilities are bounded by Clopper-Pearson; unlike there, choosing the event is paid for:

- `split`: it is chosen on one half of the scores and tested on the other.
- `bonferroni`: events are fixed beforehand as ranks of the side on which they are rare, and share the error. Of
  Gaussian scores this gives more, since every score counts; where scores take few values its ranks miss the best
  event, and `split` gives more. The choice must not look at the scores either.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.audits.stats.epsilon_bound import EpsilonBound, check_levels, checked_scores
from fedassay.audits.stats.intervals import clopper_pearson, wilson

_CANDIDATES = 150  # in each tail; more costs time and finds no larger bound
_EXACT = 64  # events with a computed exact bound: the best by score intervals; any choice is a valid one
_NAME = "threshold (Clopper-Pearson)"

Choice = Literal["split", "bonferroni"]
"""Method that pays for the choice of the event."""


def threshold_bound(
    scores0: ArrayLike,
    scores1: ArrayLike,
    *,
    delta: float,
    rng: np.random.Generator,
    confidence: float = 0.95,
    choice: Choice = "split",
) -> EpsilonBound:
    """Epsilon lower bound from independent scores under each of two neighbouring data sets.

    Args:
        scores0: (n0,) scores of independent runs on data set 0.
        scores1: (n1,) scores of independent runs on data set 1; n0, n1 at least 4.
        delta: in [0, 1).
        rng: splits each side into the half that chooses and the half that tests; `bonferroni` leaves it alone.
        confidence: one-sided, shared equally by the two proportions.
        choice: how choosing the event is paid for.

    Returns:
        The bound, 0 where nothing was shown. It cannot exceed about ln(n/8) whatever the mechanism does.

    Raises:
        ValueError: if there are fewer than 4 scores a side, NaN among them, or a level out of range.
    """
    check_levels(delta, confidence)
    zero, one = checked_scores(scores0, "scores0"), checked_scores(scores1, "scores1")
    if min(len(zero), len(one)) < 4:
        raise ValueError(f"at least 4 scores a side are needed, got {len(zero)} and {len(one)}")
    if choice == "bonferroni":
        return EpsilonBound(_over_ranks(zero, one, delta, confidence), confidence, f"{_NAME}, Bonferroni")
    choose0, test0 = _halves(zero, rng)
    choose1, test1 = _halves(one, rng)
    thresholds = _candidates(np.concatenate([choose0, choose1]))
    chosen = _bounds(choose0, choose1, thresholds, delta, confidence)
    event, index = np.unravel_index(np.argmax(chosen), chosen.shape)
    tested = _bounds(test0, test1, thresholds[index : index + 1], delta, confidence)
    return EpsilonBound(max(0.0, float(tested[event, 0])), confidence, _NAME)


def _over_ranks(zero: NDArray[np.float64], one: NDArray[np.float64], delta: float, confidence: float) -> float:
    """The largest of simultaneous bounds over events at fixed ranks of the side where they are rare.

    On the rare side, Clopper-Pearson's upper confidence bound for k of n covers the probability of the event
    "score above the k+1-th highest of n rare-side scores" (the order statistics of uniforms are beta variables),
    ties included. The other side is independent of that score. Four families: either side rare, scores above or
    below.
    """
    families = [(zero, one), (one, zero), (-zero, -one), (-one, -zero)]
    ranks = [_ranks(len(rare)) for rare, _ in families]
    level = 1 - (1 - confidence) / (2 * sum(len(part) for part in ranks))
    best = 0.0
    for (rare, likely), part in zip(families, ranks, strict=True):
        thresholds = np.sort(rare)[::-1][part]
        hits = len(likely) - np.searchsorted(np.sort(likely), thresholds, side="right")
        low = clopper_pearson(hits, len(likely), confidence=level, side="lower").low
        high = clopper_pearson(part, len(rare), confidence=level, side="upper").high
        best = max(best, float(np.log(np.maximum(low - delta, 1e-300) / high).max()))
    return best


def _ranks(n: int) -> NDArray[np.int64]:
    """Numbers k of scores above a threshold, 0 and then by a factor of 1.6 each up to half of n."""
    powers = 1.6 ** np.arange(math.ceil(math.log(max(n / 2, 1.0)) / math.log(1.6)) + 1)
    return np.unique(np.concatenate([[0], np.minimum(powers, n / 2)]).astype(np.int64))


def _halves(
    scores: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shuffled = rng.permutation(scores)
    middle = len(scores) // 2
    return np.sort(shuffled[:middle]), np.sort(shuffled[middle:])


def _candidates(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thresholds at pooled ranks that are dense in both tails, where large epsilons show."""
    ordered = np.sort(scores)
    n = len(ordered)
    tail = np.unique(np.geomspace(1, n, min(_CANDIDATES, n)).astype(np.int64)) - 1
    chosen = np.unique(np.concatenate([tail, n - 1 - tail]))
    return np.asarray(ordered[chosen], dtype=np.float64)


def _bounds(
    zero: NDArray[np.float64],
    one: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    delta: float,
    confidence: float,
) -> NDArray[np.float64]:
    """(4, t) lower bounds on epsilon from sorted scores: {score > t} and {score <= t}, each both ways round."""
    above0 = len(zero) - np.searchsorted(zero, thresholds, side="right")
    above1 = len(one) - np.searchsorted(one, thresholds, side="right")
    events0 = np.stack([above0, len(zero) - above0])
    events1 = np.stack([above1, len(one) - above1])
    level = (1 + confidence) / 2  # one-sided, half of the error for each proportion
    likely, rare = np.concatenate([events1, events0]), np.concatenate([events0, events1])
    of_likely = np.repeat([len(one), len(zero)], 2)[:, None] * np.ones_like(likely)
    of_rare = np.repeat([len(zero), len(one)], 2)[:, None] * np.ones_like(rare)
    # Beta quantiles are all the cost, and an event that is no likelier on the one side shows nothing.
    promising = likely * of_rare > rare * of_likely
    if promising.sum() > _EXACT:
        promising &= _best(likely, of_likely, rare, of_rare, promising, delta, level)
    low = clopper_pearson(likely[promising], of_likely[promising], confidence=level, side="lower").low
    high = clopper_pearson(rare[promising], of_rare[promising], confidence=level, side="upper").high
    bounds = np.full(likely.shape, -math.inf)
    bounds[promising] = np.log(np.maximum(low - delta, 1e-300) / high)
    return np.where(bounds > math.log(1e-299), bounds, -math.inf)


def _best(
    likely: NDArray[np.int64],
    of_likely: NDArray[np.float64],
    rare: NDArray[np.int64],
    of_rare: NDArray[np.float64],
    among: NDArray[np.bool_],
    delta: float,
    level: float,
) -> NDArray[np.bool_]:
    """The `_EXACT` events with the largest bounds by Wilson's intervals, which need no beta quantile."""
    two_sided = 2 * level - 1
    low = wilson(likely[among], of_likely[among], confidence=two_sided).low
    high = wilson(rare[among], of_rare[among], confidence=two_sided).high
    rough = np.maximum(low - delta, 0) / high
    chosen = np.zeros(among.shape, dtype=np.bool_)
    chosen.flat[np.flatnonzero(among)[np.argpartition(rough, -_EXACT)[-_EXACT:]]] = True
    return chosen
