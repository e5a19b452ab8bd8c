"""Membership in a head: weights of candidates in its estimating equations (`fedassay.heads.estimating`).

The equations are solved as a Gaussian posterior. A weight is 0 or 1 with a prior share of members. Errors of the
equations are independent in the eigenbasis of the candidates' rows, with a variance for each direction that is
learned from the residuals (MacKay 1992). Sources of error are the rounding of the head in transport, the gradient
at which a solver stopped, and members outside the gallery. Their sizes differ between directions and are unknown.
The uncertainty of a target (`free`) is integrated out.

The kernel of candidates is (E E') o (A A'), less the free directions. A round is solved by candidates or by
equations, whichever are fewer (`precision`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import expit

from fedassay.attacks.gallery.precision import posterior
from fedassay.heads.estimating import Equations, Estimator
from fedassay.heads.linear import LinearHead
from fedassay.support.types import Floats, Ints

Matrix = NDArray[np.float64]

ROUNDS = 6
"""Number of solves for the weights, each with the error variances that follow from those before."""
_START = 1e-2
"""Initial variance of errors, in units of the residual of random weights."""
_LEAST, _MOST = 1e-14, 1e4
_LEAST_OF_FEW = 1e-9
"""Least variance where candidates outnumber equations: their free directions must stay above rounding."""
_TOTAL = 0.05
"""Standard deviation of the number of members about the assumed one, as a share of the candidates."""
_APART = 0.2
"""Largest mean distance of weights from 0 or a common size, relative to it, at which they are counted."""
_SMOOTHED = 9
"""Number of neighbouring eigendirections with a common variance of errors."""
_PROBES = 6
_INDEPENDENT = 1e-12
"""Eigenvalue of the candidates' rows, relative to the largest, below which a direction is ignored."""


@dataclass(frozen=True, eq=False)
class Inside:
    """Posterior of each candidate's membership in a head.

    Attributes:
        odds: Logarithm of the odds that it is in the head, shape (N,).
        weights: Posterior means of the weights, shape (N,).
        noise: Errors of the equations, in units of the residual of random weights, median over directions.
        equations: Number of equations.
    """

    odds: Matrix
    weights: Matrix
    noise: float
    equations: int


def inside_of(
    estimator: Estimator,
    head: LinearHead,
    features: Floats,
    labels: Ints,
    members: float,
    rng: np.random.Generator,
    beside: Sequence[Equations] = (),
    rounds: int = ROUNDS,
) -> Inside:
    """Solve a head's equations for the candidates that are in it.

    Args:
        estimator: Gives the head's estimating equations.
        head: The head as it was sent.
        features: Features of the candidates, shape (N, d).
        labels: Their labels, shape (N,).
        members: Expected number of candidates in the head.
        rng: Draws the probes from which noise is learned.
        beside: Further equations of the same candidates, such as a scaler's.
        rounds: Number of solves for the weights.
    """
    return inside(
        lambda weights: (estimator.equations(head, features, labels, weights), *beside),
        *(len(features), members, rng, rounds),
    )


def inside(
    read: Callable[[Matrix | None], Sequence[Equations]],
    size: int,
    members: float,
    rng: np.random.Generator,
    rounds: int = ROUNDS,
) -> Inside:
    """Solve equations of any origin for the candidates that are in them.

    Args:
        read: Returns the equations, given the weights (N,) so far, or None at first.
        size: Number of candidates N.
        members: Expected number of candidates in the equations.
        rng: Draws the probes from which noise is learned.
        rounds: Number of solves for the weights.
    """
    share = float(np.clip(members / size, 1e-3, 1 - 1e-3))
    weights: Matrix | None = None
    variances: list[Matrix | None] = []
    found, parts = None, list[_Weighted]()
    for number in range(rounds):
        told = read(weights)
        variances = variances or [None] * len(told)
        parts = [_Weighted.of(each, known) for each, known in zip(told, variances, strict=True)]
        more = number < rounds - 1
        found = _solve(parts, share, members, rng, _PROBES if more else 0)
        weights = expit(found.odds)
        if more:
            least = _LEAST if sum(each.count for each in told) > size else _LEAST_OF_FEW
            variances = [part.learned(found.weights, found.probes, least) for part in parts]
        members = _counted(found.weights) or members
    assert found is not None
    noise = float(np.median(np.concatenate([part.variances / np.maximum(part.energy, 1e-300) for part in parts])))
    return Inside(found.odds, found.weights, noise, sum(each.count for each in told))


