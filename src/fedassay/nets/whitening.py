"""The attacker's own scaling of condition vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHRINKAGE = 1e-2
"""Share of the largest variance that is added to every variance before whitening.

Measured on digits: with 1e-2 the low-variance directions, which hold the detail, are heard
(SSIM .957; scaling alone .940), and noise in directions of next to no variance is not blown up.
"""


@dataclass(frozen=True, eq=False)
class Whitening:
    """An affine map of conditions, fitted on the attacker's own vectors.

    Attributes:
        mean: Shape (d,), float32.
        matrix: Shape (d, d), float32; `(condition - mean) @ matrix` is the network's input.
    """

    mean: NDArray[np.float32]
    matrix: NDArray[np.float32]

    def __call__(self, conditions: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, d) to (n, d), float32.

        Raises:
            ValueError: Wrong number of columns, NaN or an infinity.
        """
        d = len(self.mean)
        if conditions.ndim != 2 or conditions.shape[1] != d:
            raise ValueError(f"conditions: shape {conditions.shape} given; allowed: (n, {d})")
        if not np.isfinite(conditions).all():
            raise ValueError("conditions: NaN or an infinity given; allowed: finite numbers")
        mapped = (conditions.astype(np.float64) - self.mean) @ self.matrix.astype(np.float64)
        return mapped.astype(np.float32)


def fit_whitening(
    conditions: NDArray[np.floating], *, decorrelate: bool, shrinkage: float = SHRINKAGE
) -> Whitening:
    """Fit the map to unit variance: per column, or along the principal axes.

    Features of a trained backbone are strongly correlated: a few directions carry nearly all the variance, and the
    differences between similar images are in the others. Principal-axis whitening replaces variances v by v +
    shrinkage * max(v), so that a network with seconds of training can use both. Directions without any variance in
    the attacker's data are dropped: their values in a private vector were never seen in training.

    Args:
        conditions: Shape (n, d), n at least 1.
        decorrelate: Principal axes if True, columns if False.
        shrinkage: Share of the largest variance that is added to every variance; for principal axes.

    Raises:
        ValueError: Not a non-empty matrix.
    """
    if conditions.ndim != 2 or 0 in conditions.shape:
        raise ValueError(f"conditions: shape {conditions.shape} given; allowed: (n, d), both at least 1")
    vectors = conditions.astype(np.float64)
    mean = vectors.mean(axis=0)
    centred = vectors - mean
    if decorrelate:
        variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
        variances = np.maximum(variances, 0.0)
        # Rounding leaves variances of the order of d * eps * max(v) where there are none.
        present = variances > variances.max() * len(variances) * np.finfo(np.float32).eps
        shrunk = variances + shrinkage * variances.max()
        matrix = axes * np.where(present, 1.0 / np.sqrt(np.where(present, shrunk, 1.0)), 0.0)
    else:
        deviations = centred.std(axis=0)
        present = deviations > max(float(deviations.max()), float(np.abs(mean).max())) * 1e-7
        matrix = np.diag(np.where(present, 1.0 / np.where(present, deviations, 1.0), 0.0))
    return Whitening(mean.astype(np.float32), matrix.astype(np.float32))
