"""The values of few records, from their sums and the law of their class, by annealing.

Of m values of a feature, their sum and the sum of their squares are known. For m = 2 only their order is open: a
spin each, with the energy of an Ising model under a Gaussian law. For more records three of them at a time keep
both sums on a circle; the states are points of that circle, the orders of the three values, and the points at
which one of them is 0, since features behind a rectifier mostly are. All starts and all components of equal m are
annealed side by side.

Source: simulated annealing is Kirkpatrick, Gelatt and Vecchi 1983; its use here is this project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from fedassay.attacks.few_records.components import Component
from fedassay.attacks.few_records.law import ClassLaw
from fedassay.support.types import Bools, Matrix

HOT, COLD, QUENCHED = 3.0, 0.05, 6
"""First and last temperature in units of the law's own, and sweeps at none after them."""

_CIRCLE = 24
_ANGLES = np.linspace(0, 2 * np.pi, _CIRCLE, endpoint=False)
_POINTS = (
    np.cos(_ANGLES)[:, None] * np.array([2, -1, -1]) + np.sin(_ANGLES)[:, None] * np.array([0, 3**0.5, -(3**0.5)])
) / 6**0.5
_TWO, _THREE = (np.array(list(permutations(range(size)))) for size in (2, 3))


@dataclass(frozen=True, eq=False)
class Found:
    """The records of a component, as they were found.

    Attributes:
        records: Shape (m, d), those of the start with the lowest energy.
        apart: Distance of the records of the other starts from these, relative to their length, in the median over
            starts; shape (m,).
    """

    records: Matrix
    apart: Matrix


def search(
    parts: Sequence[Component], law: ClassLaw, rng: np.random.Generator, *, starts: int, sweeps: int
) -> list[Found]:
    """Find the records of components of one and the same number of records.

    Args:
        parts: The components; d is the law's.
        law: Of features within a class.
        rng: Draws starts and moves.
        starts: Independent starts of each component, at least 2.
        sweeps: Sweeps over all features.
    """
    anneal = _Annealed(parts, law, rng, starts)
    for temperature in (*np.geomspace(HOT, COLD, sweeps), *([0.0] * QUENCHED)):
        for feature in rng.permutation(anneal.open):
            anneal.move(int(feature), float(temperature))
    return anneal.found()


class _Annealed:
    """The state of all starts: values (B, m, d), the law's residuals of them, and the precision times these."""

    def __init__(self, parts: Sequence[Component], law: ClassLaw, rng: np.random.Generator, starts: int) -> None:
        self.law, self.rng, self.starts, self.parts = law, rng, starts, parts
        self.number = parts[0].records
        self.means = np.repeat(law.means[[part.label for part in parts]], starts, axis=0)
        is_open = np.array([part.open for part in parts])
        self.open = np.flatnonzero(is_open.any(axis=0))
        self.moves = np.repeat(is_open, starts, axis=0)
        first = np.array([_first(part, law.nonnegative) for part in parts])
        values = rng.permuted(np.repeat(first, starts, axis=0), axis=2)
        self.values = np.ascontiguousarray(values.transpose(0, 2, 1))
        self.residuals = law.transformed(self.values) - self.means[:, None, :]
        self.pulled = self.residuals @ law.precision

    def move(self, feature: int, temperature: float) -> None:
        """Draw the values of one feature anew in every start, given all others (Gibbs; the least at no heat)."""
        three = self.rng.permutation(self.number)[:3]
        own = np.flatnonzero(self.moves[:, feature])
        place = own[:, None], three, feature
        old = self.residuals[place]
        states, valid = _states(self.values[place].T, self.law.nonnegative)
        self_pull = self.law.precision[feature, feature]
        residuals = self.law.transformed(states) - self.means[own, feature]
        field = self.pulled[place] - self_pull * old
        terms = self_pull * residuals**2 / 2 + residuals * field.T[:, None]
        energy = np.where(valid, terms.sum(axis=0), np.inf).T
        if temperature > 0:
            energy = energy - temperature * self.rng.gumbel(size=energy.shape)
        chosen = energy.argmin(axis=1)
        each = np.arange(len(own))
        change = residuals[:, chosen, each].T - old
        moved = np.flatnonzero(change.any(axis=1))  # late in a search hardly any start moves
        own, change = own[moved], change[moved]
        place = own[:, None], three, feature
        self.values[place] = states[:, chosen[moved], moved].T
        self.residuals[place] += change
        self.pulled[own[:, None], three] += change[:, :, None] * self.law.precision[feature]

    def found(self) -> list[Found]:
        """The best start of each component, and how far the others are from it."""
        from scipy.optimize import linear_sum_assignment

        energy = (self.residuals * self.pulled).sum(axis=(1, 2)).reshape(-1, self.starts)
        whole = self.values.reshape(len(self.parts), self.starts, self.number, -1)
        result = []
        for values, each in zip(whole, energy, strict=True):
            best = values[each.argmin()]
            length = np.maximum(np.linalg.norm(best, axis=1), np.finfo(float).tiny)
            apart = []
            for other in np.delete(values, each.argmin(), axis=0):
                gaps = np.linalg.norm(best[:, None] - other, axis=2) / length[:, None]
                rows, columns = linear_sum_assignment(gaps)
                apart.append(gaps[rows, columns])
            result.append(Found(best, np.median(apart, axis=0)))
        return result


