"""The inputs of a linear layer from its gradient, one record at a time.

A layer y = W x + b under a loss over n records has the gradients dW = sum_i d_i x_i^T and db = sum_i d_i: with a 1
appended to every input, G = [dW, db] = D^T X is of rank n while n is below its sides, and the rows of X span its
row space. With one record that span is its input. With several, a rectifier behind the layer leaves the columns of
D sparse: d_i is 0 at every unit that record i does not activate. So D are the sparsest vectors in the column space
of G, which are found one by one, and X = D^-1 G, its last entry 1, is exact: no image prior, no approximation.

Parallel rows of G belong to units that a single record alone activates, and are its input; these come back even
where the rest cannot be separated.

Source: one record: Phong et al. 2018, section 3, and Geiping et al. 2020, proposition 3.1. Several: Dimitrov et
al., "SPEAR: exact gradient inversion of batches in federated learning", 2024, which draws n - 1 rows and takes the
vector that is 0 there; the chance that all are right falls as 2^-n, and here sparse vectors are found by
reweighted least squares instead (Chartrand and Yin, "Iteratively reweighted algorithms for compressive sensing",
2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.attacks.gradients.targets import Layer
from fedassay.support.types import Bools, Matrix

Agrees = Callable[[Matrix], Bools]

_STARTS = 128
"""Starts that are followed together."""
_PATIENCE = 4
"""Rounds without a sparser basis after which none is expected."""
_STEPS = 40
"""Reweighted steps of a start."""
_ZERO = 20.0
"""Largest singular value that is 0, relative to the first one, in units of rounding."""
_ROUNDING = 4.0
"""Rounding errors of a gradient's entries, in units of its type."""
_SINGLE = float(np.finfo(np.float32).eps)
_FINEST = 1e-11
"""A finer type than this helps no more: the search does not go further."""
_NEAR = 1e-6
"""Error of the search in a product that is 0."""
_LARGEST_TOLERANCE = 1e-2
"""Largest relative rounding of a row that is used, as a share of its norm."""
_FAINT = 1e-3
"""Least norm of a row that is compared with others, as a share of the largest."""
_DEPENDENT = 1e-3
"""Distance from the span of others up to which a unit vector depends on them."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of a layer.

    Attributes:
        rank: Rank of the gradient: the number of records, where there are fewer than its sides.
        rows: One input each, shape (k, d); k is `rank` where all of them came back.
        complete: Whether all came back.
        strongest: The strongest direction of the row space as an input, shape (1, d), or (0, d): a mean of inputs,
            weighted with either sign.
        binned: Whether they are the records between thresholds (`fedassay.attacks.gradients.bins`).
    """

    rank: int
    rows: Matrix
    complete: bool
    strongest: Matrix
    binned: bool = False


def layer_inputs(
    weights: NDArray[np.floating],
    bias: NDArray[np.floating],
    rng: np.random.Generator,
    *,
    most: int,
    rounds: int,
    agrees: Agrees | None = None,
    rounding: float = 0.0,
) -> Inputs:
    """The inputs of a layer.

    Args:
        weights: dW, shape (H, d), up to any common factor.
        bias: db, shape (H,), with the same factor.
        rng: Starts.
        most: Records at most; above it only parallel rows are read.
        rounds: Rounds of starts at most.
        agrees: Returns whether each input (n, d) explains its inactive units, shape (n,): those that do not are
            left out. None: unknown.
        rounding: Of an entry, relative to the largest, where it is more than that of its type.
    """
    whole = np.concatenate([weights, bias[:, None]], axis=1)
    gradient = whole.astype(np.float64)
    # Sums of several float32 arrays come in float64, with the rounding of float32.
    unit = max(float(np.finfo(whole.dtype).eps), _SINGLE, rounding)
    alone = _single(gradient, unit)
    if alone is not None:
        strongest = _scaled(alone)
        return Inputs(1, strongest, len(strongest) == 1, strongest)
    left, values, right = np.linalg.svd(gradient, full_matrices=False)
    rank = rank_of(values, unit)
    unit = min(unit, float(values[rank] / values[0])) if 0 < rank < len(values) else unit
    if rank == 0:
        return Inputs(0, np.zeros((0, weights.shape[1])), True, np.zeros((0, weights.shape[1])))
    strongest = _scaled(right[:1])
    if rank == 1:
        return Inputs(1, strongest, len(strongest) == 1, strongest)
    rows = _Rows.of(left[:, :rank], _ROUNDING * max(unit, _FINEST) * float(values[0] / values[rank - 1]))
    found = np.zeros((0, weights.shape[1]))
    if rank <= min(most, min(gradient.shape) - 1) and len(rows.values) >= rank:
        # In white coordinates columns of D are closest to orthogonal, which is what the search does best on.
        found = _unmixed(rows, values[:rank, None] * right[:rank], rng, rounds, agrees)
    if len(found) < rank:
        found = max(found, _lone(left[:, :rank] * values[:rank], right[:rank], unit), key=len)
    return Inputs(rank, found, len(found) == rank, strongest)


