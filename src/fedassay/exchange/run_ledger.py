"""What all releases of a run give away together, under every relation and unit that its cells speak of.

Epsilons of unlike kinds do not add up. So nothing is added here: the releases that a record holds of every cell
are accounted under one relation at a time, and composed at once. What a relation does not cover makes that total
infinite, and the release that does is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from fedassay.exchange.ledger import account_together
from fedassay.exchange.recount import transcript_of
from fedassay.records.basis import Released
from fedassay.records.record import CellRecord, RunRecord
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.errors import FedassayError, PlanError


@dataclass(frozen=True)
class Together:
    """What several cells give away together, for one relation and unit.

    Attributes:
        adjacency: The relation.
        unit: Whose privacy.
        delta: Of the whole.
        epsilon: Infinite where a release is not covered; None where nobody could add it up.
        reason: Why it is infinite or missing, or how it was composed.
    """

    adjacency: Adjacency
    unit: Unit
    delta: float
    epsilon: float | None
    reason: str

    @property
    def text(self) -> str:
        """One sentence."""
        kind = f"per {self.unit} under {self.adjacency}"
        if self.epsilon is None or math.isinf(self.epsilon):
            return f"Together they give away no finite epsilon {kind}: {self.reason}."
        return (
            f"Together they give away epsilon {self.epsilon:.3g} {kind}, at delta {self.delta:g} ({self.reason})."
        )

    def as_dict(self) -> dict[str, str | float | None]:
        """The same for programs."""
        infinite = self.epsilon is not None and math.isinf(self.epsilon)
        return {**asdict(self), "epsilon": "inf" if infinite else self.epsilon}


def together(cells: Sequence[CellRecord]) -> tuple[Together, ...]:
    """What some cells of a run on the same records give away together, all of them published.

    Args:
        cells: With independent noise. The delta is the largest of theirs.

    Returns:
        One total for every relation and unit that a claim of theirs speaks of; none where fewer than two claim a
        finite epsilon, or where an older record does not hold what was released.
    """
    private = [cell for cell in cells if math.isfinite(cell.privacy.claimed or math.inf)]
    if len(private) < 2 or any(cell.released is None for cell in private):
        return ()
    held = tuple(cell.released.model_dump_json() for cell in private if cell.released is not None)
    delta = max(cell.delta for cell in private)
    kinds = dict.fromkeys((cell.adjacency, cell.unit) for cell in private)
    return tuple(_total(held, adjacency, unit, delta) for adjacency, unit in kinds)


def chosen(record: RunRecord, names: Sequence[str]) -> tuple[CellRecord, ...]:
    """The cells of these keys or labels, all of them without names.

    Raises:
        PlanError: There is no such cell.
    """
    known = [name for cell in record.cells for name in (cell.key, cell.label) if name]
    for name in names:
        if name not in known:
            raise PlanError(f"--cells {name}: no such cell; allowed: {', '.join(dict.fromkeys(known))}")
    return tuple(cell for cell in record.cells if not names or cell.key in names or cell.label in names)


@lru_cache(maxsize=64)
def _total(held: tuple[str, ...], adjacency: Adjacency, unit: Unit, delta: float) -> Together:
    transcripts = [transcript_of(Released.model_validate_json(each)) for each in held]
    try:
        total = account_together(transcripts, adjacency, delta, unit)
    except (FedassayError, ValueError) as error:
        return Together(adjacency, unit, delta, None, str(error))
    return Together(adjacency, unit, delta, total.epsilon, total.method)
