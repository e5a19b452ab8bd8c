"""The posterior of weights of many candidates, given sums of them: solutions, variances and draws.

The precision of N weights is a multiple of the identity and B B', where B has a row for each candidate and a
column for each equation. It is factored as it is where candidates are fewer than equations M. Else Woodbury's
identity is used: only M x M numbers are kept, and B is formed twice, a block of candidates at a time.

- N^2 M + 2 N^3 / 3 operations and 8 N^2 bytes, or
- 2 N M^2 + M^3 / 3 operations and 8 M^2 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, lapack, solve_triangular

from fedassay.support.errors import NotRunError

Matrix = NDArray[np.float64]

MOST = 14_000
"""Largest of the smaller number of candidates and equations: a factor of 1.6 GB."""
_TOGETHER = 1024
"""Number of candidates in a block."""


class Sums(Protocol):
    """Sums of candidates."""

    @property
    def columns(self) -> int:
        """Number of columns of B."""
        ...

    def products(self, rows: slice) -> Matrix:
        """Inner products (n, N) of the rows of some candidates in B with those of all."""
        ...

    def block(self, rows: slice) -> Matrix:
        """The rows of some candidates in B, shape (n, columns)."""
        ...


@dataclass(frozen=True, eq=False)
class Posterior:
    """The inverse of a precision (N, N), as far as it is needed.

    Attributes:
        solutions: Its products with given sides, shape (N, S).
        variances: Its diagonal, shape (N,).
        draws: Errors with this covariance, shape (N, number).
    """

    solutions: Matrix
    variances: Matrix
    draws: Matrix


def posterior(
    sums: Sequence[Sums], multiple: float, every: float, sides: Matrix, rng: np.random.Generator, number: int
) -> Posterior:
    """Invert a precision: a multiple of the identity, a number that is added to all entries, and sums.

    Args:
        sums: Sums of the same N candidates.
        multiple: The multiple of the identity, above 0.
        every: The number, at least 0.
        sides: Right sides, shape (N, S).
        rng: Draws the errors.
        number: Number of draws.

    Raises:
        NotRunError: There are too many candidates and equations.
    """
    size, columns = len(sides), sum(each.columns for each in sums)
    if min(size, columns) > MOST:
        raise NotRunError(
            f"there are {size:,} candidates and {columns:,} equations; allowed: at most {MOST:,} of the fewer ones"
        )
    if columns < size:
        return _by_equations(sums, multiple, every, sides, rng, number)
    return _by_candidates(sums, multiple, every, sides, rng, number)


def operations(size: int, columns: int) -> float:
    """The number of operations of `posterior`, roughly."""
    return 2.0 * size * columns**2 if columns < size else float(size**2 * (columns + size))


def blocks(size: int) -> Iterator[slice]:
    """Yield slices of so many candidates, a block at a time."""
    for start in range(0, size, _TOGETHER):
        yield slice(start, min(start + _TOGETHER, size))


def _by_candidates(
    sums: Sequence[Sums], multiple: float, every: float, sides: Matrix, rng: np.random.Generator, number: int
) -> Posterior:
    size = len(sides)
    kernel = np.full((size, size), every)
    for rows in blocks(size):
        for each in sums:
            kernel[rows] += each.products(rows)
    kernel[np.diag_indices(size)] += multiple
    # A transposed view is in Fortran's order: the factor, and then its inverse, take the place of the kernel.
    lower = factored(kernel.T)
    solutions = cho_solve((lower, True), sides, check_finite=False)
    inverse, _ = lapack.dtrtri(lower, lower=1, overwrite_c=1)
    variances = np.zeros(size)
    for rows in blocks(size):
        below = np.tril(inverse[rows, : rows.stop], rows.start)
        variances[: rows.stop] += np.einsum("ij,ij->j", below, below)
    draws = np.zeros((size, 0))
    if number:
        draws = np.asarray(blas.dtrmm(1.0, inverse, rng.standard_normal((size, number)), lower=1, trans_a=1))
    return Posterior(solutions, variances, draws)


def _by_equations(
    sums: Sequence[Sums], multiple: float, every: float, sides: Matrix, rng: np.random.Generator, number: int
) -> Posterior:
    size, columns = len(sides), sum(each.columns for each in sums) + 1

    def block(rows: slice) -> Matrix:
        even = np.full((rows.stop - rows.start, 1), np.sqrt(every))
        return np.concatenate([*(each.block(rows) for each in sums), even], axis=1)

    # A draw is one with the precision as covariance, divided by the precision: one more side.
    errors = rng.standard_normal((columns, number))
    drawn = np.sqrt(multiple) * rng.standard_normal((size, number))
    given = np.concatenate([sides, drawn], axis=1)
    # A C-ordered block is, transposed, in Fortran's order: its products are added in place, one triangle of them.
    inner, along = np.zeros((columns, columns), order="F"), np.zeros((columns, given.shape[1]))
    for rows in blocks(size):
        parts = block(rows)
        inner = blas.dsyrk(1.0, parts.T, beta=1.0, c=inner, lower=1, overwrite_c=1)
        given[rows, sides.shape[1] :] += parts @ errors
        along += parts.T @ given[rows]
    inner[np.diag_indices(columns)] += multiple
    lower = factored(inner)
    along = solve_triangular(lower, along, lower=True, check_finite=False)
    variances = np.zeros(size)
    for rows in blocks(size):
        half = solve_triangular(lower, block(rows).T, lower=True, overwrite_b=True, check_finite=False)
        variances[rows] = (1 - np.einsum("ij,ij->j", half, half)) / multiple
        given[rows] = (given[rows] - half.T @ along) / multiple
    return Posterior(given[:, : sides.shape[1]], variances, given[:, sides.shape[1] :])


def factored(matrix: Matrix) -> Matrix:
    """The Cholesky factor of a positive matrix in Fortran's order, in its lower triangle and in its place."""
    lower, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise np.linalg.LinAlgError("the precision is not positive definite")
    return np.asarray(lower)