@dataclass(frozen=True, eq=False)
class _Found:
    """Logarithms of odds (N,), posterior means (N,) and draws of their errors (N, number)."""

    odds: Matrix
    weights: Matrix
    probes: Matrix


@dataclass(frozen=True, eq=False)
class _Weighted:
    """Equations in the eigenbasis of the candidates' rows, each direction divided by its error.

    Attributes:
        residuals: E, shape (N, C).
        rows: A, shape (N, D).
        target: The target of the equations, shape (C, D).
        free: Inner products of the free directions, decorrelated, with every candidate's own part, shape (N, K).
        along: Their inner products with the target, shape (K,).
        variances: Variances of the errors, shape (D,).
        energy: Squared residual of random weights in each direction, shape (D,).
        directions: The weighted free directions and their factor, for residuals.
    """

    residuals: Matrix
    rows: Matrix
    target: Matrix
    free: Matrix
    along: Matrix
    variances: Matrix
    energy: Matrix
    directions: tuple[Matrix, Matrix]

    @staticmethod
    def of(equations: Equations, variances: Matrix | None) -> _Weighted:
        values, basis = np.linalg.eigh(equations.rows.T @ equations.rows)
        kept = values > _INDEPENDENT * values[-1]
        basis = basis[:, kept][:, ::-1]
        rows = equations.rows @ basis
        squares = (equations.residuals**2).sum(axis=1)
        energy = 0.25 * (squares @ rows**2) / equations.residuals.shape[1]
        if variances is None or len(variances) != len(energy):
            variances = _START * energy
        scale = 1 / np.sqrt(variances)
        rows, target = rows * scale, (equations.target @ basis) * scale
        free = (equations.free @ basis) * scale
        flat = free.reshape(len(free), target.size)
        # Directions are scaled to length 1, so that the units of their slack do not matter.
        gram = flat @ flat.T
        spread = np.where(np.isinf(equations.slack), 0.0, 1 / np.maximum(equations.slack, 1e-150) ** 2)
        gram[np.diag_indices(len(gram))] += spread + 1e-10 * np.maximum(gram.diagonal(), 1e-300)
        lower = np.linalg.cholesky(gram) if len(gram) else gram
        products = np.zeros((len(rows), len(free)))
        for number in range(equations.residuals.shape[1]):
            products += equations.residuals[:, number, None] * (rows @ free[:, number].T)
        if len(gram):
            products = solve_triangular(lower, products.T, lower=True).T
            along = solve_triangular(lower, flat @ target.ravel(), lower=True)
        else:
            along = np.zeros(0)
        return _Weighted(equations.residuals, rows, target, products, along, variances, energy, (flat, lower))

    @property
    def columns(self) -> int:
        """Number of equations, those of free directions among them."""
        return int(self.target.size)

    def products(self, rows: slice) -> Matrix:
        """Inner products (n, N) of the parts of some candidates with those of all."""
        found = (self.residuals[rows] @ self.residuals.T) * (self.rows[rows] @ self.rows.T)
        return np.asarray(found - self.free[rows] @ self.free.T)

    def block(self, rows: slice) -> Matrix:
        """The parts of some candidates, shape (n, columns), without what is along free directions."""
        found = np.einsum("nc,nd->ncd", self.residuals[rows], self.rows[rows]).reshape(-1, self.columns)
        basis, taken = self.taken
        return np.asarray(found - (found @ basis * taken) @ basis.T)

    @cached_property
    def taken(self) -> tuple[Matrix, Matrix]:
        """A basis of the free directions, shape (C D, K), and the share of each that is taken off, shape (K,).

        `block` is B0 (I - Q Q')^(1/2), where `free` is B0 Q.
        """
        flat, lower = self.directions
        if not len(flat):
            return np.zeros((self.columns, 0)), np.zeros(0)
        basis, sizes, _ = np.linalg.svd(solve_triangular(lower, flat, lower=True).T, full_matrices=False)
        return basis, 1 - np.sqrt(np.maximum(0.0, 1 - sizes**2))

    def side(self) -> Matrix:
        """Return inner products of every candidate's part with the target, shape (N,)."""
        along = np.einsum("nd,nd->n", self.residuals @ self.target, self.rows)
        return np.asarray(along - self.free @ self.along)

    def learned(self, weights: Matrix, probes: Matrix, least: float) -> Matrix:
        """Learn the variances of errors, shape (D,), from the residuals of weights and their uncertainty."""
        left = self._left(weights, self.target)
        unsure = np.mean([self._left(probe, np.zeros_like(self.target)) for probe in probes.T], axis=0)
        left, unsure = _smooth(left), _smooth(unsure)
        classes = self.residuals.shape[1]
        found = self.variances * left / np.maximum(classes - unsure, 0.15 * classes)
        return np.asarray(np.clip(found, least * self.energy, _MOST * self.energy))

    def _left(self, weights: Matrix, target: Matrix) -> Matrix:
        """Return the squared residual of every direction, shape (D,)."""
        flat, lower = self.directions
        rest = (self.residuals * weights[:, None]).T @ self.rows - target
        if len(flat):
            along = cho_solve((lower, True), flat @ rest.ravel())
            rest = rest - (flat.T @ along).reshape(rest.shape)
        return np.asarray((rest**2).sum(axis=0))


