"""The missing parts of a stopped run: its cells, and the command that resumes it."""

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
        """The guarantee that the method was to be asked for."""
        return Epsilon(self.epsilon, self.delta, self.adjacency, self.unit)


class Unfinished(Frozen):
    """The missing parts of a stopped run.

    Attributes:
        why: The cause of the stop, as a clause.
        command: The command that resumes the run, ready to be typed.
        cells: The missing cells, in the plan's order.
    """

    why: str
    command: str
    cells: tuple[MissingCell, ...]
