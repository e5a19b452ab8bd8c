"""The worst of many compositions of clients and classes: the one of the largest total.

Every composition is one row of numbers that all grow with its privacy loss: mu of its Gaussians, its pure epsilons
from the largest down, and for every kind of DP-SGD less noise, a larger sample and more steps. A row that another
one reaches or surpasses in every number is dropped. Neighbours among the rest are composed as the worst of them in
every number, which bounds each of them from above; the set with the largest bound is halved until that bound is
attained by a composition of its own. Where `limits.COMPOSITIONS` totals do not get there, the bound stands: it is
above the truth, and no number of clients is refused.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from fedassay.privacy.accounting import Total
from fedassay.privacy.events import Event, GaussianEvent, PureEvent, Sampling, SubsampledGaussianEvent
from fedassay.privacy.gaussian import compose_mu
from fedassay.support import limits
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import DataError, PlanError

Composition = tuple[Event, ...]
_Side = tuple[Adjacency, int, Sampling]
_Node = list[NDArray[np.intp]]
_ABSENT = (-sys.float_info.max, 0.0, 0.0)
"""Less noise, sampling rate and steps of a release that a composition does not have."""
_PEELED = 256
"""Rows that others are compared with; what is left beyond them is searched as it is."""


@dataclass(frozen=True)
class _Table:
    """Compositions as rows of numbers, none of them unbounded.

    Attributes:
        rows: (n, columns), float64: mu, then the pure epsilons, then three numbers for each release of DP-SGD.
        pures: Columns of pure epsilons.
        sides: The relation, the members and the sampling of each release of DP-SGD.
    """

    compositions: Sequence[Composition]
    rows: NDArray[np.float64]
    pures: int
    sides: tuple[_Side, ...]

    def taken(self, kept: NDArray[np.intp]) -> _Table:
        """The table of these rows alone."""
        return _Table([self.compositions[row] for row in kept], self.rows[kept], self.pures, self.sides)

    def worst(self, rows: NDArray[np.intp]) -> tuple[Composition, bool]:
        """A composition that none of these rows surpasses, and whether it is one of them."""
        most = self.rows[rows].max(axis=0)
        attained = rows[(self.rows[rows] == most).all(axis=1)]
        if attained.size:
            return self.compositions[attained[0]], True
        pure = [PureEvent(float(value)) for value in most[1 : 1 + self.pures] if value > 0]
        releases = most[1 + self.pures :].reshape(-1, 3).tolist()
        sampled = [
            SubsampledGaussianEvent(-less, rate, int(steps), *side)
            for side, (less, rate, steps) in zip(self.sides, releases, strict=True)
            if rate * steps > 0
        ]
        return (GaussianEvent(float(most[0])), *pure, *sampled), False


def _table(compositions: Sequence[Composition]) -> _Table:
    """Rows of these compositions.

    Raises:
        DataError: Their releases of unlike kinds fill more memory than a file may ask for.
    """
    parts = [_numbers(each) for each in compositions]
    pures = max((len(pure) for _, pure, _ in parts), default=0)
    slots: dict[_Side, int] = {}
    for _, _, sampled in parts:
        for side, releases in sampled.items():
            slots[side] = max(slots.get(side, 0), len(releases))
    columns = 1 + pures + 3 * sum(slots.values())
    if len(parts) * columns > limits.TOTALS:
        raise DataError(
            f"{len(parts):,} compositions of up to {columns:,} numbers of pure epsilons and DP-SGD; allowed: "
            f"{limits.TOTALS:,} numbers, such as one noise for all rounds of a client"
        )
    rows = np.zeros((len(parts), columns))
    for row, (mu, pure, sampled) in zip(rows, parts, strict=True):
        numbers = [mu, *pure, *[0.0] * (pures - len(pure))]
        for side, most in slots.items():
            held = sampled.get(side, [])
            for release in [*held, *[_ABSENT] * (most - len(held))]:
                numbers.extend(release)
        row[:] = numbers
    return _Table(compositions, rows, pures, tuple(side for side, most in slots.items() for _ in range(most)))


def _numbers(
    composition: Composition,
) -> tuple[float, list[float], dict[_Side, list[tuple[float, float, float]]]]:
    """Mu, pure epsilons from the largest down, and by side the releases of DP-SGD from the least noise on."""
    mu = compose_mu([event.mu for event in composition if isinstance(event, GaussianEvent)])
    pure = sorted((event.epsilon for event in composition if isinstance(event, PureEvent)), reverse=True)
    steps: dict[_Side, dict[tuple[float, float], float]] = {}
    for event in composition:
        if isinstance(event, SubsampledGaussianEvent) and event.steps and event.sampling_rate:
            kinds = steps.setdefault((event.adjacency, event.members, event.sampling), {})
            kind = (-event.noise_multiplier, event.sampling_rate)
            kinds[kind] = kinds.get(kind, 0.0) + event.steps
    sampled = {
        side: sorted(((*kind, number) for kind, number in kinds.items()), reverse=True)
        for side, kinds in steps.items()
    }
    return mu, pure, sampled


def _front(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows that no other one reaches in every number, in order of place; of equal rows the first.

    Beyond `_PEELED` of them some that others surpass may be among the result.
    """
    # A row that surpasses another precedes it in falling lexicographic order.
    left = np.lexsort(tuple(-column for column in rows.T[::-1]))
    found: list[int] = []
    while left.size and len(found) < _PEELED:
        found.append(int(left[0]))
        left = left[(rows[left] > rows[left[0]]).any(axis=1)]
    return np.sort(np.array([*found, *left], dtype=np.intp))


