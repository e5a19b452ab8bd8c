"""Members that no candidate stands for: how many records are in each sum, and what such records are like.

Of a missing record the attacker knows the mean and the spread, since it is as the attacker's own records and the
candidates are. Where a message says how many records each of its sums is of, the mean is taken off every candidate
and, as often as there are records, off the message. What missing records add is then their spread alone, however
many they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.blocks import LinearBlock, OfImages
from fedassay.exchange.spectra import halved, magnitudes
from fedassay.support.types import Floats, Images, Ints

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Population:
    """The attacker's own records and the candidates.

    Attributes:
        features: As the statistics are of them, shape (M, d).
        images: Shape (M, H, W, channels).
        labels: Shape (M,).
        sizes: Records of each class that the sender is known to have, shape (C,); None: its message may say it.
    """

    features: Matrix
    images: Images
    labels: Ints
    sizes: Ints | None = None


@dataclass(frozen=True, eq=False)
class Known:
    """What a block would have of records as those of a population.

    Attributes:
        rows: Their vectors, shape (M, p).
        labels: The sum that each is in, shape (M,); all 0 where there is one sum.
        counts: Records in each sum of the block, shape (Q,).
    """

    rows: Matrix
    labels: Ints
    counts: Matrix

    def means(self) -> Matrix:
        """The mean vector in each sum, shape (Q, p); 0 where no record is in it."""
        found = np.zeros((len(self.counts), self.rows.shape[1]))
        for label in np.unique(self.labels):
            found[label] = self.rows[self.labels == label].mean(axis=0)
        return found

    def moments(self, transform: Matrix) -> Matrix:
        """The mean product u u^T in each sum of transformed vectors, shape (Q, p, p)."""
        found = np.zeros((len(self.counts), transform.shape[1], transform.shape[1]))
        for label in np.unique(self.labels):
            rows = self.rows[self.labels == label] @ transform
            found[label] = rows.T @ rows / len(rows)
        return found


def known_of(block: LinearBlock, blocks: Sequence[LinearBlock], population: Population) -> Known | None:
    """What a block would have of a population; None where nothing says how many records are in its sums.

    Args:
        block: The block.
        blocks: All of the message, one of which may be its counts.
        population: Records of which at least one is in each sum that is spoken of.
    """
    said = [
        each.total[:, 0] for each in blocks if each.of == "ones" and each.by_class and each.cells is block.cells
    ]
    if block.cells is None and population.sizes is not None:
        said = [population.sizes.astype(np.float64)]
    rows = vectors_of(block, population.features, population.images)
    if not said or rows is None or rows.shape[1] != block.width:
        return None
    counts = said[0]
    if not block.by_class:
        return Known(rows, np.zeros(len(rows), np.int64), counts.sum(keepdims=True))
    labels = population.labels
    if block.cells is not None:
        labels = block.cells.of(population.features, labels)
    return Known(rows, labels, counts) if len(counts) == len(block.total) else None


def vectors_of(block: LinearBlock, features: Floats, images: Images) -> Matrix | None:
    """What a block sums up of each candidate, shape (N, p); None where that takes images and there are none."""
    if isinstance(block.of, OfImages):
        return np.asarray(block.of.vectors(images), np.float64)
    if callable(block.of):
        return np.asarray(block.of(features), np.float64)
    if block.of == "magnitudes":
        return halved(magnitudes(images)) if images.size else None
    rows = np.asarray(features, np.float64)
    if block.of == "ones":
        return np.ones((len(rows), 1))
    if block.of == "norms":
        return np.asarray((rows**2).sum(axis=1, keepdims=True))
    return np.asarray(rows**2) if block.of == "squares" else rows
