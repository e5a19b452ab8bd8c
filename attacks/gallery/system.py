"""The linear system of a gallery: the contribution of every candidate, and the message.

A part is a block of a message (`fedassay.exchange.linear`) with the candidates' vectors u beside it. Equations are
weighted as for generalised least squares. Noise and rounding have variance s^2 on every number. The sum of
`missing` records that are no candidates has `missing` times the covariance of a candidate's own numbers. In the
eigenbasis of the second moment of u with values l the variance is s^2 + missing l_a for sums. For products u_a u_b
it is (sqrt(2 missing) l_a + s) (sqrt(2 missing) l_b + s), which stays separable. Without either the weighting only
keeps the system well conditioned: without errors every invertible weighting has the same solution.

Where members are no candidates, the known mean of such records is subtracted first (`population`).

No matrix of equations is ever formed. With u weighted, the kernel of sums is u.u', that of products (u.u')^2, each
times [y = y'] where the block is by class; forward and backward products take O(N p) and O(N p^2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedassay.attacks.gallery.population import Known, vectors_of
from fedassay.exchange.blocks import LinearBlock
from fedassay.support.types import Images, Ints, Matrix

_FLOOR = 1e-4
"""Least eigenvalue of a candidate's numbers, relative to the largest."""
_SHRUNK = 0.1
"""Share of the mean eigenvalue of a population's numbers that is added to each, for fewer records than numbers."""
_TOGETHER = 2048


@dataclass(frozen=True, eq=False)
class Part:
    """A block with the candidates' vectors, both weighted.

    Attributes:
        rows: Vectors u, shape (N, p).
        labels: Index of the sum of each candidate, its class or a cell, shape (N,).
        power: 1 or 2.
        by_class: Whether there is a sum of each class or cell.
        total: `LinearBlock.total`, weighted.
        identity: Weighted identity (p, p) of norm 1; products are known up to a multiple of it; None: exactly.
        equations: Number of equations.
        rounded: Expected squared norm of rounding in transport in each sum of `total`, shape (Q,).
        mean: Mean that is subtracted from every candidate's own products, in the shape of `total`; None: none.
    """

    rows: Matrix
    labels: Ints
    power: int
    by_class: bool
    total: Matrix
    identity: Matrix | None
    equations: int
    rounded: Matrix
    mean: Matrix | None = None

    def forward(self, weights: Matrix) -> Matrix:
        """Return the sum of the candidates with weights (N,), in the shape of `total`."""
        if not self.by_class:
            found = self._free(self._sum(self.rows, weights))
            return found if self.mean is None else found - weights.sum() * self.mean
        found = np.zeros_like(self.total)
        for label in np.unique(self.labels):
            inside = self.labels == label
            found[label] = self._free(self._sum(self.rows[inside], weights[inside]))
            if self.mean is not None:
                found[label] -= weights[inside].sum() * self.mean[label]
        return found

    def backward(self, total: Matrix) -> Matrix:
        """Return inner products of every candidate's own sum with a total, shape (N,)."""
        found = self._uncentred(total)
        return found if self.mean is None else found - self._of_mean(total)

    def _uncentred(self, total: Matrix) -> Matrix:
        if not self.by_class:
            return self._inner(self.rows, total)
        found = np.zeros(len(self.rows), self.rows.dtype)
        for label in np.unique(self.labels):
            inside = self.labels == label
            found[inside] = self._inner(self.rows[inside], total[label])
        return found

    def _of_mean(self, total: Matrix) -> Matrix:
        """Return inner products of the subtracted mean of each candidate with a total, shape (N,) or ()."""
        assert self.mean is not None
        found = np.asarray((self.mean * self._free(total)).sum(axis=(-2, -1)))
        return np.asarray(found[self.labels] if self.by_class else found)

    def add_kernel(self, kernel: Matrix, chosen: Ints, others: Ints) -> None:
        """Add inner products of chosen candidates' sums with those of others to a matrix, in blocks of rows."""
        columns, theirs = self.rows[others], self.labels[others]
        aside = None if self.identity is None else self._along(columns)
        # (f - m) (g - m) = f g - f m - g m + m m; one half of m m goes to each of the two mixed terms.
        halved_mean = None if self.mean is None else self._uncentred(self.mean) - self._of_mean(self.mean) / 2
        for start in range(0, len(chosen), _TOGETHER):
            span = chosen[start : start + _TOGETHER]
            own = self.rows[span] @ columns.T
            if self.power == 2:
                own *= own
            if aside is not None:
                own -= self._along(self.rows[span])[:, None] * aside[None]
            if halved_mean is not None:
                own -= halved_mean[span, None] + halved_mean[others][None]
            if self.by_class:
                own *= self.labels[span, None] == theirs[None]
            kernel[start : start + _TOGETHER] += own

    def of_class(self, label: int, rows: Ints) -> Part:
        """Return the sum of one class, or cell, with its candidates."""
        own = replace(self, rows=self.rows[rows], labels=np.zeros(len(rows), np.int64))
        mean = None if self.mean is None else self.mean[label, None]
        return replace(own, total=self.total[label, None], rounded=self.rounded[label, None], mean=mean)

    def single(self) -> Part:
        """Return the part in float32, with a total of 0."""
        identity, mean = (None if each is None else _single(each) for each in (self.identity, self.mean))
        total = _single(np.zeros(self.total.shape))
        return replace(self, rows=_single(self.rows), total=total, identity=identity, mean=mean)

    def lengths(self) -> Matrix:
        """Return squared norms of every candidate's own sum, shape (N,)."""
        found = np.asarray((self.rows**2).sum(axis=1) ** self.power)
        if self.identity is not None:
            found = found - self._along(self.rows) ** 2
        return found if self.mean is None else found - 2 * self._uncentred(self.mean) + self._of_mean(self.mean)

    def _sum(self, rows: Matrix, weights: Matrix) -> Matrix:
        return np.asarray(rows.T @ weights if self.power == 1 else (rows * weights[:, None]).T @ rows)

    def _inner(self, rows: Matrix, total: Matrix) -> Matrix:
        if self.power == 1:
            return np.asarray(rows @ total)
        return np.asarray(np.einsum("ij,ij->i", rows @ self._free(total), rows))

    def _free(self, total: Matrix) -> Matrix:
        """Remove the part along the identity from totals (..., p, p)."""
        return _freed(total, self.identity)

    def _along(self, rows: Matrix) -> Matrix:
        assert self.identity is not None
        return np.asarray(np.einsum("ij,ij->i", rows @ self.identity, rows))


