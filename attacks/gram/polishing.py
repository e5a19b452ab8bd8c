"""The last digits of non-negative vectors with a given second moment and group sums, from a nearby start.

Minimises |F^T F - B|^2 / 2 + |E F - A|^2 over F >= 0, E the groups' indicators, by Levenberg-Marquardt steps on
the entries that are free (above 0, or pushed upwards by the gradient), each step by LSMR, which needs products
with the Jacobian alone (Fong and Saunders 2011; Nocedal and Wright 2006, section 10.3). Once the active set is
right and the system determined, convergence is quadratic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.support.types import Matrix

_STEPS = 40
_INNER = 300
_DAMPING = (1e-3, 1e3)
_ENOUGH = 1e-14
_STALLED = 1e-3
_WINDOW = 8
"""Steps in which the residual must halve: with the right active set it falls by orders of magnitude."""


@dataclass(frozen=True)
class Equations:
    """Equations that the vectors must satisfy.

    Attributes:
        second: F^T F, shape (k, k).
        groups: Indicators E of the groups, shape (C, n); no row where sums are not known.
        sums: E F, shape (C, k).
    """

    second: Matrix
    groups: Matrix
    sums: Matrix

    def off(self, factor: Matrix) -> tuple[Matrix, Matrix]:
        """By how much second moment and sums of a factor are off."""
        return factor.T @ factor - self.second, self.groups @ factor - self.sums

    def gradient(self, factor: Matrix) -> Matrix:
        """Half the gradient of the squared residual."""
        second, sums = self.off(factor)
        return np.asarray(factor @ second + self.groups.T @ sums)

    def residual(self, factor: Matrix) -> Matrix:
        """As a vector; its squared norm is minimised."""
        second, sums = self.off(factor)
        return np.concatenate([second.ravel() / np.sqrt(2), sums.ravel()])


def polish(start: Matrix, equations: Equations) -> Matrix:
    """Non-negative vectors near a start that meet the equations as well as any near it.

    Args:
        start: Shape (n, k); negative entries are set to 0.
        equations: For scaled columns: all columns count alike.

    Returns:
        Shape (n, k), non-negative.
    """
    factor = np.maximum(start, 0.0)
    residual = equations.residual(factor)
    scale = float(np.linalg.norm(equations.second)) or 1.0
    damping, stalled = _DAMPING[0], 0
    sizes: list[float] = []
    for _ in range(_STEPS):
        size = float(np.linalg.norm(residual))
        sizes.append(size)
        if size < _ENOUGH * scale or damping > _DAMPING[1] or stalled > 3:
            break
        if len(sizes) > _WINDOW and size > sizes[-1 - _WINDOW] / 2:
            break
        trial = np.maximum(factor + _step(factor, equations, residual, damping), 0.0)
        ahead = equations.residual(trial)
        after = float(np.linalg.norm(ahead))
        if after < size:
            factor, residual, damping = trial, ahead, damping / 4
            stalled = stalled + 1 if after > (1 - _STALLED) * size else 0
        else:
            # Below the first damping all steps are the same one.
            damping = max(8 * damping, _DAMPING[0])
    return factor


def _step(factor: Matrix, equations: Equations, residual: Matrix, damping: float) -> Matrix:
    """One damped Gauss-Newton step on the free entries."""
    from scipy.sparse.linalg import LinearOperator, lsmr

    shape, width = factor.shape, factor.shape[1]
    free = ((factor > 0) | (equations.gradient(factor) < 0)).ravel()
    split = width * width

    def ahead(values: Matrix) -> Matrix:
        change = np.zeros(factor.size)
        change[free] = values
        moved = change.reshape(shape)
        half = moved.T @ factor
        return np.concatenate([(half + half.T).ravel() / np.sqrt(2), (equations.groups @ moved).ravel()])

    def back(values: Matrix) -> Matrix:
        second = values[:split].reshape(width, width)
        pulled = factor @ (second + second.T) / np.sqrt(2)
        pulled = pulled + equations.groups.T @ values[split:].reshape(equations.sums.shape)
        return np.asarray(pulled.ravel()[free])

    operator = LinearOperator((len(residual), int(free.sum())), matvec=ahead, rmatvec=back, dtype=np.float64)
    found = lsmr(operator, -residual, damp=damping, maxiter=_INNER, atol=1e-12, btol=1e-12)[0]
    step = np.zeros(factor.size)
    step[free] = found
    return step.reshape(shape)
