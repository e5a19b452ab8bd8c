"""Symmetric matrices in a Gaussian mechanism: the isometric embedding, its noise, the PSD cone.

A symmetric d x d matrix has d(d+1)/2 free entries. `vech` stacks them with the off-diagonal
ones times sqrt(2), which makes it an isometry: ||vech(S)||_2 = ||S||_F. White noise of
standard deviation s in that embedding is the symmetric matrix with N(0, s^2) on the diagonal
and N(0, s^2/2) off it (a scaled Gaussian orthogonal ensemble), and the L2 sensitivity that
counts is the Frobenius norm. All functions take any leading batch axes.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_SQRT2 = math.sqrt(2.0)

Family = Literal["full", "diag", "spherical"]
"""The part of a second moment that is kept: the matrix, its diagonal, or its trace E||x||^2."""


def vech_size(dim: int) -> int:
    """Number of free entries of a symmetric dim x dim matrix, dim (dim + 1) / 2."""
    return dim * (dim + 1) // 2


def _scales(dim: int, off_diagonal: float) -> NDArray[np.float64]:
    """One factor per entry of the upper triangle in row order: 1 on the diagonal, `off_diagonal` off it."""
    row, column = np.triu_indices(dim)
    return np.where(row == column, 1.0, off_diagonal)


def vech(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Isometric embedding of symmetric matrices: (..., d, d) to (..., d(d+1)/2).

    Upper triangle in row order, off-diagonal entries times sqrt(2). Only the upper triangle is read.
    """
    dim = matrix.shape[-1]
    if matrix.ndim < 2 or matrix.shape[-2] != dim:
        raise ValueError(f"square matrices expected, got shape {matrix.shape}")
    row, column = np.triu_indices(dim)
    flat = matrix.reshape(*matrix.shape[:-2], dim * dim)
    entries = np.asarray(np.take(flat, row * dim + column, axis=-1), dtype=np.float64)
    entries *= _scales(dim, _SQRT2)
    return entries


def _scatter(entries: NDArray[np.float64], dim: int) -> NDArray[np.float64]:
    """Symmetric matrices from their upper triangles in row order, (..., d(d+1)/2) to (..., d, d)."""
    row, column = np.triu_indices(dim)
    place = np.empty((dim, dim), dtype=np.intp)
    place[row, column] = place[column, row] = np.arange(len(row))
    return np.take(entries, place, axis=-1)


def symmetric_noise(
    dim: int,
    sigma: float,
    rng: np.random.Generator,
    *,
    size: tuple[int, ...] = (),
    isometric: bool = True,
) -> NDArray[np.float64]:
    """Symmetric Gaussian noise matrices, (*size, dim, dim).

    Args:
        dim: width of each matrix.
        sigma: standard deviation of the diagonal entries.
        rng: where the noise comes from.
        size: leading batch axes.
        isometric: True for white noise in the `vech` embedding (off-diagonal standard deviation
            sigma/sqrt(2)); False for the same standard deviation on every entry of the upper triangle,
            mirrored, as FedPFT's Theorem 4.1 prescribes.
    """
    entries = rng.standard_normal((*size, vech_size(dim)))
    entries *= sigma * _scales(dim, 1 / _SQRT2 if isometric else 1.0)
    return _scatter(entries, dim)


def project_psd(matrix: NDArray[np.float64], *, floor: float = 0.0) -> NDArray[np.float64]:
    """Nearest symmetric matrices, in Frobenius norm, with every eigenvalue at least `floor`.

    Post-processing: eigenvalues under the floor are raised to it. A floor above 0 gives a covariance
    that can be factorised.

    Args:
        matrix: symmetric, (..., d, d); symmetrised first, so that rounding cannot matter.
        floor: at least 0.
    """
    if floor < 0:
        raise ValueError(f"floor must be at least 0, got {floor}")
    symmetric = (matrix + np.swapaxes(matrix, -1, -2)) / 2
    values, vectors = np.linalg.eigh(symmetric)
    raised = (vectors * np.maximum(values, floor)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.asarray((raised + np.swapaxes(raised, -1, -2)) / 2, dtype=np.float64)


def psd_root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """A root R with R R^T the nearest positive semi-definite matrix, for a symmetric (d, d) one.

    Noise and rounding leave eigenvalues below zero: those directions carry no variance.
    """
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
