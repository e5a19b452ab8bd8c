"""Post-processing of noised moments of vectors in the unit ball: back to moments that such vectors can have.

For ||x|| <= 1 the mean lies in the unit ball, and the second moment E[x x^T] is positive semi-definite
with trace at most 1. Both sets are convex and hold the true value, so projecting a noised value onto them
only brings it closer, and it costs no privacy.
"""

from __future__ import annotations

import numpy as np

from fedassay.mixtures.packed import Family
from fedassay.support.types import Floats, Matrix


def project_simplex(values: Floats, cap: float = 1.0) -> Matrix:
    """Nearest vectors with entries >= 0 that sum to at most `cap`, along the last axis.

    Where clipping at 0 leaves a larger sum, all entries are lowered by one threshold (Duchi et al. 2008,
    "Efficient projections onto the l1-ball").
    """
    clipped = np.maximum(np.asarray(values, dtype=np.float64), 0.0)
    width = clipped.shape[-1]
    ordered = -np.sort(-clipped, axis=-1)
    excess = (np.cumsum(ordered, axis=-1) - cap) / np.arange(1, width + 1)
    last = np.maximum(np.count_nonzero(ordered > excess, axis=-1, keepdims=True) - 1, 0)
    threshold = np.take_along_axis(excess, last, axis=-1)
    return np.where(clipped.sum(axis=-1, keepdims=True) > cap, np.maximum(clipped - threshold, 0.0), clipped)


def bounded_moments(mean: Floats, second: Floats, family: Family) -> tuple[Matrix, Matrix]:
    """Project noised moments of vectors of norm at most 1.

    Args:
        mean: Shape (..., d).
        second: Raw second moment by family: (..., d, d), its diagonal (..., d), or its trace (...,).
        family: The covariance family.

    Returns:
        Both, projected, in the same shapes.
    """
    norm = np.linalg.norm(mean, axis=-1, keepdims=True)
    inside = np.asarray(mean / np.maximum(norm, 1.0), dtype=np.float64)
    if family == "spherical":
        return inside, np.asarray(np.clip(second, 0.0, 1.0), dtype=np.float64)
    if family == "diag":
        return inside, project_simplex(second)
    values, vectors = np.linalg.eigh((second + np.swapaxes(second, -1, -2)) / 2)
    projected = (vectors * project_simplex(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return inside, np.asarray((projected + np.swapaxes(projected, -1, -2)) / 2, dtype=np.float64)