def unit_agreement(rows: Matrix, layer: Layer) -> Matrix:
    """Share of a layer's units that each of its inputs (n, d) switches on or off as the gradient says, shape (n,).

    The gradient is taken apart into these inputs: a unit that one does not switch on has no part of it.
    """
    assert layer.weights is not None
    weights, bias = (np.asarray(part, np.float64) for part in layer.weights)
    known = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    whole = np.concatenate([layer.gradient, layer.bias_gradient[:, None]], axis=1).astype(np.float64)
    parts = np.linalg.lstsq(known.T, whole.T, rcond=None)[0]
    live = np.abs(whole).max(axis=1) > _FAINT * np.abs(whole).max(initial=0)
    silent = np.abs(parts[:, live]) < _FAINT * np.abs(parts).max(axis=1, keepdims=True)
    switched_on = rows @ weights[live].T + bias[live] > 0
    return np.asarray((silent != switched_on).mean(axis=1)) if live.any() else np.zeros(len(rows))


def rank_of(values: Matrix, unit: float) -> int:
    """Number of singular values, largest first, that are more than rounding of entries in a type of this unit."""
    return int((values > _ZERO * unit * values[0]).sum()) if values[0] > 0 else 0


def _single(gradient: Matrix, unit: float) -> Matrix | None:
    """The row space (1, d) of a gradient that one record leaves, found without a factorization; else None."""
    sizes = np.einsum("ij,ij->i", gradient, gradient)
    way = gradient[int(sizes.argmax())] if len(sizes) else np.zeros(0)
    if not way.any():
        return None
    # One step takes what rounding leaves of other directions in a row below the rounding of float64.
    way = gradient @ way @ gradient
    way = way / np.linalg.norm(way)
    along = gradient @ way
    # No singular value but the first is larger than what is left; its cancellation is far below this bound.
    left = float(sizes.sum() - along @ along)
    return way[None] if left <= (_ZERO * unit) ** 2 * float(along @ along) else None


def _scaled(rows: Matrix) -> Matrix:
    """Rows with their last entry made 1, which is left away; those that have none are left out."""
    last = rows[:, -1]
    usable = np.abs(last) > 1e-9 * np.linalg.norm(rows, axis=1)
    return np.asarray(rows[usable, :-1] / last[usable, None])


def _lone(left: Matrix, right: Matrix, unit: float) -> Matrix:
    """Inputs of records that are alone in two rows or more: those are parallel."""
    norms = np.linalg.norm(left, axis=1)
    rows = left[norms > _FAINT * norms.max()]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    # The cosine of two unit vectors a small angle a apart is 1 - a^2 / 2.
    alike = np.abs(rows @ rows.T) > 1 - 0.5 * (_ROUNDING * unit / _FAINT) ** 2 - 1e-14
    found, seen = [], np.zeros(len(rows), np.bool_)
    for row in range(len(rows)):
        if not seen[row] and alike[row].sum() > 1:
            found.append(rows[row] @ right)
        seen |= alike[row]
    return _scaled(np.array(found).reshape(-1, right.shape[1]))


