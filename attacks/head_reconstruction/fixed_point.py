"""Solve for the records behind a softmax head, about their common mean, as a fixed point of the residuals.

A head W with the penalty `decay` on standardised weights solves sum_i E_ic u_ij = n decay v_j W_cj, where u_i are
its n records about their mean, v_j = mean_i u_ij^2, and E_i = e_y - p(x_i) are the residuals. Given E, the
vectors u_j / v_j follow by least squares from W, v_j from their own length, and the logits, so E again, from u.
Where a class has no record the biases are penalised as well: n decay b_c = sum_i E_ic of the standardised ones.

The unknowns are the n C logits, whatever the width is. There are local minima: starts are the logits of heads that
the attacker fits to records of its own. A solution is recognised by its residual, and by starts that converge to
it.

Source: this project. Haim et al. 2022 fit pixels to the stationarity of a network; a linear head leaves no pixels
to fit, for its equations are solved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.special import softmax

from fedassay.support.types import Ints, Matrix

SOLVED = 1e-2
"""Largest half squared residual of a solution. Heads of records as assumed leave 1e-6 to 2e-3, others and local
minima 0.02 and more."""
_AGREE = 0.02
"""Largest distance of two solutions that count as one, relative to their length."""
_STEP = 1e-6
_INDEPENDENT = 1e-12
_CONSISTENT = 30.0
"""Weight of the least-squares residual of the equations, relative to the logits."""
_EVALUATIONS = 40
_FOLLOWED = 8
"""Largest number of starts that are followed: those with the smallest residuals."""


@dataclass(frozen=True, eq=False)
class Found:
    """Records about their common mean.

    Attributes:
        centred: u, shape (n, d).
        left: Half the squared residual.
        apart: Distance of the next best solution, relative to each record's length, shape (n,); infinite where no
            other start converged to a solution.
    """

    centred: Matrix
    left: float
    apart: Matrix


@dataclass(frozen=True, eq=False)
class Stationarity:
    """The equations of a head.

    Attributes:
        weights: W, shape (C, d).
        labels: The class of each record, shape (n,).
        decay: The penalty.
    """

    weights: Matrix
    labels: Ints
    decay: float

    def records(self, logits: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Return residuals E, records u and the least-squares residual, from logits (..., n, C)."""
        size = len(self.labels)
        residuals = np.eye(len(self.weights))[self.labels] - softmax(logits, axis=-1)
        # The equation that the records' mean is 0 gets the weight of the other equations.
        weight = np.abs(residuals).mean(axis=(-1, -2), keepdims=True)
        ones = np.ones((*residuals.shape[:-2], 1, size)) * weight
        system = np.concatenate([np.swapaxes(residuals, -1, -2), ones], axis=-2)
        target = np.concatenate([size * self.decay * self.weights, np.zeros((1, self.weights.shape[1]))])
        scaled = np.linalg.pinv(system, rcond=_INDEPENDENT) @ target
        centred = scaled / np.maximum((scaled**2).mean(axis=-2, keepdims=True), 1e-300)
        return residuals, centred, system @ scaled - target

    def left(self, flat: Matrix) -> Matrix:
        """Return residuals of the fixed point and of the equations at logits (..., n C), as one vector each."""
        logits = flat.reshape(*flat.shape[:-1], len(self.labels), len(self.weights))
        residuals, centred, rest = self.records(logits)
        biases = residuals.sum(axis=-2, keepdims=True) / (len(self.labels) * self.decay)
        again = _about_mean(centred @ self.weights.T + biases)
        unit = (
            len(self.labels) * self.decay * np.abs(self.weights).mean() * np.sqrt(rest.shape[-1] * rest.shape[-2])
        )
        parts = again - _about_mean(logits), _CONSISTENT * rest / unit
        return np.concatenate([part.reshape((*flat.shape[:-1], -1)) for part in parts], axis=-1)

    def slopes(self, flat: Matrix) -> Matrix:
        """Return derivatives of `left` at logits (n C,), shape (equations, n C)."""
        return np.asarray((self.left(flat + _STEP * np.eye(len(flat))) - self.left(flat)).T / _STEP)


def solved(equations: Stationarity, starts: Iterable[Matrix]) -> Found | None:
    """Return the solution with the smallest residual, once two starts have reached it; None where none does.

    Args:
        equations: The equations of the head, without features of weight 0.
        starts: Logits to start from, each of shape (n, C).
    """
    found: list[tuple[float, Matrix]] = []
    flat = np.array([_about_mean(start).ravel() for start in starts])
    order = np.argsort((equations.left(flat) ** 2).sum(axis=-1), kind="stable")
    for start in flat[order[:_FOLLOWED]]:
        try:
            end = least_squares(equations.left, start, jac=equations.slopes, max_nfev=_EVALUATIONS)
        except np.linalg.LinAlgError:
            continue
        found.append((float(end.cost), end.x.reshape(len(equations.labels), -1)))
        found.sort(key=lambda each: each[0])
        if len(found) > 1 and found[1][0] < SOLVED and _apart(equations, found).max() < _AGREE:
            break
    if not found or found[0][0] >= SOLVED:
        return None
    return Found(equations.records(found[0][1])[1], found[0][0], _apart(equations, found))


def _apart(equations: Stationarity, found: list[tuple[float, Matrix]]) -> Matrix:
    best = equations.records(found[0][1])[1]
    if len(found) < 2 or found[1][0] >= SOLVED:
        return np.full(len(best), np.inf)
    other = equations.records(found[1][1])[1]
    return np.asarray(np.linalg.norm(other - best, axis=1) / np.linalg.norm(best, axis=1))


def _about_mean(values: Matrix) -> Matrix:
    return np.asarray(values - values.mean(axis=-1, keepdims=True))
