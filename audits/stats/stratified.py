"""Permutation test of whether one group scores higher than another, within strata.

Where two groups hold as many records of every stratum (a client's class, say) and records of a stratum are
exchangeable under the hypothesis, swapping them within strata leaves the joint distribution as it is, whatever
the strata are like; so the test is exact (Good 2005, chapter 3).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.permutation import Draws, Gap, PermutationTest
from fedassay.support.types import Matrix


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

    As in a `PermutationTest`, no more are drawn where the first ones show that p is above any level.

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
    strata_of = np.unique(blocks, return_inverse=True)[1]

    def shuffled(count: int) -> Matrix:
        keys = strata_of + rng.random((count, len(both)))
        total = grouped[np.argsort(keys, axis=1)][:, in_first].sum(axis=1)
        return np.asarray(total / n - (grouped.sum() - total) / m)

    size, scale = Draws.of_run(tests, draws), float(np.abs(both).max())
    p = PermutationTest.of_some(value, shuffled, size, 0.0, (n, m), scale).p
    low, high = _interval(first, second, rng, draws)
    return Gap(value, low, high, p, (n, m))


def _interval(
    first: NDArray[np.float64], second: NDArray[np.float64], rng: np.random.Generator, draws: int
) -> tuple[float, float]:
    """95 % bootstrap interval of the difference of means, resampled within groups."""
    n, m = len(first), len(second)
    resampled = np.array(
        [first[rng.integers(0, n, n)].mean() - second[rng.integers(0, m, m)].mean() for _ in range(draws)]
    )
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(low), float(high)


def gap_of_counts(
    first: NDArray[np.bool_],
    second: NDArray[np.bool_],
    strata: tuple[NDArray[np.int64], NDArray[np.int64]],
    rng: np.random.Generator,
    *,
    draws: int,
) -> Gap:
    """The first group's share of true ones less the second's, with the exact p-value of `stratified_count`.

    Args:
        first: Shape (n,).
        second: Shape (m,).
        strata: The stratum of each.
        rng: Source of resamples.
        draws: Bootstrap resamples.
    """
    ours, theirs = first.astype(np.float64), second.astype(np.float64)
    low, high = _interval(ours, theirs, rng, draws)
    p = stratified_count(first, second, strata)
    return Gap(float(ours.mean() - theirs.mean()), low, high, p, (len(first), len(second)))


def stratified_count(
    first: NDArray[np.bool_], second: NDArray[np.bool_], strata: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> float:
    """p-value of "no more of the first group than of the second are true", swapping within strata: exact.

    In every stratum the number of the first group's records among the true ones is hypergeometric; their sum is a
    convolution (the one-sided exact test of Cochran, Mantel and Haenszel; Agresti, Categorical Data Analysis,
    2002, section 6.3.5).

    Args:
        first: Shape (n,).
        second: Shape (m,).
        strata: The stratum of each, shapes (n,) and (m,).
    """
    names, both = np.unique(np.concatenate(strata), return_inverse=True)
    where, size = (both[: len(first)], both[len(first) :]), len(names)
    ours, theirs = (np.bincount(each, minlength=size) for each in where)
    hits = np.bincount(where[0], weights=first, minlength=size).astype(np.int64)
    others = np.bincount(where[1], weights=second, minlength=size).astype(np.int64)
    total = np.ones(1)
    for label in np.flatnonzero(hits + others):
        pmf = _hypergeometric(int(ours[label] + theirs[label]), int(hits[label] + others[label]), int(ours[label]))
        total = np.convolve(total, pmf)
    return float(min(1.0, total[int(hits.sum()) :].sum()))


@lru_cache(maxsize=4096)
def _hypergeometric(size: int, true: int, drawn: int) -> NDArray[np.float64]:
    """Probabilities of 0, 1, ... true ones among those drawn."""
    from scipy.stats import hypergeom

    return np.asarray(hypergeom.pmf(np.arange(min(true, drawn) + 1), size, true, drawn))
