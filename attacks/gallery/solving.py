"""Weights of a gallery's candidates from a linear system: exactly, within boxes, or as a posterior.

- `exact_weights`: the normal equations by a Cholesky factorization with pivots, which also gives the rank
  (LINPACK's rule), then refined against the equations themselves, since a kernel squares the condition number; by
  the equations' own kernel where they are fewer than the candidates (`equations`); or by conjugate gradients where
  neither kernel fits into memory (`iterating`).
- `boxed_weights`: least squares within [0, 1], by active sets, or by accelerated projected gradients where there
  are many candidates. It is used where candidates outnumber independent equations.
- `posterior_weights`: the mean of a Gaussian posterior. A weight has the prior mean q and variance q (1 - q), q
  the share of the candidates that are members; the equations come weighted, with errors of variance 1.

Each solves classes separately where no equation ties them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack, solve_triangular

from fedassay.attacks.gallery.equations import ByEquations, columns
from fedassay.attacks.gallery.iterating import conjugate_gradients
from fedassay.attacks.gallery.system import System
from fedassay.support.types import Bools, Ints, Matrix

DENSE = 14_000
"""Largest number of candidates, or of equations, for which a kernel is formed: 1.6 GB."""
BOXED = 3_000
"""Largest number of candidates with weights in boxes."""
ACTIVE = 400
"""Largest number of candidates for the method of active sets."""
_INDEPENDENT = 1e-10
"""Pivot, relative to the largest, below which a candidate's sum depends on others'."""
_REFINED = 2
_STEPS = 3_000
_LEAST_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class Solved:
    """Weights that reproduce a message best.

    Attributes:
        weights: Weights of the candidates, shape (N,).
        rank: Number of independent sums of candidates; None where it was not measured.
        boxed: Whether weights were kept within [0, 1] because there are too few equations.
        unique: Whether no other weights (within [0, 1], where boxed) reproduce its sums as well, shape (N,).
    """

    weights: Matrix
    rank: int | None
    boxed: bool
    unique: Bools


def exact_weights(system: System, *, boxes: bool = True) -> Solved:
    """Solve by least squares, within [0, 1] in classes, or a whole gallery, of more candidates than rank.

    Args:
        system: The equations.
        boxes: Whether weights are between 0 and 1, rather than differences of such weights.
    """
    weights, unique = np.zeros(system.size), np.ones(system.size, np.bool_)
    ranks, boxed = list[int | None](), False
    for rows, own in _groups(system):
        part = _exactly(own, boxes)
        weights[rows], unique[rows], boxed = part.weights, part.unique, boxed or part.boxed
        ranks.append(part.rank)
    known = [rank for rank in ranks if rank is not None]
    return Solved(weights, sum(known) if len(known) == len(ranks) else None, boxed, unique)


def _exactly(system: System, boxes: bool) -> Solved:
    """Solve for candidates together; their kernel is freed before that of the next ones is formed."""
    fewer, none = columns(system) < system.size, np.zeros(system.size, np.bool_)
    if _by_equations(system) and not (boxes and system.size <= BOXED):
        # The prior is so wide that only what the equations do not determine is left at its mean of 0.
        wide = 1 / max(_INDEPENDENT * float(system.lengths().sum()), 1e-300)
        sums, weights = ByEquations.of(system, np.full(system.size, wide)), np.zeros(system.size)
        for _ in range(1 + _REFINED):
            weights += sums.beyond(weights)
        return Solved(weights, None, False, none)
    side, every, unique = system.side(), np.arange(system.size), ~none
    if system.size > DENSE:
        return Solved(conjugate_gradients(system, every, side), None, False, none if fewer else unique)
    factor = _Pivoted.of(system.kernel(every))
    if boxes and factor.rank < system.size <= BOXED:
        weights = boxed_weights(factor, side)
        return Solved(weights, factor.rank, True, np.full(system.size, _only_one(factor, weights)))
    whole, weights = factor.rank == system.size, factor.solve(side)
    for _ in range(_REFINED if whole else 0):
        weights += factor.solve(system.rest(weights))
    return Solved(weights, factor.rank, False, unique & whole)


def posterior_weights(system: System, share: Matrix) -> Matrix:
    """Return the posterior mean of every weight, shape (N,).

    Args:
        system: The equations, weighted so that errors have variance 1.
        share: Prior probability of each candidate, shape (N,).
    """
    share = np.clip(share, _LEAST_SHARE, 1 - _LEAST_SHARE)
    return _posterior(system, share, share * (1 - share))


def posterior_changes(system: System) -> Matrix:
    """Return the posterior mean of every weight of a difference, shape (N,), with a prior of mean 0.

    The common prior variance of all weights follows from the size of the difference beyond the equations' errors.
    """
    told = system.left(np.zeros(system.size)) - system.equations
    variance = np.clip(told / max(float(system.lengths().sum()), 1e-300), _LEAST_SHARE, 1.0)
    return _posterior(system, np.zeros(system.size), np.full(system.size, variance))


def _by_equations(system: System) -> bool:
    """Whether equations are fewer than candidates, and few enough for a kernel of them."""
    return columns(system) < system.size and columns(system) <= DENSE


def _posterior(system: System, mean: Matrix, variance: Matrix) -> Matrix:
    found = mean.copy()
    for rows, own in _groups(system):
        found[rows] += _beyond(own, mean[rows], variance[rows])
    return found


def _beyond(system: System, mean: Matrix, variance: Matrix) -> Matrix:
    """Return what the equations add to the prior mean of every weight, shape (N,)."""
    if _by_equations(system):
        return ByEquations.of(system, variance).beyond(mean)
    every, rest = np.arange(system.size), system.rest(mean)
    if system.size > DENSE:
        return conjugate_gradients(system, every, rest, 1 / variance)
    kernel = system.kernel(every)
    kernel[np.diag_indices(system.size)] += 1 / variance
    # The transposed view is in Fortran's order: it is overwritten, and not copied.
    return np.asarray(cho_solve(cho_factor(kernel.T, lower=True, overwrite_a=True), rest))


def boxed_weights(factor: _Pivoted, side: Matrix) -> Matrix:
    """Solve least squares within [0, 1], shape (n,), from the kernel's factor and the message's inner products."""
    from scipy.optimize import lsq_linear

    design, goal = factor.equations(side)
    if design.shape[1] <= ACTIVE:
        found = lsq_linear(design, goal, (0.0, 1.0), method="bvls", tol=1e-14, max_iter=20 * design.shape[1])
        return np.asarray(found.x)
    step = 1 / max(float(np.linalg.norm(design, 2)) ** 2, 1e-300)
    weights = lead = np.full(design.shape[1], 0.5)
    pace = 1.0
    for _ in range(_STEPS):
        moved = np.clip(lead - step * (design.T @ (design @ lead - goal)), 0.0, 1.0)
        following = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        # The momentum is reset at a step that increases the residual (O'Donoghue and Candes 2015).
        if float((lead - moved) @ (moved - weights)) > 0:
            following = 1.0
        lead = moved + (pace - 1) / following * (moved - weights)
        if float(np.abs(moved - weights).max()) < 1e-12:
            return np.asarray(moved)
        weights, pace = moved, following
    return np.asarray(weights)


@dataclass(frozen=True, eq=False)
class _Pivoted:
    """A Cholesky factorization P' K P = L L' of a kernel up to its rank.

    Attributes:
        lower: L, shape (n, n); columns from the rank on are not used.
        order: Candidates in the order of the pivots, shape (n,).
        rank: Rank of the kernel.
    """

    lower: Matrix
    order: Ints
    rank: int

    @staticmethod
    def of(kernel: Matrix) -> _Pivoted:
        """Factor a kernel (n, n), which is overwritten."""
        largest = float(kernel.diagonal().max(initial=0.0))
        # The upper triangle of a transposed view is the lower one: Fortran's order, without a copy.
        factor, pivots, rank, _ = lapack.dpstrf(kernel.T, tol=_INDEPENDENT * largest, lower=1, overwrite_a=1)
        return _Pivoted(factor, pivots.astype(np.int64) - 1, int(rank))

    def solve(self, side: Matrix) -> Matrix:
        """Return a solution on the first `rank` pivots, 0 elsewhere, shape (n,)."""
        first = self.order[: self.rank]
        block = self.lower[: self.rank, : self.rank]
        found = np.zeros(len(side))
        half = solve_triangular(block, side[first], lower=True, check_finite=False)
        found[first] = solve_triangular(block, half, lower=True, trans=1, check_finite=False)
        return found

    def equations(self, side: Matrix) -> tuple[Matrix, Matrix]:
        """Return a design (rank, n) with the kernel's normal equations, and its right side (rank,)."""
        lower = np.tril(self.lower)[:, : self.rank]
        design = np.zeros((self.rank, len(side)))
        design[:, self.order] = lower.T
        first = self.order[: self.rank]
        goal = solve_triangular(lower[: self.rank], side[first], lower=True, check_finite=False)
        return design, np.asarray(goal)


def _only_one(factor: _Pivoted, weights: Matrix) -> bool:
    """Whether no other weights in [0, 1] have the same sums, by a linear programme in the kernel's null space."""
    from scipy.optimize import linprog

    at_end: Bools = (np.abs(weights - np.rint(weights)) < 1e-4) & (weights > -0.5) & (weights < 1.5)
    if not at_end.all() or len(weights) > ACTIVE:
        return False
    design, _ = factor.equations(np.zeros(len(weights)))
    inward = np.where(weights < 0.5, 1.0, -1.0)
    scale = max(float(np.abs(design).max()), 1e-300)
    found = linprog(
        -np.ones(len(weights)), A_eq=design / scale * inward, b_eq=np.zeros(len(design)), bounds=(0.0, 1.0)
    )
    return bool(found.status == 0 and -found.fun < 1e-6)


def _groups(system: System) -> Iterator[tuple[Ints, System]]:
    """Yield the candidates that have to be solved for together, with their equations: one kernel at a time."""
    if not system.separate:
        yield np.arange(system.size), system
        return
    for label in np.unique(system.labels):
        rows = np.flatnonzero(system.labels == label)
        yield rows, system.of_class(int(label), rows)