def _solve(
    parts: Sequence[_Weighted], share: float, members: float, rng: np.random.Generator, probes: int
) -> _Found:
    """Solve for the posterior of candidates with a common prior share and an expected number of members."""
    size = len(parts[0].rows)
    known = 1 / (_TOTAL * size) ** 2
    precision = 1 / (share * (1 - share))
    side = np.sum([part.side() for part in parts], axis=0) + members * known + precision * share
    found = posterior(parts, precision, known, np.stack([side, np.ones(size)], axis=1), rng, probes)
    weights, even = found.solutions.T
    if not any(part.target.any() for part in parts):
        # Every multiple of a solution, 0 included, is a solution: the number of members sets the size.
        weights = weights + even * (members - weights.sum()) / even.sum()
    # The odds use the equations alone: the posterior of a candidate without its own prior.
    alone = 1 / np.maximum(1 / found.variances - precision, 1e-9)
    centre = alone * (weights / found.variances - precision * share)
    odds = np.log(share / (1 - share)) + (2 * centre - 1) / (2 * alone)
    return _Found(odds, weights, found.draws)


def _counted(weights: Matrix) -> float | None:
    """Count the weights of one common size if all others are near 0; None where the two do not separate.

    If equations have no target, every multiple of their solution is a solution. Its size follows from the assumed
    number of members, and its shape shows their true number.
    """
    size = float(weights.max())
    for _ in range(20):
        size = float(weights[weights > size / 2].mean()) if size > 0 else 0.0
    if size <= 0:
        return None
    off = np.minimum(np.abs(weights), np.abs(weights - size)).mean() / size
    return float((weights > size / 2).sum()) if off < _APART / 2 else None


def _smooth(values: Matrix) -> Matrix:
    half = _SMOOTHED // 2
    kernel = np.ones(_SMOOTHED) / _SMOOTHED
    return np.asarray(np.convolve(np.pad(values, half, mode="edge"), kernel, "valid"))