@dataclass(frozen=True)
class _Rows:
    """Rows of a column space's basis, of norm 1.

    Attributes:
        values: Shape (R, n).
        tolerance: Remainder that rounding may leave of a row's product with a unit vector at which it is 0, shape
            (R,).
    """

    values: Matrix
    tolerance: Matrix

    @staticmethod
    def of(basis: Matrix, rounding: float) -> _Rows:
        """The rows (H, n) that rounding leaves something of."""
        norms = np.linalg.norm(basis, axis=1)
        kept = norms > rounding / _LARGEST_TOLERANCE
        return _Rows(basis[kept] / norms[kept, None], rounding / norms[kept])

    def zeros(self, vectors: Matrix, nearly: float = 0.0) -> Bools:
        """At which rows vectors (k, n) are 0, or nearly so, shape (k, R)."""
        return np.asarray(np.abs(vectors @ self.values.T) < np.maximum(self.tolerance, nearly))


def _unmixed(rows: _Rows, right: Matrix, rng: np.random.Generator, rounds: int, agrees: Agrees | None) -> Matrix:
    """Inputs by the sparsest basis of the column space: all of them, those that agree, or none."""
    size, since, most_zeros = len(right), 0, 0
    products = np.einsum("ri,rj->rij", rows.values, rows.values).reshape(len(rows.values), -1)
    basis, best = _Basis(rows), np.zeros((0, right.shape[1] - 1))
    for _ in range(rounds):
        basis.add(_followed(rows.values, products, rng))
        since = since + 1 if basis.zeros == most_zeros else 0
        most_zeros = basis.zeros
        if since > _PATIENCE:
            break
        if len(basis.vectors) < size or since:
            continue
        found = _scaled(np.asarray(np.linalg.solve(np.array(basis.vectors).T, right), np.float64))
        if len(found) < size:
            continue
        kept = np.ones(size, np.bool_) if agrees is None else agrees(found)
        best = found[kept] if agrees is None or kept.sum() > len(best) else best
        if agrees is not None and kept.all():
            break
    return best


def _followed(rows: Matrix, products: Matrix, rng: np.random.Generator) -> Matrix:
    """Vectors q, one a start, that leave few entries of `rows` q other than 0, shape (starts, n).

    The weighted sum of squares sum_r (rows_r q)^2 / ((rows_r q_last)^2 + e^2) over unit vectors, with e falling,
    tends to the number of entries that are not 0.
    """
    width = rows.shape[1]
    vectors = rng.normal(size=(_STARTS, width))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    softened = 0.3
    for _ in range(_STEPS):
        weights = 1 / ((vectors @ rows.T) ** 2 + softened**2)
        squares = (weights @ products).reshape(_STARTS, width, width)
        vectors = np.linalg.eigh(squares)[1][:, :, 0]
        softened = max(0.77 * softened, 1e-5)
    return vectors


class _Basis:
    """The sparsest linearly independent vectors seen so far.

    Taking vectors by their zeros, those that depend on earlier ones left out, gives the sparsest basis that can be
    made of them (the greedy choice in a matroid).
    """

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows
        self._kept: list[tuple[int, Matrix]] = []

    @property
    def vectors(self) -> list[Matrix]:
        """At most n of them, the sparsest first."""
        return [vector for _, vector in self._kept]

    @property
    def zeros(self) -> int:
        """Rows at which they are 0, in all."""
        return sum(count for count, _ in self._kept)

    def add(self, vectors: Matrix) -> None:
        """Offer vectors (k, n): each is refined on the rows at which it is 0."""
        width = vectors.shape[1]
        near = self._rows.zeros(vectors, _NEAR)
        for number in np.flatnonzero(near.sum(axis=1) >= width):
            own = np.linalg.svd(self._rows.values[near[number]])[2][-1]
            self._kept.append((int(self._rows.zeros(own[None]).sum()), own))
        chosen: list[tuple[int, Matrix]] = []
        spanned = np.zeros((0, width))
        for count, vector in sorted(self._kept, key=lambda pair: -pair[0]):
            rest = vector - spanned.T @ (spanned @ vector)
            if len(chosen) < width and np.linalg.norm(rest) > _DEPENDENT:
                spanned = np.concatenate([spanned, rest[None] / np.linalg.norm(rest)])
                chosen.append((count, vector))
        self._kept = chosen
