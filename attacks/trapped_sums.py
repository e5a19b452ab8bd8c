"""Single records out of sums of features, where the server has sent a backbone that keeps records apart.

The backbone (`fedassay.nets.cells`), or the body that FedLog's clients start from, gives every record 1 and some
coordinates in one of K cells, and 0 elsewhere. In a class sum the first number of a cell counts its records. Where
it is 1, the cell's numbers are the features of one record.

Where a second moment B is sent beside the sums, cells of two come apart as well. The known records are subtracted
from the block of such a cell, which leaves x x' + y y', and the sum of the cell is s = x + y. With r = x - y, 2 (x
x' + y y') - s s' = r r', and the largest eigenvector gives r but for its sign; the records are (s + r) / 2 and (s
- r) / 2. A block that has a second eigenvalue is not of two records, and is not read.

Source: none known to us.

Assumes that the server is malicious (`threat.server`), has images of its own, and roughly knows the number of
records of a class in a sum. Neither a gallery nor gradients are used, and nothing is learned.

A null result does not mean that sums are safe: cells may hold too many records each, which fewer records or a
wider backbone would change. Noised fields are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.statistics import field_of, noise_of, statistics_of
from fedassay.exchange.transcript import Message
from fedassay.exchange.view import View
from fedassay.nets.cells import Cells, Layout
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.types import Ints, Matrix, Parameters

NAME = "trapped_sums"


_WHOLE = 0.05
"""A count this far from a whole number is not one."""
_LEFT = 1e-3
"""Share of the largest eigenvalue that the others of a pair's block may have."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    return rate.AUDIT * load.cells / 10


@register("attack", "trapped_sums")
class TrappedSums(Parameters):
    """Read records that are alone, or two, in a cell of a malicious server's backbone."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("vectors",),
        needs=("malicious_server",),
        reads=("class_sums", ("class_means", "class_counts")),
        cost=_seconds,
    )

    noise: float = Field(default=0.01, gt=0)
    """Largest declared noise of a sum that is read."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Read every cell of every message.

        Returns:
            Vectors `trapped_sums`, features of single records; `in_cell` for each, how many records of its class
            its cell held: 1 or 2.

        Raises:
            NotRunError: The backbone has no cells: the server is honest.
            NothingToReadError: No sums of the backbone's features without noise.
        """
        backbone = knowledge.backbone
        if backbone is None or not isinstance(backbone.module, Cells):
            raise NotRunError(
                "the backbone keeps no records apart: only a malicious server's does (threat.server)"
            )
        layout, width = backbone.module.layout, backbone.width
        held: dict[tuple[str, int, bytes], _Record] = {}
        read = noised = 0
        for message in view.from_clients():
            sums = _sums(message, view.classes, width)
            if sums is None:
                continue
            if _noise(message) > self.noise:
                noised += 1
                continue
            read += 1
            for record in _records(sums, layout, message.sender):
                # A sender with unchanged features gives the same record in every round.
                held.setdefault((record.sender, record.label, record.features.tobytes()), record)
        if not read:
            why = f"the sums of {noised} messages are noised" if noised else "no message holds sums of features"
            raise NothingToReadError(f"nothing to read in cells: {why}")
        found = list(held.values())
        source = VectorSource(
            NAME,
            np.array([each.features for each in found], np.float32).reshape(-1, width),
            np.array([each.label for each in found], np.int64),
            tuple(each.sender for each in found),
            np.full(len(found), -1),
        )
        scores = {"in_cell": np.array([each.in_cell for each in found], np.float64)}
        return AttackResult(NAME, vectors=(source,), scores=scores)


@dataclass(frozen=True, eq=False)
class _Record:
    """A record that was read.

    Attributes:
        features: Shape (d,).
        label: Its class.
        sender: The sender of the sum.
        in_cell: Records of its class in its cell.
    """

    features: Matrix
    label: int
    sender: str
    in_cell: int


@dataclass(frozen=True, eq=False)
class _Sums:
    """The sums of a message.

    Attributes:
        order: Classes, shape (P,).
        sums: Class sums, shape (P, d).
        second: Second moment of all classes, shape (d, d), or None.
    """

    order: Ints
    sums: Matrix
    second: Matrix | None


def _sums(message: Message, classes: int, width: int) -> _Sums | None:
    own = statistics_of(message, classes)
    if own.sums is None or own.sums.shape[1] != width:
        return None
    return _Sums(own.order, own.sums, own.second)


def _noise(message: Message) -> float:
    fields = (field_of(message, kind) for kind in ("class_sums", "class_means", "class_counts", "second_moment"))
    return max((noise_of(each[1]) for each in fields if each is not None), default=0.0)


def _records(sums: _Sums, layout: Layout, sender: str) -> Iterator[_Record]:
    """Records that a message gives away."""
    by_cell, width = layout.split(sums.sums), sums.sums.shape[1]
    for cell in range(layout.cells):
        counts = by_cell[:, cell, 0]
        held = np.rint(counts).astype(np.int64)
        if (np.abs(counts - held) > _WHOLE).any():
            continue
        alone = by_cell[held == 1, cell]
        for numbers, label in zip(alone, sums.order[held == 1], strict=True):
            yield _Record(layout.joined(cell, numbers, width), int(label), sender, 1)
        pairs = np.flatnonzero(held > 1)
        if sums.second is None or len(pairs) != 1 or held[pairs[0]] != 2:
            continue
        block = slice(cell * layout.numbers, (cell + 1) * layout.numbers)
        rest = sums.second[block, block] - alone.T @ alone
        for numbers in _apart(rest, by_cell[pairs[0], cell]):
            yield _Record(layout.joined(cell, numbers, width), int(sums.order[pairs[0]]), sender, 2)


def _apart(block: Matrix, total: Matrix) -> tuple[Matrix, ...]:
    """Two records by the sum of their outer products and their sum; none where these are not of two."""
    values, vectors = np.linalg.eigh(2 * block - np.outer(total, total))
    if values[-1] <= 0 or np.abs(values[:-1]).max(initial=0) > _LEFT * values[-1]:
        return ()
    difference = np.sqrt(values[-1]) * vectors[:, -1]
    return (total + difference) / 2, (total - difference) / 2
