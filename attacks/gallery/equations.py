"""Solve for more candidates than equations, in the space of the equations.

With A (M, N) the equations and V the prior variances of the weights, what explains a residual e is
V A' (A V A' + I)^-1 e (Woodbury). Its kernel takes 8 M^2 bytes and N M^2 operations, and A is formed a block of
candidates at a time. Conjugate gradients would take as many steps as there are equations, since no weights are
determined by fewer equations than candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, cho_solve

from fedassay.attacks.gallery.precision import blocks, factored
from fedassay.attacks.gallery.system import Part, System
from fedassay.support.types import Ints, Matrix


@dataclass(frozen=True, eq=False)
class ByEquations:
    """The factor of A V A' + I.

    Attributes:
        system: The equations.
        variance: Prior variances of the weights, shape (N,).
        lower: The factor, shape (M, M), in its lower triangle.
    """

    system: System
    variance: Matrix
    lower: Matrix

    @staticmethod
    def of(system: System, variance: Matrix) -> ByEquations:
        """Form the kernel of the equations, and factor it in its place."""
        size = columns(system)
        kernel = np.zeros((size, size), order="F")
        for rows in blocks(system.size):
            own = design(system, rows)
            own *= np.sqrt(variance[rows, None])
            # A C-ordered block is, transposed, in Fortran's order: its products are added in place.
            kernel = blas.dsyrk(1.0, own.T, beta=1.0, c=kernel, lower=1, overwrite_c=1)
        kernel[np.diag_indices(size)] += 1
        return ByEquations(system, variance, factored(kernel))

    def beyond(self, weights: Matrix) -> Matrix:
        """Return the posterior mean of what is to be added to weights (N,), with a prior of mean 0."""
        rest = [_flat(part, part.total - part.forward(weights)).ravel() for part in self.system.parts]
        inside = cho_solve((self.lower, True), np.concatenate(rest), check_finite=False)
        found, start = np.zeros(self.system.size), 0
        for part, size in zip(self.system.parts, map(len, rest), strict=True):
            found += part.backward(_unflat(part, inside[start : start + size]))
            start += size
        return np.asarray(self.variance * found)


def columns(system: System) -> int:
    """Return the number of equations M, those of classes without candidates among them."""
    return sum(_width(part) * (len(part.total) if part.by_class else 1) for part in system.parts)


def design(system: System, rows: slice) -> Matrix:
    """Return the sums of some candidates on isometric coordinates, shape (n, M)."""
    return np.concatenate([_own(part, rows) for part in system.parts], axis=1)


def _own(part: Part, rows: slice) -> Matrix:
    vectors, labels = part.rows[rows], part.labels[rows]
    own = vectors if part.power == 1 else _products(vectors)
    if part.identity is not None:
        along = np.einsum("ij,ij->i", vectors @ part.identity, vectors)
        own -= along[:, None] * _flat(part, part.identity)
    if part.mean is not None:
        mean = _flat(part, part.mean)
        own -= mean[labels] if part.by_class else mean
    if not part.by_class:
        return own
    found = np.zeros((len(own), len(part.total), own.shape[1]))
    found[np.arange(len(own)), labels] = own
    return found.reshape(len(own), -1)


def _products(vectors: Matrix) -> Matrix:
    """Return the products of each vector's numbers, shape (n, p (p + 1) / 2), isometrically."""
    size, width = vectors.shape
    found, start, scaled = np.empty((size, width * (width + 1) // 2)), 0, np.sqrt(2.0) * vectors
    for place in range(width):
        found[:, start] = vectors[:, place] ** 2
        np.multiply(
            scaled[:, place, None], vectors[:, place + 1 :], out=found[:, start + 1 : start + width - place]
        )
        start += width - place
    return found


def _width(part: Part) -> int:
    width = int(part.rows.shape[1])
    return width if part.power == 1 else width * (width + 1) // 2


def _flat(part: Part, total: Matrix) -> Matrix:
    """Return totals with symmetric products (..., p, p) as vectors of the same norm."""
    if part.power == 1:
        return total
    first, second, scale = _triangle(part)
    return np.asarray(total[..., first, second] * scale)


def _unflat(part: Part, values: Matrix) -> Matrix:
    """Return vectors (M,) in the shape of a part's total."""
    if part.power == 1:
        return values.reshape(part.total.shape)
    (first, second, scale), found = _triangle(part), np.zeros(part.total.shape)
    halves = values.reshape(*part.total.shape[:-2], -1) / scale
    found[..., first, second] = found[..., second, first] = halves
    return found


def _triangle(part: Part) -> tuple[Ints, Ints, Matrix]:
    first, second = np.triu_indices(part.rows.shape[1])
    return first, second, np.where(first == second, 1.0, np.sqrt(2.0))