def _halves(table: _Table, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """These rows, at least two, parted at the middle of the number that varies most."""
    low, high = table.rows[rows].min(axis=0), table.rows[rows].max(axis=0)
    reach = np.maximum(np.maximum(abs(low), abs(high)), sys.float_info.min)
    column = int(np.argmax(high / reach - low / reach))
    ordered = rows[np.argsort(table.rows[rows, column], kind="stable")]
    return ordered[: rows.size // 2], ordered[rows.size // 2 :]


def foremost(parts: Sequence[Composition], kept: int, most: int) -> list[Composition]:
    """The parts in the worst union of `kept` parts, or at most `most` that bound them.

    Args:
        parts: None of them unbounded.
        kept: Number that act together.
        most: Number of parts at most; above it neighbours are replaced by the worst of them, as often as act
            together.
    """
    table = _table(parts)
    left, chosen = np.arange(len(parts)), np.zeros(0, dtype=np.intp)
    for _ in range(kept):
        layer = left[_front(table.rows[left])]
        chosen, left = np.concatenate([chosen, layer]), np.setdiff1d(left, layer)
    if chosen.size <= most:
        return [parts[number] for number in np.sort(chosen)]
    groups = [chosen]
    while len(groups) * 2 * kept <= most:
        groups = [half for group in groups for half in (_halves(table, group) if group.size > 1 else [group])]
    return [table.worst(group)[0] for group in groups for _ in range(kept)]


def largest(sets: Sequence[Sequence[Composition]], composed: Callable[[Composition], Total]) -> Total:
    """The largest total of one composition of each set together, or a bound above it.

    Args:
        sets: Of each, at least one composition; none is unbounded.
        composed: The total of a composition.

    Raises:
        DataError: No accountant takes what bounds them.
    """
    tables = []
    for each in sets:
        table = _table(list(dict.fromkeys(each)))
        tables.append(table.taken(_front(table.rows)))
    order = count()

    def bound(node: _Node) -> tuple[float, int, _Node, int, Total]:
        """Its total, and the set that is to be parted for a smaller one; -1: the total is attained."""
        worst = [table.worst(rows) for table, rows in zip(tables, node, strict=True)]
        attained = all(one for _, one in worst)
        parted = max(range(len(node)), key=lambda number: 0 if worst[number][1] else node[number].size)
        try:
            total = composed(tuple(event for part, _ in worst for event in part))
        except (PlanError, ValueError) as error:
            # A bound that no accountant takes may cover compositions that it takes one by one.
            if attained:
                raise
            total = Total(math.inf, None, str(error))
        return -total.epsilon, next(order), node, -1 if attained else parted, total

    heap = [bound([np.arange(len(table.compositions)) for table in tables])]
    for _ in range(limits.COMPOSITIONS):
        _, _, node, parted, total = heap[0]
        if parted < 0:
            return total
        heapq.heappop(heap)
        for half in _halves(tables[parted], node[parted]):
            heapq.heappush(heap, bound([*node[:parted], half, *node[parted + 1 :]]))
    total = heap[0][-1]
    if math.isinf(total.epsilon):
        raise DataError(f"what clients release differs too much to be bounded together: {total.method}")
    return Total(total.epsilon, total.mu, f"{total.method}, of neighbouring clients as the worst of them")
