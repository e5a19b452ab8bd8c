"""Mixtures as sums over records: each component by itself where it holds a whole number of them, else together.

Every fit by expectation-maximisation ends with a step of maximisation. After it, whatever the responsibilities r
were, component k of a class of n records has n pi_k = sum_i r_ik and n pi_k mu_k = sum_i r_ik x_i, and the second
moments alike, but for floors. In features of a backbone responsibilities are 0 or 1: n pi_k is a whole number, and
the component is a sum over that many records of its own. The mixture that was sent says which component a
candidate would be in, so K components are K sums, each over a K-th of the candidates.

Components of a class that hold no whole number of records share some; their responsibilities sum to 0 or 1, and
they are taken together. So are all components of a class where noise is declared, since responsibilities then come
from parameters that were not sent, and those of whole covariances, which tell more numbers than there are records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from fedassay.exchange.blocks import Cells, LinearBlock, Of
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.statistics import field_of, noise_of, roundoff
from fedassay.mixtures.densities import Stack, expand, joint_log_density
from fedassay.mixtures.packed import Mixtures, unpack_lower
from fedassay.support.types import Bools, Floats, Ints, Matrix

Field = tuple[str, MessageField]

_FITTED = 4 * 2.0**-24
"""Relative error of a sum over components from the arithmetic of a fit in float32: four roundings."""
_FLOORED = 0.01
"""Share of its class's variance below which a component's one variance may be a floor."""
_WHOLE = 0.01
"""Largest distance of a component's number of records from a whole number, beside the error by rounding."""
_TOLD = 0.25
"""Largest rounding of a number of records, four times over, at which it can be seen to be whole."""


