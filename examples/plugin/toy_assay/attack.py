"""An attack of another package.

Assumes counts. A null result does not mean that sums of more records hide them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts
from fedassay.contracts.registry import register
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.view import View
from fedassay.support.errors import NothingToReadError
from fedassay.support.types import Parameters


@register("attack", "toy_alone")
class ToyAlone(Parameters):
    """Takes the sum of a class of one record for that record's feature."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("vectors",),
        reads=(("class_counts", "class_sums"),),
        cost=lambda given, sizes, load: 0.1 * load.cells,
    )

    most: int = 1
    """Records of a class at most."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Vectors named `toy_alone`.

        Raises:
            NothingToReadError: No message holds counts and sums.
        """
        vectors, labels, senders = [], [], []
        told = False
        for message in view.from_clients():
            counts, sums = message.of_kind("class_counts"), message.of_kind("class_sums")
            if counts is None or sums is None:
                continue
            told = True
            for row in np.flatnonzero((counts > 0) & (counts <= self.most)):
                vectors.append(sums[row] / counts[row])
                labels.append(int(row))
                senders.append(message.sender)
        if not told:
            raise NothingToReadError("no message holds counts and sums of classes")
        if not vectors:
            return AttackResult("toy_alone")
        source = VectorSource(
            "toy_alone",
            np.asarray(vectors, np.float32),
            np.asarray(labels, np.int64),
            tuple(senders),
            np.arange(len(vectors)),
        )
        return AttackResult("toy_alone", vectors=(source,))
