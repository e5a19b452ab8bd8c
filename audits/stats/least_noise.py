"""Whether numbers that are said to carry Gaussian noise are too small to carry it, whatever lies beneath it.

For every value v and noise z ~ N(0, sigma^2), |v + z| is stochastically at least |z|. So u = 2 Phi(|x| / sigma)
- 1 is stochastically at least uniform, and of n independent entries the k-th smallest u is at least that of n
uniforms: P(u_(k) <= t) <= P(Beta(k, n - k + 1) <= t). A small P(Beta(k, n - k + 1) <= u_(k)) at any k speaks
against the noise; the smallest over k is the one-sided statistic of Berk and Jones ("Goodness-of-fit test
statistics that dominate the Kolmogorov statistics", 1979). No truth is needed, and none can hide the noise's
absence but one that is as large.

The smallest is taken over ranks fixed beforehand (all of up to 32, then in geometric steps from both ends), and
paid for by their number: valid at every n without simulation, and too large by a factor of at most their
number, 57. P-values are returned as logarithms, since a field without noise has one far below the smallest
float.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import betainc, erf, ndtr

from fedassay.support.types import Ints, Matrix

_EACH_END = 24
_TINY = 1e-290


def two_sided_levels(values: Matrix, scales: Matrix, half_steps: Matrix) -> Matrix:
    """Levels u = 2 Phi((|x| + half a step) / sigma) - 1, the share of noises that are no larger.

    Args:
        values: Entries, shape (n,).
        scales: Declared standard deviations, above 0, shape (n,).
        half_steps: Half the step to which each entry was rounded, shape (n,).
    """
    return np.asarray(erf((np.abs(values) + half_steps) / (scales * math.sqrt(2))))


def one_sided_levels(values: Matrix, scales: Matrix, half_steps: Matrix) -> Matrix:
    """Levels u = Phi((x + half a step) / sigma), where the value beneath the noise is known to be at least 0."""
    return np.asarray(ndtr((values + half_steps) / scales))


def log10_ps_of_noise(levels: Matrix) -> Matrix:
    """Logarithms to base 10 of p-values of "every level is stochastically at least uniform", one for each block.

    Args:
        levels: Of independent entries, in [0, 1], shape (b, n), a block in each row.

    Returns:
        Shape (b,), at most 0; 0 for no entries.
    """
    n = levels.shape[1]
    if n == 0:
        return np.zeros(len(levels))
    ranks = _ranks(n)
    reached = np.sort(levels, axis=1)[:, ranks - 1]
    logs = betainc(ranks, n - ranks + 1, reached)
    held = logs > _TINY
    logs[held] = np.log10(logs[held])
    logs[~held] = _chernoff(np.broadcast_to(ranks, held.shape)[~held], n, reached[~held])
    return np.asarray(np.minimum(0.0, logs.min(axis=1) + math.log10(len(ranks))))


def _chernoff(ranks: Ints, n: int, levels: Matrix) -> Matrix:
    """Upper bound on log10 P(Bin(n, t) >= k) where that is too small for a float: -n KL(k / n || t)."""
    shares = ranks / n
    with np.errstate(divide="ignore", invalid="ignore"):
        upper = np.where(shares < 1, (1 - shares) * np.log((1 - shares) / (1 - levels)), 0.0)
        divergence = shares * np.log(shares / levels) + upper
    return np.asarray(-n * divergence / math.log(10))


@lru_cache(64)
def _ranks(n: int) -> Ints:
    if n <= 32:
        return np.arange(1, n + 1)
    steps = np.geomspace(1, n, _EACH_END).round().astype(np.int64)
    # As fine in the middle as at the ends, where a part of the entries lacks its noise.
    even = np.linspace(1, n, 9).round().astype(np.int64)
    return np.unique(np.concatenate([steps, n + 1 - steps, even]))
