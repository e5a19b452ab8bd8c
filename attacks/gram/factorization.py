"""Individual non-negative vectors from their Gram matrix: F from F^T F and from sums over known groups.

The matrix B = F^T F of n vectors fixes F (n, d) up to one orthogonal matrix from the left: with B = G^T G, F = Q
G. Two constraints determine Q.

Sums A_c over groups c of n_c vectors (FedCGS's class sums) fix every group's mean. What is left is the
scatter within groups, B - sum_c A_c^T A_c / n_c = G_w^T G_w of rank n - C, and

    F = M + U R G_w,    R^T R = I,

M the group means in the rows of their members and U an orthonormal basis of the vectors that sum to zero in every
group. Features after a rectifier are non-negative and often exactly 0, so R is sought with M + U R G_w >= 0:
alternating projections between the non-negative matrices and the matrices of that form, onto which the projection
is an orthogonal Procrustes problem (completely positive factorization; Groetzner and Duer 2020, "A factorization
method for completely positive matrices", algorithm 1, there without the sums). Reflection in place of projection
and momentum take it from thousands of steps to hundreds, scaling every column of F to unit norm makes it converge
where it otherwise stalls.

With more records than their second moment has rank (more than features, n / d > 1, or repeated ones), R is tall;
`fedassay.attacks.gram.splitting` seeks it, and `fedassay.attacks.gram.polishing` finds the last digits. By
counting, that can succeed only while the non-zero entries of F are no more than the informative equations: those
of the upper triangle of B and of A over active columns that are not 0. No other limit lies at n = d.

Nothing proves that the factorization found is the true one. Instead, runs from independent random starts must end
in the same vectors; `Factors.expected_error` combines their agreement and the residual of the constraint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.attacks.gram.polishing import Equations, polish
from fedassay.attacks.gram.splitting import negative, split
from fedassay.exchange.gram import Gram, Size
from fedassay.support.types import Bools, Ints, Matrix

AGREED = 1e-6
"""Median relative distance at which two runs have found the same vectors, and no third one is started."""

_TOLERANCE = 1e-13
_ROUNDED = 1e-3  # runs that differ by less than rounding leaves agree, up to this residual
_PATIENCE = 150
_MOMENTUM = (0.5, 0.8)
_SMALLEST = 1e-12
_TALL_RESTARTS = 3
_MET = 1e-10
_ORTHOGONAL = 1e-7
"""Largest inner product of columns at which what the first order leaves, its square, is rounding."""

_LONGER = 2
"""Steps of splitting for one of alternating projections."""
_NEAR = 0.05
"""Residual above which the active set is not the right one and polishing is in vain."""


@dataclass(frozen=True)
class Factors:
    """Vectors found, group by group in the order of the groups; unordered within a group.

    Attributes:
        vectors: Shape (n, d), non-negative.
        labels: Label of the vector's group, shape (n,); -1 where groups could not be used.
        agreement: Relative distance of each vector to its counterpart in the next best run, shape (n,).
        residual: Norm of the negative part that is left, relative to the norm of the factor.
        unit: Unit roundoff of the transport.
        restarts: Runs made.
    """

    vectors: Matrix
    labels: Ints
    agreement: Matrix
    residual: float
    unit: float
    restarts: int

    @property
    def expected_error(self) -> Matrix:
        """Relative error to expect of each vector, from what can be seen without the truth, shape (n,)."""
        return np.maximum(self.agreement, max(self.residual, self.unit))


def factorize(
    gram: Gram, size: Size, rng: np.random.Generator, *, restarts: int = 6, iterations: int = 1500
) -> Factors:
    """Find non-negative vectors with the given second moment and group sums.

    Args:
        gram: The statistics.
        size: Of `measure`; `obstacle` must have nothing to say.
        rng: Source of the random starts.
        restarts: Runs at most. Agreement between runs is how success shows: after a single one it is infinite.
        iterations: Projections in a run at most.
    """
    problem = _problem(gram, size)
    runs: list[tuple[float, Matrix]] = []
    agreement = np.full(size.total, np.inf)
    for number in range(min(restarts, _TALL_RESTARTS) if problem.tall else restarts):
        run = _split if problem.tall else _project
        runs.append(run(problem, rng, iterations, _MOMENTUM[number % len(_MOMENTUM)]))
        runs.sort(key=lambda run: run[0])
        if len(runs) > 1:
            first, second = (problem.unscaled(run[1]) for run in runs[:2])
            agreement = agreement_of(first, second, problem.groups)
            if np.median(agreement) < max(AGREED, min(runs[0][0], _ROUNDED)):
                break
            if problem.tall and runs[1][0] < _MET:
                break  # two solutions that differ: a third run cannot tell which one is true
    residual, best = runs[0]
    vectors = problem.unscaled(best)
    if size.noise > 0:
        vectors = _refined(vectors, problem, gram, size.noise)
    return Factors(vectors, problem.labels, agreement, residual, gram.unit, len(runs))


@dataclass(frozen=True)
class _Problem:
    """F = means + U R scatter with R^T R = I, in scaled columns; U R is sought as one, orthogonal to indicators.

    Attributes:
        means: Shape (n, k), k the columns that are used.
        grouped: Indicators of the groups as columns of norm one, shape (n, C); no column where sums are not known.
        scatter: Shape (m, k), m at most n - C.
        scale: Norm of each used column, shape (k,).
        used: Whether each column is used, shape (d,).
        rest: Every vector's value in the columns that are not used, shape (n, d).
        groups: Group of each vector, shape (n,).
        labels: Label of each vector, shape (n,).
    """

    means: Matrix
    grouped: Matrix
    scatter: Matrix
    scale: Matrix
    used: Bools
    rest: Matrix
    groups: Ints
    labels: Ints

    @property
    def tall(self) -> bool:
        """Whether there are more free directions than the scatter has rank."""
        return bool(len(self.means) - self.grouped.shape[1] > len(self.scatter) > 0)

    def nearest(self, factor: Matrix) -> Matrix:
        """The nearest matrix with these means and this scatter (Procrustes)."""
        return self._turned(factor @ self.scatter.T)

    def start(self, rng: np.random.Generator) -> Matrix:
        """A random matrix with these means and this scatter."""
        return self._turned(rng.standard_normal((len(self.means), len(self.scatter))))

    def _turned(self, like: Matrix) -> Matrix:
        """The matrix of the set M + U R G nearest to one of shape (n, d)."""
        centred = like - self.grouped @ (self.grouped.T @ like)
        return np.asarray(self.means + _polar(centred) @ self.scatter)

    def equations(self) -> Equations:
        """Second moment and sums in scaled columns."""
        present = np.unique(self.groups) if (self.labels >= 0).all() else np.zeros(0, np.int64)
        members = (present[:, None] == self.groups).astype(np.float64)
        second = self.means.T @ self.means + self.scatter.T @ self.scatter
        return Equations(second, members, members @ self.means)

    def unscaled(self, factor: Matrix) -> Matrix:
        """A scaled factor (n, k) as non-negative vectors (n, d)."""
        whole = self.rest.copy()
        whole[:, self.used] = factor * self.scale
        return np.maximum(whole, 0.0)


def _problem(gram: Gram, size: Size) -> _Problem:
    diagonal = np.diag(gram.second)
    if size.noise > 0:
        # Noise is equally strong in all columns: scaling the small ones up would only amplify it.
        used, scale = np.ones(len(diagonal), bool), np.ones(len(diagonal))
    else:
        used = diagonal > max(_SMALLEST, gram.unit**2) * diagonal.max()
        scale = np.sqrt(diagonal[used])
    present = np.flatnonzero(size.counts)
    counts = size.counts[present]
    second = gram.second[np.ix_(used, used)] / np.outer(scale, scale)
    groups = np.repeat(np.arange(len(counts)), counts) if counts.size else np.zeros(size.total, np.int64)
    labels, rest = np.full(size.total, -1), np.zeros((size.total, len(diagonal)))
    means, indicators = np.zeros((size.total, len(scale))), np.zeros((size.total, 0))
    if counts.size:
        assert gram.sums is not None
        per_group = gram.sums[present] / counts[:, None]
        labels, rest = gram.labels[present][groups], per_group[groups]
        scaled = per_group[:, used] / scale
        means, second = scaled[groups], second - (scaled.T * counts) @ scaled
        indicators = (groups[:, None] == np.arange(len(counts))) / np.sqrt(counts)
    values, vectors = np.linalg.eigh(second)
    free = size.total - indicators.shape[1]
    # With every count known, a rank below n - C is that of repeated or dependent vectors.
    kept = np.argsort(-values)[:free]
    kept = kept[values[kept] > len(values) * np.finfo(float).eps * max(float(values[-1]), 0.0)]
    scatter = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    return _Problem(means, indicators, scatter, scale, used, rest, groups, labels)


def _polar(matrix: Matrix) -> Matrix:
    """The nearest matrix with orthonormal columns, shape (n, m) with m at most n (Procrustes).

    With V the eigenvectors of M^T M, M V has orthogonal columns of lengths s; rounding leaves them, scaled to
    length one, at Z with Z^T Z = 1 + C. To first order in C, the nearest matrix is Z (1 - C / 2 + W) V^T with
    W_ij = C_ij (s_j - s_i) / (2 (s_i + s_j)): about half the time of a singular value decomposition, and as exact
    while C is small.
    """
    _, vectors = np.linalg.eigh(matrix.T @ matrix)
    turned = matrix @ vectors
    lengths = np.linalg.norm(turned, axis=0)
    if lengths.size and lengths.min() > 0:
        turned /= lengths
        off = turned.T @ turned - np.eye(len(lengths))
        if np.abs(off).max() < _ORTHOGONAL:
            skew = (lengths - lengths[:, None]) / (lengths + lengths[:, None])
            return np.asarray((turned + turned @ (off * (skew - 1) / 2)) @ vectors.T)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left @ right)


def _project(
    problem: _Problem, rng: np.random.Generator, iterations: int, momentum: float
) -> tuple[float, Matrix]:
    """One run from a random start: the best residual and its scaled factor."""
    if not len(problem.scatter):
        return negative(problem.means), problem.means
    factor = problem.start(rng)
    previous, best, residual, since = factor, factor, np.inf, 0
    for _ in range(iterations):
        ahead = factor + momentum * (factor - previous)
        previous = factor
        # |x| is the reflection of x at the non-negative orthant, x - 2 min(x, 0).
        factor = problem.nearest(np.abs(ahead))
        left = negative(factor)
        since = 0 if left < 0.99 * residual else since + 1
        if left < residual:
            residual, best = left, factor
        if residual < _TOLERANCE or since >= _PATIENCE:
            break
    return residual, best


def _split(problem: _Problem, rng: np.random.Generator, iterations: int, momentum: float) -> tuple[float, Matrix]:
    """One run where R is tall, from a random start; it takes no momentum."""
    residual, best = split(problem.start(rng), problem.nearest, _LONGER * iterations)
    if residual < _TOLERANCE or residual > _NEAR:
        return residual, best
    ends = [problem.nearest(each) for each in (best, polish(best, problem.equations()))]
    return min(((negative(end), end) for end in ends), key=lambda run: run[0])


def agreement_of(first: Matrix, second: Matrix, groups: Ints) -> Matrix:
    """Relative distance of each vector of `first` to its counterpart in `second`, matched within groups."""
    from scipy.optimize import linear_sum_assignment

    found = np.empty(len(first))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        norms = np.linalg.norm(first[rows], axis=1)
        apart = np.stack([np.linalg.norm(second[rows] - vector, axis=1) for vector in first[rows]])
        chosen = linear_sum_assignment(apart)[1]
        found[rows] = apart[np.arange(len(rows)), chosen] / np.maximum(norms, np.finfo(float).tiny)
    return found


def _refined(start: Matrix, problem: _Problem, gram: Gram, noise: float) -> Matrix:
    """Penalised maximum likelihood under Gaussian noise on second moment and sums, from `start`.

    Minimises |F^T F - B|^2 / 4 + |E F - A|^2 / 2 + noise * |F|_1 over F >= 0 (L-BFGS-B); the noise is white in
    the Frobenius norm. The penalty is worth a fifth to a half of the error on sparse features.
    """
    from scipy.optimize import minimize

    shape = start.shape
    indicators = np.zeros((0, shape[0]))
    sums = np.zeros((0, shape[1]))
    if gram.sums is not None and (problem.labels >= 0).all():
        present = np.array(
            [int(np.flatnonzero(gram.labels == label)[0]) for label in dict.fromkeys(problem.labels)]
        )
        indicators = (gram.labels[present][:, None] == problem.labels).astype(float)
        sums = gram.sums[present]

    def loss(flat: Matrix) -> tuple[float, Matrix]:
        factor = flat.reshape(shape)
        second, first = factor.T @ factor - gram.second, indicators @ factor - sums
        value = (second**2).sum() / 4 + (first**2).sum() / 2 + noise * factor.sum()
        return float(value), (factor @ second + indicators.T @ first + noise).ravel()

    bounds = [(0.0, None)] * start.size
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 300})
    return np.asarray(found.x, np.float64).reshape(shape)
