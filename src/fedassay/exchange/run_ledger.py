"""Total of all releases of a run together, under every relation and unit that its cells speak of.

Epsilons of unlike kinds do not add up. So nothing is added here: the releases that a record holds of every cell
are accounted under one relation at a time, and composed at once. A release that a relation does not cover makes
that total infinite, and is named.
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
from fedassay.support.epsilon import Epsilon, Kind
from fedassay.support.errors import FedassayError, PlanError


@dataclass(frozen=True)
class Together:
    """Total of several cells together, for one relation and unit.

    Attributes:
        kind: The relation, the unit and the delta of the whole.
        total: Infinite where a release is not covered; None where it could not be accounted.
        reason: Reason why it is infinite or missing, or how it was composed.
    """

    kind: Kind
    total: Epsilon | None
    reason: str

    @property
    def text(self) -> str:
        """The total as one sentence."""
        return f"Together they give away {self.clause}, at delta {self.kind.delta:g}."

    @property
    def clause(self) -> str:
        """The total, what it is of, and why it is infinite or how it was composed."""
        if self.total is None or not self.total.finite:
            return f"no finite epsilon ({self.kind.words}; {self.reason})"
        return f"epsilon {self.total.bare:.3g} ({self.kind.words}; {self.reason})"

    def as_dict(self) -> dict[str, str | float | None]:
        """The ledger as a JSON object."""
        epsilon: float | str | None = None if self.total is None else self.total.bare
        return {**asdict(self.kind), "epsilon": "inf" if epsilon == math.inf else epsilon, "reason": self.reason}


def together(cells: Sequence[CellRecord]) -> tuple[Together, ...]:
    """Total of some cells of a run on the same records, all of them published.

    Args:
        cells: With independent noise. The delta is the largest of theirs.

    Returns:
        One total for every relation and unit that a claim of theirs speaks of; none where fewer than two claim a
        finite epsilon, or where an older record does not hold what was released.
    """
    private = [cell for cell in cells if cell.claimed is not None and cell.claimed.finite]
    if len(private) < 2 or any(cell.released is None for cell in private):
        return ()
    held = tuple(cell.released.model_dump_json() for cell in private if cell.released is not None)
    delta = max(cell.delta for cell in private)
    kinds = dict.fromkeys(Kind(cell.adjacency, cell.unit, delta) for cell in private)
    return tuple(_total(held, kind) for kind in kinds)


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
def _total(held: tuple[str, ...], kind: Kind) -> Together:
    transcripts = [transcript_of(Released.model_validate_json(each)) for each in held]
    try:
        total = account_together(transcripts, kind.adjacency, kind.delta, kind.unit)
    except (FedassayError, ValueError) as error:
        return Together(kind, None, str(error))
    return Together(kind, Epsilon(total.epsilon, kind.delta, kind.adjacency, kind.unit), total.method)
