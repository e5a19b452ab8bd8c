"""What a run lacks that was stopped: its missing cells, and the command that goes on with it."""

from __future__ import annotations

from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.epsilon import Epsilon
from fedassay.support.types import Extended, Finite, Frozen


class MissingCell(Frozen):
    """A cell that a stopped run did not come to, by what names a cell."""

    method: str
    label: str
    epsilon: Extended
    delta: Finite
    adjacency: Adjacency
    unit: Unit = "record"
    seed: int | None = None

    @property
    def asked(self) -> Epsilon:
        """What the method was to be asked for."""
        return Epsilon(self.epsilon, self.delta, self.adjacency, self.unit)


class Unfinished(Frozen):
    """What a run lacks that was stopped.

    Attributes:
        why: What stopped it, as a clause.
        command: What goes on with it, as it can be typed.
        cells: Those that are missing, in the plan's order.
    """

    why: str
    command: str
    cells: tuple[MissingCell, ...]
