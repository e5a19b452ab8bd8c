"""Cells that differ only in their seed, put together.

Tables of findings keep every cell; the verdict strip and the plots speak of a method entry at one
epsilon and delta, over its seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedassay.records.record import CellRecord, Metric, RunRecord
from fedassay.records.unfinished import MissingCell
from fedassay.reports.words.numbers import exact, with_kind
from fedassay.support.epsilon import Epsilon, Kind, of_kind


@dataclass(frozen=True)
class Group:
    """A method entry at one epsilon and delta, over its seeds.

    Attributes:
        label: Unique label of the method entry in the plan.
        method: Registered name.
        asked: Of the method; infinite where nothing is noised.
        cells: One a seed, in the record's order.
    """

    label: str
    method: str
    asked: Epsilon
    cells: tuple[CellRecord, ...] = field(repr=False)

    @property
    def keys(self) -> tuple[str, str, float, float]:
        """Label, method, epsilon and delta, as files for programs hold them beside `Epsilon.standing`."""
        return self.label, self.method, self.asked.bare, self.asked.delta

    @property
    def name(self) -> str:
        """`label` with the method it stands for, where they differ."""
        return self.label if self.label == self.method else f"{self.label} ({self.method})"


def groups(record: RunRecord) -> tuple[Group, ...]:
    """The cells of a run by method entry, epsilon and delta, in the record's order."""
    found: dict[tuple[str, str, Epsilon], list[CellRecord]] = {}
    for cell in record.cells:
        found.setdefault((cell.label, cell.method, cell.asked), []).append(cell)
    return tuple(Group(*key, cells=tuple(cells)) for key, cells in found.items())


GROUP_KEYS = ("label", "method", "epsilon", "delta")
"""The names of `Group.keys`."""

KIND_KEYS = ("adjacency", "unit")
"""The names of `Epsilon.standing`."""


def by_kind(items: Iterable[Group]) -> dict[Kind, tuple[Group, ...]]:
    """Groups by what their guarantees are of: those of different kinds share no axis."""
    held = tuple(items)
    kinds = of_kind(group.asked for group in held)
    return {kind: tuple(group for group in held if group.asked.kind == kind) for kind in kinds}


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


def kinds_of(asked: Iterable[tuple[str, Epsilon]]) -> list[str]:
    """Clauses on the kinds of a table's or figure's epsilons, one a kind, with the names where kinds differ."""
    names: dict[str, dict[str, None]] = {}
    for name, epsilon in asked:
        if epsilon.finite:
            names.setdefault(epsilon.kind.words, {})[name] = None
    if len(names) < 2:
        return [f"ε: {words}" for words in names]
    return [f"ε of {', '.join(whose)}: {words}" for words, whose in names.items()]


def asked_words(asked: Epsilon) -> str:
    """Epsilon that a method was asked for, to follow `ε =`; an unbounded one is of no kind."""
    return with_kind(asked, exact) if asked.finite else "∞"


def cell_name(cell: CellRecord, delta: bool = False, seed: bool = False) -> str:
    """A cell in a few words, as errors and other formats print it.

    Args:
        cell: The cell.
        delta: Whether to add its delta.
        seed: Whether to add its seed.
    """
    name = f"{cell.label}, ε = {asked_words(cell.asked)}"
    if delta:
        name += f", δ = {exact(cell.delta)}"
    if seed:
        name += f", seed {'none' if cell.seed is None else cell.seed}"
    return name


def missing_name(cell: MissingCell) -> str:
    """A cell that a stopped run did not come to, in a few words."""
    return f"{cell.label}, ε = {asked_words(cell.asked)}, seed {'none' if cell.seed is None else cell.seed}"


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


_PARTS = {
    "method": "the method",
    "transcript": "keeping what was sent",
    "utility": "measuring accuracy",
    "accounting": "adding up the releases",
    "view": "what the adversary sees",
    "noise": "measuring the noise",
    "worker": "the process of this cell",
}
"""Parts of a cell that are neither an attack nor an audit."""


def part_in_words(stage: str) -> str:
    """The part of a cell that failed, by the name that its error gives it.

    Example:
        >>> part_in_words("message:message_algebra"), part_in_words("gallery"), part_in_words("method")
        ('the audit message of message algebra', 'gallery', 'the method')
    """
    audit, colon, attack = stage.replace("_", " ").partition(":")
    return f"the audit {audit} of {attack}" if colon else _PARTS.get(stage, audit)
