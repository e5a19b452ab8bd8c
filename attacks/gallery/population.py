"""Model of members that are no candidates: their number in each sum, and the distribution of such records.

The attacker knows mean and spread of a missing record, since it is distributed as the attacker's own records and
the candidates are. Where a message gives the number of records in each of its sums, the mean is subtracted from
every candidate and, as often as there are records, from the message. Missing records then add their spread alone,
whatever their number is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.exchange.blocks import LinearBlock, OfImages
from fedassay.exchange.spectra import halved, magnitudes
from fedassay.support.types import Floats, Images, Ints, Matrix


@dataclass(frozen=True, eq=False)
class Population:
    """The attacker's own records and the candidates.

    Attributes:
        features: Features as they enter the statistics, shape (M, d).
        images: Images, shape (M, H, W, channels).
        labels: Labels, shape (M,).
        sizes: Known number of the sender's records of each class, shape (C,); None: its message may give it.
    """

    features: Matrix
    images: Images
    labels: Ints
    sizes: Ints | None = None


@dataclass(frozen=True, eq=False)
class Known:
    """Vectors of a population as one block would sum them, and the number of records in each of its sums.

    Attributes:
        rows: Vectors of the population's records, shape (M, p).
        labels: Index of the sum of each record, shape (M,); all 0 where there is one sum.
        counts: Number of records in each sum of the block, shape (Q,).
    """

    rows: Matrix
    labels: Ints
    counts: Matrix

    def means(self) -> Matrix:
        """Return the mean vector of each sum, shape (Q, p); 0 where the population has no record in it."""
        found = np.zeros((len(self.counts), self.rows.shape[1]))
        for label in np.unique(self.labels):
            found[label] = self.rows[self.labels == label].mean(axis=0)
        return found

    def moments(self, transform: Matrix) -> Matrix:
        """Return the mean product u u^T of transformed vectors in each sum, shape (Q, p, p)."""
        found = np.zeros((len(self.counts), transform.shape[1], transform.shape[1]))
        for label in np.unique(self.labels):
            rows = self.rows[self.labels == label] @ transform
            found[label] = rows.T @ rows / len(rows)
        return found


def known_of(block: LinearBlock, blocks: Sequence[LinearBlock], population: Population) -> Known | None:
    """Return a population's vectors as a block sums them; None where the numbers of records are unknown.

    Args:
        block: The block.
        blocks: All blocks of the message, possibly its counts among them.
        population: Records, at least one in each sum of the block that has a record.
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
    """Return the vectors of candidates that a block sums, shape (N, p); None where they cannot be computed."""
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
