"""Ridge regression on one-hot labels from sums: the head of AFL, Fed3R and one-shot ridge.

With features X (n, d) and one-hot labels Y (n, C), everything follows from the Gram matrix G = X^T X and the class
sums A = Y^T X: W = A (G + ridge I)^-1, one row a class. Nothing is ever inverted: one Cholesky factorisation, C
right-hand sides.

Noise makes G indefinite. Its negative eigenvalues are then cut off, and the size of the noise's own eigenvalues,
about its scale times sqrt(d), is added to the diagonal: smaller eigenvalues are not signal.
"""

from __future__ import annotations

import math

import numpy as np

from fedassay.heads.gaussian import conditioned_factor
from fedassay.heads.linear import LinearHead
from fedassay.privacy.symmetric import project_psd
from fedassay.support.errors import DataError
from fedassay.support.types import Ints, Matrix


def ridge_weights(gram: Matrix, sums: Matrix, ridge: float, *, noise: float = 0.0) -> Matrix:
    """Solve W (G + ridge I) = A.

    Args:
        gram: G, shape (d, d), symmetric.
        sums: A, shape (P, d).
        ridge: At least 0.
        noise: Standard deviation of the symmetric noise on G; 0 for none.

    Returns:
        W, shape (P, d).

    Raises:
        DataError: The matrix is singular to working precision.
    """
    from scipy.linalg import cho_solve

    width = len(gram)
    shift = ridge + noise * math.sqrt(width)
    factor = conditioned_factor(project_psd(gram) if noise > 0 else gram, shift)
    if factor is None:
        raise DataError(
            f"ridge regression: the {width} x {width} Gram matrix is singular to working precision with ridge "
            f"{ridge:g}; use a larger ridge, more records, or features that vary"
        )
    return np.asarray(cho_solve((factor, True), sums.T, check_finite=False).T, dtype=np.float64)


def rows_of_norm_one(weights: Matrix, *, beside: int = 0) -> Matrix:
    """Divide the rows of weights (P, d) by their norm; rows of 0 stay as they are.

    Args:
        weights: Shape (P, d).
        beside: Number of last columns that the norm leaves out.
    """
    norms = np.linalg.norm(weights[:, : weights.shape[1] - beside], axis=1, keepdims=True)
    return np.asarray(weights / np.where(norms > 0, norms, 1.0))


def without_bias(classes: Ints, weights: Matrix) -> LinearHead:
    """A head of scores W f alone."""
    return LinearHead(classes, weights, np.zeros(len(classes)))