@dataclass(frozen=True, eq=False)
class MixtureSums:
    """The sums in the mixtures of one message.

    Attributes:
        message: The message.
        mixed: Its mixtures.
        order: The class of each, shape (P,).
        known: Records per class, shape (C,).
        scales: Declared noise on each class's part of a field, shape (C,).
    """

    message: Message
    mixed: Mixtures
    order: Ints
    known: Matrix
    scales: Callable[[MessageField], Matrix]

    def blocks(self) -> list[LinearBlock]:
        """Means and covariances, and the numbers of records where components stand by themselves."""
        means, spread = self._field("mixture_means"), self._field("mixture_covariances")
        mixed, shares, centres = self.mixed, self.mixed.weights, self.mixed.means
        # As they were sent: what makes covariances definite again is no record's.
        spreads = spread[1].values.astype(np.float64)
        of_means, of_spread = (max(_FITTED, roundoff(found[1].values)) for found in (means, spread))
        first = self._block(means, "features", centres, of_means * root_mean_square(centres))
        if mixed.family == "full":
            return [first, self._products(spread, spreads, of_means, of_spread)]
        if mixed.family == "spherical":
            usual = (self._by_class(shares[:, None] * spreads[:, None]))[self._group, 0]
            floored = spreads < _FLOORED * usual
            values = np.where(floored, 0.5, 1.0) * spreads
            lost = mixed.width * np.where(floored, spreads / np.sqrt(12), 0.0)
            norms = mixed.width * values + (centres**2).sum(axis=1)
            error = max(of_spread, 2 * of_means) * norms
            found = [first, self._block(spread, "norms", norms[:, None], error, lost)]
        else:
            values, lost = above_floor(spreads, centres)
            error = np.hypot(of_spread * root_mean_square(values), 2 * of_means * root_mean_square(centres**2))
            found = [first, self._block(spread, "squares", values + centres**2, error, lost)]
        if self._cells is None:
            return found
        held = np.zeros((self._rows, 1))
        np.add.at(held[:, 0], self._cell, self._records)
        nothing = np.zeros(self._rows)
        numbers = LinearBlock(means[0], "ones", 1, True, held, nothing, nothing, cells=self._cells)
        return [numbers, *found]

    @cached_property
    def _group(self) -> Ints:
        """The group of every component, shape (S,)."""
        return np.repeat(np.arange(len(self.mixed.components)), self.mixed.components)

    @cached_property
    def _of_weights(self) -> float:
        found = field_of(self.message, "mixture_weights")
        return _FITTED if found is None else max(_FITTED, roundoff(found[1].values))

    @cached_property
    def _alone(self) -> Bools:
        """Whether each component is a sum of its own, shape (S,)."""
        kinds = ("mixture_means", "mixture_covariances", "mixture_weights", "class_counts")
        found = [field_of(self.message, kind) for kind in kinds]
        noised = any(each is not None and noise_of(each[1]) > 0 for each in found)
        rounded, apart = 4 * self._of_weights * self._mass, np.abs(self._mass - np.rint(self._mass))
        whole = (apart <= np.maximum(_WHOLE, rounded)) & (rounded < _TOLD)
        several = self.mixed.components[self._group] > 1
        return whole & several & (not noised and self.mixed.family != "full")

    @cached_property
    def _cell(self) -> Ints:
        """The row of every component in a total, shape (S,): its class's, or one of its own behind these."""
        places = len(self.known) + np.cumsum(self._alone) - 1
        return np.where(self._alone, places, self.order[self._group])

    @property
    def _rows(self) -> int:
        return len(self.known) + int(self._alone.sum())

    @cached_property
    def _mass(self) -> Matrix:
        """Records of every component as its weight says, shape (S,)."""
        return np.asarray(self.known[self.order][self._group] * self.mixed.weights)

    @cached_property
    def _records(self) -> Matrix:
        """Records of every component, shape (S,): a whole number where rounding explains the difference."""
        whole = np.rint(self._mass)
        explained = np.abs(self._mass - whole) <= 4 * self._of_weights * self._mass
        return np.where(self._alone & explained, whole, self._mass)

    @cached_property
    def _cells(self) -> Cells | None:
        """Sums that a candidate would be part of; None where that is its class's."""
        if not self._alone.any():
            return None
        classes = np.concatenate([np.arange(len(self.known)), self.order[self._group][self._alone]])
        return Cells(classes, self._assigned)

    def _assigned(self, features: Floats, labels: Ints) -> Ints:
        """The row of every candidate: that of the component of its class that it is likeliest of."""
        found = np.array(labels, np.int64)
        family = self.mixed.family
        for number, label in enumerate(self.order):
            own = self._group == number
            inside = np.flatnonzero(labels == label)
            if not self._alone[own].any() or not len(inside):
                continue
            rows = torch.as_tensor(np.asarray(features[inside], np.float64)[None])
            held = (self.mixed.weights[own], self.mixed.means[own], self.mixed.covariances[own])
            stack = Stack(*(torch.as_tensor(part[None]) for part in held))
            with np.errstate(divide="ignore"):
                likely = joint_log_density(expand(rows, family), stack, family)[0].argmax(0).numpy()
            found[inside] = self._cell[own][likely]
        return found

    def _block(
        self, field: Field, of: Of, values: Matrix, error: Matrix, lost: Matrix | float = 0.0
    ) -> LinearBlock:
        """Block of the components' summed values (S, p); their errors are `error` each, and `lost` in common."""
        total = np.zeros((self._rows, values.shape[1]))
        np.add.at(total, self._cell, self._records[:, None] * values)
        held = np.zeros(self._rows)
        np.add.at(held, self._cell, self._records)
        middle = total / np.maximum(held, 1e-300)[:, None]
        # Rounded shares move what components differ by from their sum.
        moved = self._of_weights * root_mean_square(values - middle[self._cell] * ~self._alone[:, None])
        return self._of(field, of, total, np.hypot(error, moved), lost)

    def _of(self, field: Field, of: Of, total: Matrix, error: Matrix, lost: Matrix | float = 0.0) -> LinearBlock:
        off, alike, parts = np.zeros(self._rows), np.zeros(self._rows), np.zeros(self._rows)
        np.add.at(off, self._cell, (self._records * error) ** 2)
        np.add.at(alike, self._cell, self._records * lost)
        # A joint release noises the sums of all components; others noise what is divided by their counts.
        joint = field[1].release.cells == ("all",)
        np.add.at(parts, self._cell, 1.0 if joint else self._records**2)
        scales = self.scales(field[1])
        noise = np.sqrt(parts) * (scales if self._cells is None else scales[self._cells.classes])
        return LinearBlock(field[0], of, 1, True, total, noise, np.hypot(np.sqrt(off), alike), cells=self._cells)

    def _products(self, spread: Field, spreads: Matrix, of_means: float, of_spread: float) -> LinearBlock:
        """Second moments of whole covariances, all components of a class together."""
        width, shares, centres = self.mixed.width, self._records, self.mixed.means

        def product(number: int) -> Matrix:
            return np.asarray(unpack_lower(spreads[number]) + np.outer(centres[number], centres[number]))

        # One by one: all components' matrices together can take a gigabyte.
        total, error = np.zeros((self._rows, width, width)), np.zeros(len(shares))
        for number, share in enumerate(shares):
            total[self._cell[number]] += share * product(number)
        for number in range(len(shares)):
            own, cell = product(number), self._cell[number]
            apart = own - total[cell] / max(float(self.known[cell]), 1e-300)
            moved = self._of_weights * root_mean_square(apart[None])[0]
            error[number] = np.hypot(max(of_spread, 2 * of_means) * root_mean_square(own[None])[0], moved)
        return replace(self._of(spread, "features", total, error), power=2, free_ridge=True)

    def _by_class(self, values: Matrix) -> Matrix:
        """Values of components (S, p) added up by group, shape (P, p)."""
        total = np.zeros((len(self.mixed.components), values.shape[1]))
        np.add.at(total, self._group, values)
        return total

    def _field(self, kind: str) -> Field:
        found = field_of(self.message, kind)
        assert found is not None
        return found


def root_mean_square(values: Matrix) -> Matrix:
    """Of each row, over all that follows its first axis, shape (S,)."""
    return np.asarray(np.sqrt(np.mean(values.reshape(len(values), -1) ** 2, axis=1)))


def above_floor(variances: Matrix, means: Matrix) -> tuple[Matrix, Matrix]:
    """Variances (P, d) without the floor that fits keep them at, and what is not known of them, shape (P,).

    The least variance of a component is a floor where several coordinates share it. A coordinate without a mean is
    never active and has none; of others it is only known that theirs are at most the floor.
    """
    least = variances.min(axis=1, initial=np.inf, keepdims=True)
    at_floor = (variances == least) & ((variances == least).sum(axis=1, keepdims=True) > 1)
    dead = at_floor & (means == 0)
    found = np.where(dead, 0.0, np.where(at_floor, least / 2, variances))
    open_ = (at_floor & ~dead).mean(axis=1)
    return found, np.asarray(least[:, 0] * np.sqrt(open_ / 12))