@dataclass(frozen=True, eq=False)
class System:
    """All parts of one sender's messages.

    Attributes:
        parts: The parts, at least one.
        labels: Labels of the candidates in the first part, shape (N,).
        noised: Whether Gaussian noise is declared on any part.
    """

    parts: tuple[Part, ...]
    labels: Ints
    noised: bool

    @property
    def size(self) -> int:
        """Number of candidates N."""
        return len(self.labels)

    @property
    def equations(self) -> int:
        """Number of equations: more candidates than these cannot all be distinguished."""
        return sum(part.equations for part in self.parts)

    @property
    def separate(self) -> bool:
        """Whether no equation ties classes, or cells, to each other."""
        return all(part.by_class and np.array_equal(part.labels, self.labels) for part in self.parts)

    def of_class(self, label: int, rows: Ints) -> System:
        """Return the system of one class, or cell, and its candidates; only where sums are `separate`."""
        return replace(
            self, parts=tuple(part.of_class(label, rows) for part in self.parts), labels=self.labels[rows]
        )

    def side(self) -> Matrix:
        """Return inner products of every candidate's sums with the message, shape (N,)."""
        return np.asarray(np.sum([part.backward(part.total) for part in self.parts], axis=0))

    def apply(self, weights: Matrix) -> Matrix:
        """Return the kernel times weights (N,)."""
        return np.asarray(np.sum([part.backward(part.forward(weights)) for part in self.parts], axis=0))

    def rest(self, weights: Matrix) -> Matrix:
        """Return inner products with the residual of weights (N,), more exact than by the kernel."""
        return np.asarray(
            np.sum([part.backward(part.total - part.forward(weights)) for part in self.parts], axis=0)
        )

    def left(self, weights: Matrix) -> float:
        """Return the squared norm of the residual of weights."""
        return float(self.left_by_sum(weights)[0].sum())

    def left_by_sum(self, weights: Matrix) -> tuple[Matrix, Matrix]:
        """Return squared norms of the residual of weights and of rounding, by class or cell, (Q,) each.

        Each is one number for the whole message, shape (1,), where its sums are not separate.
        """
        sums = max(len(part.rounded) for part in self.parts) if self.separate else 1
        left, rounded = np.zeros(sums), np.zeros(sums)
        for part in self.parts:
            squares = (part.total - part.forward(weights)) ** 2
            if self.separate:
                left[: len(squares)] += squares.reshape(len(squares), -1).sum(axis=1)
                rounded[: len(part.rounded)] += part.rounded
            else:
                left += squares.sum()
                rounded += part.rounded.sum()
        return left, rounded

    def kernel(self, chosen: Ints, others: Ints | None = None) -> Matrix:
        """Return inner products of some candidates' sums with those of others, or their own: (n, m) or (n, n)."""
        others = chosen if others is None else others
        found = np.zeros((len(chosen), len(others)))
        for part in self.parts:
            part.add_kernel(found, chosen, others)
        return found

    def single(self) -> System:
        """Return the system for products in float32."""
        return replace(self, parts=tuple(part.single() for part in self.parts))

    def lengths(self) -> Matrix:
        """Return squared norms of the candidates' sums, shape (N,)."""
        return np.asarray(np.sum([part.lengths() for part in self.parts], axis=0))


