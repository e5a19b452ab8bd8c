"""Records behind random Fourier features, exactly, from their Gram matrix and sum.

A linear map of dense features leaves a rotation, since rotated vectors are maps of features as well. Random
Fourier features do not: z(x) = sqrt(2 / D) cos(R^T x + c) moves on a surface of as many dimensions as x, and B and
the sum t say in which flat the records' z lie, the n - 1 dimensions of scatter around t / n. Where D is more than
n - 1 and the width of x together, surface and flat meet in points alone, and the records are among these. So

    minimise over x the squared distance of z(x) from the flat

by Levenberg-Marquardt steps from the attacker's own features that are nearest to it. A distance of 0 is a record.
It is taken off B and t, which leaves a smaller flat, until none is left. No rotation is searched, and neither
zeros nor signs matter. A record's class is c where A_c B^+ z is 1: that number is 1 in its own class and 0 in
others.

Source: this project.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.attacks.gram.factorization import Factors
from fedassay.data.records import Records
from fedassay.exchange.gram import Gram, Size
from fedassay.exchange.public_map import PublicMap, public_map
from fedassay.exchange.view import View
from fedassay.support.types import Ints, Matrix

_STARTS = 24
"""Own features tried for each record at most."""
_STEPS = 40
_SLOW, _PATIENCE = 0.97, 4
"""A descent is given up after so many steps in a row that leave so much of the squared distance."""
_MET = 1e-6
"""Distance from the flat, relative to the record, below which a point is in it; rounding may widen it."""
_LOOSE = 0.01


@dataclass(frozen=True)
class _Flat:
    """All points that mixtures of the records, with weights that add up to one, can be.

    Attributes:
        mean: Shape (d,).
        basis: Orthonormal rows, shape (n - 1, d).
    """

    mean: Matrix
    basis: Matrix

    def away(self, rows: Matrix) -> Matrix:
        """Residuals of points (m, d) from it, shape (m, d)."""
        apart = rows - self.mean
        return np.asarray(apart - (apart @ self.basis.T) @ self.basis)


@dataclass(frozen=True, eq=False)
class _Surface:
    """Everything that features can be mapped to.

    Attributes:
        known: The public map, with phases.
        live: Features that vary among the attacker's, shape (k,).
        constant: Whether a last feature 1 is appended.
        nonnegative: Whether the attacker's features are.
    """

    known: PublicMap
    live: Ints
    constant: bool
    nonnegative: bool

    def points(self, features: Matrix) -> Matrix:
        """Features (m, w) as they are summed up, shape (m, d)."""
        rows = self.known(features)
        return np.concatenate([rows, np.ones((len(rows), 1))], axis=1) if self.constant else rows

    def slope(self, features: Matrix) -> Matrix:
        """Derivative of a point by its live features (w,), shape (d, k)."""
        matrix, phases = self.known.matrix.astype(np.float64), self.known.phases
        assert phases is not None
        heights = -np.sqrt(2 / len(phases)) * np.sin(features @ matrix + phases)
        found = heights[:, None] * matrix[self.live].T
        return np.concatenate([found, np.zeros((1, len(self.live)))]) if self.constant else found

    def descend(self, start: Matrix, flat: _Flat) -> tuple[float, Matrix]:
        """Distance from the flat, and the features (w,), at the end of one descent (Marquardt 1963)."""
        features, damping, slow = start.copy(), 1e-3, 0
        apart = flat.away(self.points(features[None]))[0]
        for _ in range(_STEPS):
            slope = self.slope(features)
            slope -= flat.basis.T @ (flat.basis @ slope)
            square, pull = slope.T @ slope, slope.T @ apart
            square[np.diag_indices_from(square)] += damping * max(np.trace(square) / len(square), 1e-300)
            tried = features.copy()
            tried[self.live] -= np.linalg.solve(square, pull)
            if self.nonnegative:
                tried = np.maximum(tried, 0.0)
            ahead = flat.away(self.points(tried[None]))[0]
            if ahead @ ahead < apart @ apart:
                slow = slow + 1 if ahead @ ahead > _SLOW * (apart @ apart) else 0
                features, apart, damping = tried, ahead, max(damping / 5, 1e-9)
            else:
                damping *= 4
            if slow == _PATIENCE or damping > 1e6 or apart @ apart < 1e-28:
                break
        return float(np.linalg.norm(apart)), features


def through_map(gram: Gram, size: Size, view: View, own: Records | None) -> Factors | None:
    """The vectors that random Fourier features with this second moment and these sums are, as many as are found.

    Args:
        gram: With sums.
        size: Of `measure`.
        view: View that makes the map known.
        own: The attacker's records.

    Returns:
        None where there is no such map, no sum, too few of its columns, noise, or nothing is found.
    """
    if own is None or not len(own) or gram.sums is None or size.noise > 0 or size.total != size.rank:
        return None
    features = np.asarray(own.features, np.float64)
    known = public_map(view, features.shape[1])
    if known is None or known.phases is None or len(gram.second) - len(known.phases) not in (0, 1):
        return None
    live = np.flatnonzero(features.std(axis=0) > 0)
    if size.total - 1 + len(live) >= len(known.phases):
        return None
    surface = _Surface(known, live, len(gram.second) > len(known.phases), bool(features.min(initial=0.0) >= 0))
    vectors, away = _all(gram, size, surface, features)
    if not len(vectors):
        return None
    return Factors(vectors, _labels(gram, vectors), away, 0.0, gram.unit, _STARTS)


def _all(gram: Gram, size: Size, surface: _Surface, features: Matrix) -> tuple[Matrix, Matrix]:
    """Records that are found, one after the other, and their relative distances from the flat."""
    assert gram.sums is not None
    span = np.linalg.eigh(gram.second)[1][:, len(gram.second) - size.total :].T
    second, total = span @ gram.second @ span.T, span @ gram.sums.sum(axis=0)
    points, found, away = surface.points(features), [], []
    for left in range(size.total, 0, -1):
        flat, certain = _flat(second, total, left, span)
        met = min(_LOOSE, max(_MET, 10 * size.edge / certain))
        order = np.argsort((flat.away(points) ** 2).sum(axis=1))[:_STARTS]
        ends = (surface.descend(features[start], flat) for start in order)
        length = float(np.sqrt(np.trace(second) / left))
        end = next(((far, end) for far, end in ends if far < met * length), None)
        if end is None:
            break
        point = surface.points(end[1][None])[0]
        found.append(point)
        away.append(end[0] / float(np.linalg.norm(point)))
        within = span @ point
        second, total = second - np.outer(within, within), total - within
    return np.array(found).reshape(-1, len(gram.second)), np.array(away)


def _flat(second: Matrix, total: Matrix, count: int, span: Matrix) -> tuple[_Flat, float]:
    """The flat of records given in coordinates of `span` (n, d), and the least eigenvalue that it rests on."""
    scatter = second - np.outer(total, total) / count
    values, vectors = np.linalg.eigh((scatter + scatter.T) / 2)
    kept = slice(len(values) - (count - 1), len(values))
    least = float(values[kept].min(initial=np.inf))
    return _Flat(total / count @ span, vectors[:, kept].T @ span), max(
        least if np.isfinite(least) else 1.0, 1e-300
    )


def _labels(gram: Gram, vectors: Matrix) -> Ints:
    """The class of each vector, shape (n,)."""
    assert gram.sums is not None
    values, basis = np.linalg.eigh(gram.second)
    inverse = np.where(values > 1e-12 * values[-1], 1 / np.maximum(values, 1e-300), 0.0)
    shares = gram.sums @ (basis * inverse) @ (basis.T @ vectors.T)
    return np.asarray(gram.labels[shares.argmax(axis=0)], np.int64)
