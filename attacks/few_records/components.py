"""Components and classes of few records in a view: how many records, and the sums of their values.

A component that carries the weight of m records, with a mean and a variance for each feature, says for each
feature what the m values add up to and what their squares add up to. For m = 1 that is the record, which
`message_algebra` reads; for m = 2 it leaves open which of the two records has the larger value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.statistics import field_of, noise_of, statistics_of
from fedassay.exchange.transcript import Message
from fedassay.exchange.view import View
from fedassay.support.types import Bools, Ints, Matrix

WHOLE = 0.05
"""Largest distance of a component's weight from a whole number of records: above the rounding of float16."""

FLAT = 1e-6
"""Variance relative to the largest of its component below which all records have one value."""

_FAMILIES: tuple[tuple[FieldKind, FieldKind], ...] = (
    ("mixture_means", "mixture_covariances"),
    ("class_means", "class_covariances"),
)


@dataclass(frozen=True, eq=False)
class Component:
    """A mean and variances of few records.

    Attributes:
        sender: The sender of the records.
        label: Their class.
        records: Their number, m.
        sums: Sums of their values, shape (d,).
        squares: Sums of the squares of their values, shape (d,).
    """

    sender: str
    label: int
    records: int
    sums: Matrix
    squares: Matrix

    @property
    def open(self) -> Bools:
        """Features in which the records differ, shape (d,)."""
        spread = self.squares - self.sums**2 / self.records
        return np.asarray(spread > FLAT * np.maximum(self.squares, np.finfo(float).tiny))


def components(view: View, most: int) -> tuple[list[Component], bool]:
    """Components of 2 to `most` records with a variance for each feature, and whether noise hid any.

    Args:
        view: The messages that are seen.
        most: Records of a component at most.

    Returns:
        The components without noise, and whether others were left out because noise is declared on them.
    """
    found: list[Component] = []
    noised = False
    for message in view.from_clients():
        for kinds in _FAMILIES:
            parts = _Parts.of(message, kinds, view.classes)
            if parts is None:
                continue
            if parts.noised:
                noised = True
            else:
                found += parts.few(message.sender, most)
    return found, noised


@dataclass(frozen=True, eq=False)
class _Parts:
    """Means, variances and numbers of records of every component of a message.

    Attributes:
        means: Shape (S, d).
        variances: Shape (S, d).
        records: Number of records that each component carries, shape (S,).
        labels: Class of each, shape (S,).
        noised: Whether noise is declared on means, variances or counts.
    """

    means: Matrix
    variances: Matrix
    records: Matrix
    labels: Ints
    noised: bool

    @staticmethod
    def of(message: Message, kinds: tuple[FieldKind, FieldKind], classes: int) -> _Parts | None:
        """The parts of a message; None where it sends no variance for each feature, or no number of records."""
        means, spread, counts = (field_of(message, kind) for kind in (*kinds, "class_counts"))
        if means is None or spread is None or counts is None:
            return None
        if means[1].values.ndim != 2 or spread[1].values.shape != means[1].values.shape:
            return None  # spherical, or full
        inside = kinds[0] == "mixture_means"
        number = message.of_kind("component_counts") if inside else None
        weights = message.of_kind("mixture_weights") if inside else None
        whole = counts[1].values.astype(np.float64)
        parts = np.ones(len(whole), np.int64) if number is None else number.astype(np.int64)
        group = np.repeat(np.arange(len(parts)), parts)
        if len(group) != len(means[1].values):
            return None
        share = 1.0 if weights is None else weights.astype(np.float64)
        return _Parts(
            means[1].values.astype(np.float64),
            spread[1].values.astype(np.float64),
            whole[group] * share,
            statistics_of(message, classes).order[group],
            any(noise_of(item) > 0 for _, item in (means, spread, counts)),
        )

    def few(self, sender: str, most: int) -> Iterator[Component]:
        """The components of 2 to `most` records."""
        for row, share in enumerate(self.records):
            number = round(float(share))
            if abs(share - number) > WHOLE or not 2 <= number <= most:
                continue
            mean, variance = self.means[row], _unfloored(self.variances[row])
            # Moments come as means over all records, or with one record less in the divisor.
            if _one_less(mean, variance, number):
                variance = variance * (number - 1) / number
            sums = number * mean
            yield Component(sender, int(self.labels[row]), number, sums, number * (variance + mean**2))


def _unfloored(variances: Matrix) -> Matrix:
    """Variances without the floor that the sender keeps them above: its smallest value, met more than once."""
    smallest = variances.min(initial=np.inf)
    at_floor = variances <= smallest * (1 + 1e-6)
    return np.where(at_floor, 0.0, variances) if at_floor.sum() > 1 else variances


def _one_less(mean: Matrix, variance: Matrix, number: int) -> bool:
    """Whether variances are unbiased ones, as features that are not 0 in one record alone show.

    There the variance is (m - 1) times the squared mean, and m times it where the divisor is m - 1.
    """
    live = (mean > 0) & (variance > 0)
    ratio = variance[live] / mean[live] ** 2
    near = [int((np.abs(ratio / expected - 1) < 2e-3).sum()) for expected in (number - 1, number)]
    return near[1] > near[0]
