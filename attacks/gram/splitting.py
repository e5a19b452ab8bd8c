"""Non-negative vectors with a given second moment and group sums, more of them than the moment's rank.

With n - C free directions and a scatter of rank m < n - C, R in F = M + U R G has orthonormal columns but is not
square, and alternating projections stall far from a solution. Douglas-Rachford splitting does not: with P the
projection on the matrices of that form (`fedassay.attacks.gram.factorization`) and z the state,

    a = max(z, 0),    f = P(2 a - z),    z <- z + f - a,

The fixed points are solutions, and the iteration wanders on from points where alternating projections get stuck
(Bauschke, Combettes and Luke 2002 for phase retrieval; Elser, Rankenburg and Thibault 2007 for other non-convex
feasibility). It finds the active set; Gauss-Newton steps on that (`fedassay.attacks.gram.polishing`) find the
numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedassay.support.types import Matrix

_TOLERANCE = 1e-13
_PATIENCE = 800
"""Steps without a better residual before a run is given up: it is not monotone."""


def split(start: Matrix, project: Callable[[Matrix], Matrix], iterations: int) -> tuple[float, Matrix]:
    """Seek a matrix of the given form without negative entries.

    Args:
        start: Shape (n, k), of the form.
        project: The nearest matrix of the form.
        iterations: Steps at most.

    Returns:
        The smallest norm of a negative part, relative to the norm of the matrix, and its matrix.
    """
    state, best, residual, since = start, start, negative(start), 0
    for _ in range(iterations):
        inside = np.maximum(state, 0.0)
        factor = project(2 * inside - state)
        left = negative(factor)
        since = 0 if left < 0.99 * residual else since + 1
        if left < residual:
            residual, best = left, factor
        if residual < _TOLERANCE or since >= _PATIENCE:
            break
        state = state + factor - inside
    return residual, best


def negative(factor: Matrix) -> float:
    """Norm of the negative part, relative to the norm; 0 for a matrix of zeros."""
    norm = float(np.linalg.norm(factor))
    return float(np.linalg.norm(np.minimum(factor, 0.0))) / norm if norm > 0 else 0.0
