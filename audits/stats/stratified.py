"""Permutation test of whether one group scores higher than another, within strata.

Where two groups hold as many records of every stratum (a client's class, say) and records of a stratum are
exchangeable under the hypothesis, swapping them within strata leaves the joint distribution as it is, whatever
the strata are like; so the test is exact (Good 2005, chapter 3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.permutation import Gap

_BLOCK = 2_000_000


def stratified_gap(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    strata: tuple[NDArray[np.int64], NDArray[np.int64]],
    rng: np.random.Generator,
    *,
    tests: int = 1,
    draws: int = 2000,
) -> Gap:
    """Test whether the first group's mean is higher than the second's, permuting within strata.

    Args:
        first: Scores, shape (n,), n at least 2.
        second: Scores, shape (m,), m at least 2.
        strata: The stratum of each score of the two groups, shapes (n,) and (m,).
        rng: Source of permutations and resamples.
        tests: Number of tests in the run: there are enough permutations for a level of 0.05 / tests.
        draws: Least number of permutations, and number of bootstrap resamples (within groups).

    Raises:
        ValueError: A group with fewer than 2 scores, a score that is not finite, or no stratum in both groups,
            where nothing could be swapped.
    """
    both = np.concatenate([first, second])
    where = np.concatenate(strata)
    if min(len(first), len(second)) < 2 or not np.isfinite(both).all():
        raise ValueError(
            f"two groups of at least 2 finite scores are needed, given {len(first)} and {len(second)}"
        )
    if not np.intersect1d(*strata).size:
        raise ValueError("no stratum occurs in both groups: nothing can be swapped")
    n, m = len(first), len(second)
    value = float(first.mean() - second.mean())
    # Sorted by stratum, a shuffle within strata is a sort by (stratum, random number).
    order = np.argsort(where, kind="stable")
    blocks, grouped = where[order].astype(np.float64), both[order]
    in_first = order < n
    permutations = max(draws, 100 * tests)
    higher, done = 0, 0
    while done < permutations:
        size = min(permutations - done, max(1, _BLOCK // len(both)))
        keys = np.unique(blocks, return_inverse=True)[1] + rng.random((size, len(both)))
        shuffled = grouped[np.argsort(keys, axis=1)]
        total = shuffled[:, in_first].sum(axis=1)
        differences = total / n - (grouped.sum() - total) / m
        higher += int((differences >= value - 1e-12).sum())
        done += size
    resampled = np.array(
        [first[rng.integers(0, n, n)].mean() - second[rng.integers(0, m, m)].mean() for _ in range(draws)]
    )
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Gap(value, float(low), float(high), (1 + higher) / (1 + permutations), (n, m))
