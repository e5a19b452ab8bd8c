"""Permutation test of whether one group scores higher than an exchangeable other.

If a release carries nothing about the private records, private and fresh records of the same
distribution are exchangeable given that release, whatever it looks like; so the test is exact
(Fisher 1935; Good 2005, chapter 3), with no assumption about scores and none about what else the
release favours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4_000_000


@dataclass(frozen=True)
class Gap:
    """Difference of means of the best scores of two groups.

    Attributes:
        value: First minus second.
        low: Lower end of the 95 % bootstrap interval.
        high: Upper end.
        p: One-sided permutation p-value of "the first is not higher", in (0, 1].
        n: Sizes of the two groups.
    """

    value: float
    low: float
    high: float
    p: float
    n: tuple[int, int]


def gap(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    share: float = 1.0,
    tests: int = 1,
    draws: int = 2000,
) -> Gap:
    """Test whether the best `share` of the first group scores higher than that of the second.

    Args:
        first: Scores, shape (n,), n at least 2.
        second: Scores, shape (m,), m at least 2.
        rng: Source of permutations and resamples.
        share: Share of each group that counts, its best ones; at least one each.
        tests: Number of tests in the run: there are enough permutations for a level of 0.05 / tests.
        draws: Least number of permutations, and number of bootstrap resamples.

    Raises:
        ValueError: A group with fewer than 2 scores, or a score that is not finite.
    """
    both = np.concatenate([first, second])
    if min(len(first), len(second)) < 2 or not np.isfinite(both).all():
        raise ValueError(
            f"two groups of at least 2 finite scores are needed, given {len(first)} and {len(second)}"
        )
    n, m = len(first), len(second)
    value = float(_best_mean(first[None], share)[0] - _best_mean(second[None], share)[0])
    permutations = max(draws, 100 * tests)
    higher = 0
    for size in _blocks(permutations, n + m):
        shuffled = rng.permuted(np.broadcast_to(both, (size, n + m)), axis=1)
        differences = _best_mean(shuffled[:, :n], share) - _best_mean(shuffled[:, n:], share)
        higher += int((differences >= value - 1e-12).sum())
    resampled = np.concatenate(
        [
            _best_mean(first[rng.integers(0, n, (size, n))], share)
            - _best_mean(second[rng.integers(0, m, (size, m))], share)
            for size in _blocks(draws, n + m)
        ]
    )
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Gap(value, float(low), float(high), (1 + higher) / (1 + permutations), (n, m))


def _blocks(total: int, width: int) -> list[int]:
    size = max(1, _BLOCK // width)
    return [min(size, total - start) for start in range(0, total, size)]


def _best_mean(scores: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Mean of each row's best `share`, shape (draws,)."""
    count = max(1, round(share * scores.shape[1]))
    if count == scores.shape[1]:
        return np.asarray(scores.mean(axis=1))
    return np.asarray(np.partition(scores, -count, axis=1)[:, -count:].mean(axis=1))
