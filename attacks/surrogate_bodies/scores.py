"""Likelihood ratio of a sum of features with a candidate in it, by the features of surrogates.

A victim's body is taken for one more draw from the distribution of surrogates. A surrogate s has the features e_sj
of candidate j; their mean over surrogates is mu_j, and W is the covariance of e_sj - mu_j. A class mean of n
records, candidate j among them, has the expectation c + (mu_j - mu) / n. Here c is the mean of surrogates'
features of their own training records, and mu that of all candidates. The log-likelihood ratio, times n, is then

    (mu_j - mu)' W^-1 (v - c) - (mu_j - mu)' W^-1 (mu_j - mu) / (2 n).
"""

from __future__ import annotations

import numpy as np

from fedassay.support.types import Matrix

_SHRUNK = 0.1
"""Share of the mean variance that is added to each."""


def ratios(mean: Matrix, own: Matrix, candidates: Matrix, records: int) -> Matrix:
    """The ratio of every candidate, shape (N,).

    Args:
        mean: Of the class, as it was sent, shape (D,).
        own: The same of every surrogate's own records, shape (S, D).
        candidates: Features of candidates under every surrogate, shape (S, N, D), S at least 2.
        records: n, which the mean is of.
    """
    surrogates, width = len(candidates), candidates.shape[2]
    middle = candidates.mean(axis=0)
    away = middle - middle.mean(axis=0)
    rest = (candidates - middle).reshape(-1, width)
    spread = rest.T @ rest / (candidates.shape[1] * (surrogates - 1))
    shrunk = spread + max(_SHRUNK * float(np.trace(spread)) / width, 1e-300) * np.eye(width)
    weighted = np.linalg.solve(shrunk, away.T).T
    return np.asarray(weighted @ (mean - own.mean(axis=0)) - (weighted * away).sum(axis=1) / (2 * records))