def _single(values: Matrix) -> Matrix:
    """Convert to float32, under the declared type of float64."""
    small: Any = values.astype(np.float32)
    return small  # type: ignore[no-any-return]


def system_of(
    blocks: Sequence[LinearBlock],
    features: Matrix,
    images: Images,
    labels: Ints,
    *,
    missing: float,
    known: Sequence[Known | None] | None = None,
) -> System | None:
    """Build the system of a message; None where no block is of vectors that the candidates have.

    Args:
        blocks: Blocks of the message.
        features: Features of candidates as they enter the statistics, shape (N, d).
        images: Their images, shape (N, H, W, channels).
        labels: Their labels, shape (N,).
        missing: Expected number of the sender's records that are no candidates.
        known: Knowledge of missing records, block by block; None: none.
    """
    noised = any(bool((block.noise > 0).any()) for block in blocks)
    every = {block.cells for block in blocks}
    places = {cells: labels if cells is None else cells.of(features, labels) for cells in every}
    parts = []
    for block, there in zip(blocks, known or [None] * len(blocks), strict=True):
        # Without noise a block needs an error of any size, for its weights to be finite.
        unknown = missing if (block.noise > 0).all() else max(1.0, missing)
        vectors = vectors_of(block, features, images)
        if vectors is not None and vectors.shape[1] == block.width and len(vectors):
            parts.append(_part(block, vectors, places[block.cells], unknown, there))
    return System(tuple(parts), parts[0].labels, noised) if parts else None


def _part(block: LinearBlock, vectors: Matrix, labels: Ints, missing: float, known: Known | None) -> Part:
    classes = len(block.total) if block.by_class else 1
    error, unknown = float(np.sqrt(np.mean(block.error**2))), missing / classes
    if block.power == 1:
        total = block.total
        if known is not None:
            means = known.means()
            places, others = (labels, known.labels) if block.by_class else (0, 0)
            vectors, known = vectors - means[places], replace(known, rows=known.rows - means[others])
            total = total - (known.counts[:, None] * means).reshape(total.shape)
        values, basis = _spread(vectors, known)
        transform = basis / np.sqrt(error**2 + unknown * values)
        rounded = block.rounding**2 * float((transform**2).sum())
        return Part(
            vectors @ transform, labels, 1, block.by_class, total @ transform, None, block.equations, rounded
        )
    values, basis = _spread(vectors, known)
    transform = basis / np.sqrt(error + np.sqrt(2 * unknown) * values)
    rounded = block.rounding**2 * float((transform**2).sum()) ** 2
    total = transform.T @ block.total @ transform
    identity = mean = None
    if block.free_ridge:
        identity = transform.T @ transform
        identity = identity / np.linalg.norm(identity)
        total = _freed(total, identity)
    if known is not None:
        means = _freed(known.moments(transform), identity)
        total = total - (known.counts[:, None, None] * means).reshape(total.shape)
        mean = means.reshape(total.shape)
    return Part(vectors @ transform, labels, 2, block.by_class, total, identity, block.equations, rounded, mean)


def _spread(vectors: Matrix, known: Known | None) -> tuple[Matrix, Matrix]:
    """Return eigenvalues and eigenvectors of the second moment of a population, or else of the candidates."""
    rows = vectors if known is None else known.rows
    values, basis = np.linalg.eigh(rows.T @ rows / len(rows))
    if known is None:
        return np.maximum(values, _FLOOR * max(float(values[-1]), 1e-300)), basis
    values = np.maximum(values, 0.0)
    return values + max(_SHRUNK * float(values.mean()), 1e-300), basis


def _freed(total: Matrix, identity: Matrix | None) -> Matrix:
    """Remove the part along an identity from totals (..., p, p)."""
    if identity is None:
        return total
    return np.asarray(total - (total * identity).sum(axis=(-2, -1), keepdims=True) * identity)
