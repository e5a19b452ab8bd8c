"""How many vectors a second moment of full rank is made of, where nothing sent says it.

With n at least the number of active features, the rank says nothing of n. What does is feasibility: with the sum
of all vectors known, n vectors without negative entries exist for the true n and not for much smaller ones, since
fewer vectors have fewer entries to meet the same equations with. 1^T P 1 = t B^+ t^T <= n, P the projection on the
column space of F and t the sum of all, is where the search starts; the smallest n that leaves no negative part is
taken.

Labels follow afterwards: the indicators Y with Y^T F = A are nearly non-negative least squares of A on F.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedassay.attacks.gram.factorization import Factors, factorize
from fedassay.exchange.gram import Gram, Size

MOST_TRIALS = 16
"""Numbers of vectors tried at most."""

_FEASIBLE = 1e-5
_EXPLAINED = 1e-3
"""Relative distance of the sums over found labels to class sums, up to which the labels are believed."""


def search(
    gram: Gram, size: Size, rng: np.random.Generator, *, restarts: int, iterations: int, most: int
) -> tuple[Size, Factors] | None:
    """The smallest number of vectors that can be without negative entries, and those vectors.

    Args:
        gram: With sums; those of classes are added up.
        size: Of `measure`, of full rank.
        rng: Source of random starts.
        restarts: See `factorize`.
        iterations: See `factorize`.
        most: Largest number tried.

    Returns:
        None where no number tried is feasible, or there is no sum.
    """
    if gram.sums is None:
        return None
    together = replace(gram, sums=gram.sums.sum(axis=0, keepdims=True), labels=np.zeros(1, np.int64), counts=None)
    first = _least(together, size)
    for total in range(first, min(first + MOST_TRIALS, most + 1)):
        trial = replace(size, counts=np.array([total]), total=total, counted="searched")
        tried = factorize(together, trial, rng, restarts=1, iterations=max(1, iterations // 2))
        if tried.residual < max(_FEASIBLE, 10 * gram.unit):
            found = factorize(together, trial, rng, restarts=restarts, iterations=iterations)
            labels = _labels((found if found.residual < tried.residual else tried).vectors, gram)
            if (labels < 0).any():
                return trial, replace(found, labels=labels)
            counts = (labels[:, None] == gram.labels).sum(axis=0)
            known = replace(size, counts=counts, total=total, counted="searched")
            return known, factorize(gram, known, rng, restarts=restarts, iterations=iterations)
    return None


def _least(gram: Gram, size: Size) -> int:
    """A lower bound of the number of vectors: the rank, and t B^+ t^T."""
    assert gram.sums is not None
    values, vectors = np.linalg.eigh(gram.second)
    along = gram.sums[0] @ vectors[:, -size.rank :]
    return max(size.rank, math.ceil(float((along**2 / values[-size.rank :]).sum()) - 0.01))


def _labels(vectors: np.ndarray, gram: Gram) -> np.ndarray:
    """The label of each vector whose class sums come out as sent, shape (n,); -1 for all where they do not."""
    from scipy.optimize import nnls

    assert gram.sums is not None
    shares = np.stack([nnls(vectors.T, sums)[0] for sums in np.maximum(gram.sums, 0.0)])
    chosen = shares.argmax(axis=0)
    members = (np.arange(len(gram.sums))[:, None] == chosen).astype(np.float64)
    off = float(np.linalg.norm(members @ vectors - gram.sums)) / max(float(np.linalg.norm(gram.sums)), 1e-300)
    return np.asarray(gram.labels[chosen]) if off < _EXPLAINED else np.full(len(vectors), -1)