def _states(values: Matrix, nonnegative: bool) -> tuple[Matrix, Bools]:
    """Values with the same sum and sum of squares, the given ones first, and which of them may be.

    Args:
        values: Of 2 or 3 records, shape (2, B) or (3, B).
        nonnegative: Whether values below 0 may not be.

    Returns:
        States (2 or 3, K, B) and whether each is possible, (K, B).
    """
    if len(values) == 2:
        return values[_TWO.T], np.ones((2, values.shape[1]), np.bool_)
    centre = values.sum(axis=0) / 3
    radius = np.sqrt(((values - centre) ** 2).sum(axis=0))
    circle = centre + radius * _POINTS.T[:, :, None]
    always = np.ones((len(_THREE), values.shape[1]), np.bool_)
    if not nonnegative:
        states = np.concatenate([values[_THREE.T], circle], axis=1)
        return states, np.ones(states.shape[1:], np.bool_)
    total, squares = 3 * centre, (values**2).sum(axis=0)
    inside = 2 * squares - total**2
    root = np.sqrt(np.maximum(inside, 0))
    with_zero = np.stack([(total + root) / 2, (total - root) / 2, np.zeros_like(total)])
    tiny = 1e-9 * np.maximum(total, 0)
    real, positive = inside >= -1e-9 * squares, with_zero.min(axis=0) >= -tiny
    edges = np.broadcast_to(real & positive, always.shape)
    states = np.concatenate([values[_THREE.T], circle, with_zero[_THREE.T]], axis=1)
    return np.maximum(states, 0), np.concatenate([always, circle.min(axis=0) >= -tiny, edges])


def _first(part: Component, nonnegative: bool) -> Matrix:
    """Some values with a component's sums and sums of squares, shape (d, m).

    One value differs and the others are equal; where these would be negative, as many of them are 0 as must be.
    """
    number, sums, squares = part.records, part.sums, part.squares
    values = np.zeros((len(sums), number))
    left = np.ones(len(sums), np.bool_)
    for size in range(number, 0, -1):
        mean = sums / size
        spread = np.sqrt(np.maximum(squares - size * mean**2, 0))
        others = mean - spread / np.sqrt(size * (size - 1)) if size > 1 else np.zeros_like(mean)
        fits = left & ((others >= 0) | (not nonnegative) | (size == 1))
        values[fits, 1:size] = others[fits, None]
        values[fits, 0] = sums[fits] - (size - 1) * others[fits]
        left &= ~fits
    return values
