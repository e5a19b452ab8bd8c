"""Cells that differ only in their seed, put together.

Tables of findings keep every cell; the verdict strip and the plots speak of a method entry at one
epsilon and delta, over its seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedassay.records.record import CellRecord, Metric, RunRecord
from fedassay.reports.words.numbers import exact
from fedassay.support.adjacency import Adjacency


@dataclass(frozen=True)
class Group:
    """A method entry at one epsilon and delta, over its seeds.

    Attributes:
        label: Unique label of the method entry in the plan.
        method: Registered name.
        epsilon: Asked of the method; infinite where nothing is noised.
        delta: Likewise.
        cells: One a seed, in the record's order.
    """

    label: str
    method: str
    epsilon: float
    delta: float
    cells: tuple[CellRecord, ...] = field(repr=False)

    @property
    def standing(self) -> tuple[Adjacency, str]:
        """What its guarantee speaks of: the adjacency, and the unit of privacy."""
        return self.cells[0].adjacency, self.cells[0].unit

    @property
    def name(self) -> str:
        """`label` with the method it stands for, where they differ."""
        return self.label if self.label == self.method else f"{self.label} ({self.method})"


def groups(record: RunRecord) -> tuple[Group, ...]:
    """The cells of a run by method entry, epsilon and delta, in the record's order."""
    found: dict[tuple[str, str, float, float], list[CellRecord]] = {}
    for cell in record.cells:
        found.setdefault((cell.label, cell.method, cell.epsilon, cell.delta), []).append(cell)
    return tuple(Group(*key, cells=tuple(cells)) for key, cells in found.items())


def by_standing(items: Iterable[Group]) -> dict[tuple[Adjacency, str], tuple[Group, ...]]:
    """Groups by what their guarantees speak of, adjacency and unit: those of different ones share no axis."""
    found: dict[tuple[Adjacency, str], list[Group]] = {}
    for group in items:
        found.setdefault(group.standing, []).append(group)
    return {standing: tuple(alike) for standing, alike in found.items()}


def in_order(record: RunRecord) -> tuple[CellRecord, ...]:
    """All cells, those that differ only in their seed next to each other."""
    return tuple(cell for group in groups(record) for cell in group.cells)


def labels(record: RunRecord) -> tuple[str, ...]:
    """Method entries in the order of the record; the order gives colour and marker everywhere."""
    return tuple(dict.fromkeys(cell.label for cell in record.cells))


def several_deltas(record: RunRecord) -> bool:
    """Whether delta must be printed to tell cells apart."""
    return len({cell.delta for cell in record.cells}) > 1


def several_seeds(record: RunRecord) -> bool:
    """Whether the seed must be printed to tell cells apart."""
    return len({cell.seed for cell in record.cells}) > 1


def cell_name(cell: CellRecord, delta: bool = False, seed: bool = False) -> str:
    """A cell in a few words, as errors and other formats print it.

    Args:
        cell: The cell.
        delta: Whether to add its delta.
        seed: Whether to add its seed.
    """
    name = f"{cell.label}, ε = {exact(cell.epsilon)}"
    if delta:
        name += f", δ = {exact(cell.delta)}"
    if seed:
        name += f", seed {'none' if cell.seed is None else cell.seed}"
    return name


def over_seeds(cells: Iterable[CellRecord], read: Callable[[CellRecord], float | None], missing: str) -> Metric:
    """The mean of a figure over seeds, with its range; a single seed has no range.

    Args:
        cells: The cells of a group.
        read: Gives the figure of one cell, or None where it was not measured.
        missing: The reason printed where no cell has it.
    """
    values = [value for value in map(read, cells) if value is not None]
    if not values:
        return Metric(value=None, reason=missing)
    mean = sum(values) / len(values)
    if len(values) == 1:
        return Metric(value=mean)
    if min(values) == max(values):
        return Metric(value=values[0], n=len(values))
    return Metric(value=mean, low=min(values), high=max(values), n=len(values))
