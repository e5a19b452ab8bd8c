"""Dense and signed vectors from their Gram matrix and their sum, by an attacker with vectors of its own.

Without zeros nothing in B = F^T F pins down the orthogonal matrix between F and a square root of B. What does is
that features are made of independent parts: in a basis of independent components of the attacker's own features,
the coordinates of a true feature follow peaked, heavy-tailed distributions, and those of a mixture of features do
not. With the sum t of all known, F = 1 t / n + U R G, R orthogonal, and R is sought that maximises

    sum over records and components of log p_j(s_ij),    s = W (f - mean),

W from FastICA on the attacker's features and p_j the smoothed histogram of its own coordinate j, by ascent along
geodesics (Cayley steps) from random starts. Independent components recover single inputs from gradients of batches
in Kariyappa et al. 2023, "Cocktail Party Attack" (ICML, arXiv 2209.05578), which this follows, with the rotation
searched against densities of the attacker's in place of the batch's own statistics.

Starts that end in the same vectors say here that the likelihood has one peak, and not that the peak is the truth.
So the error to expect is that at which clients of the same size come back which the attacker makes of its own
features, kept out of the basis.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from fedassay.attacks.gram.factorization import Factors, agreement_of
from fedassay.data.records import Records
from fedassay.exchange.gram import Gram, Size
from fedassay.exchange.public_map import as_summed
from fedassay.exchange.view import View
from fedassay.support.types import Ints, Matrix

PER_COMPONENT = 22
"""Vectors of the attacker's for one component; from fewer of them FastICA does not settle (measured at 5,600)."""

MOST = 64
"""Vectors beyond which no rotation is sought: of 16 the median is about half as far off as the nearest known
one."""

LEAST = 10 * PER_COMPONENT
"""Vectors of the attacker's without which no basis is sought."""

_EDGE, _BINS, _WIDTH, _FLOOR = 12.0, 241, 3.0, 1e-5
_STARTS, _STEPS, _SMALLEST = 8, 400, 1e-5
_ICA_STEPS, _ICA_TOLERANCE = 200, 1e-3
_KEPT_OUT, _SIMULATED = 0.1, 3

_known: dict[tuple[bytes, int], Components] = {}
"""The last bases, by the features that they were made of: one attacker attacks many messages and controls."""


@dataclass(frozen=True)
class Components:
    """Independent components of the attacker's features, and how each is distributed.

    Attributes:
        unmixing: W, shape (k, d).
        mean: Shape (d,).
        densities: Log density of each component over a grid from -12 to 12, shape (k, 241).
        others: Features of the attacker's that the basis was not made of, shape (r, d).
    """

    unmixing: Matrix
    mean: Matrix
    densities: Matrix
    others: Matrix

    def likelihood(self, coordinates: Matrix) -> tuple[float, Matrix]:
        """Sum of log densities of (n, k) coordinates and its gradient."""
        step = 2 * _EDGE / (_BINS - 1)
        along = np.clip((coordinates + _EDGE) / step, 0, _BINS - 1.001)
        left = along.astype(np.int64)
        which = np.arange(len(self.densities))
        low, high = self.densities[which, left], self.densities[which, left + 1]
        return float((low + (high - low) * (along - left)).sum()), (high - low) / step


def own_features(view: View, own: Records | None, width: int) -> Matrix | None:
    """The attacker's features (m, width) as clients sum theirs up, or None where it has too few or cannot tell.

    A map that the server made public is applied to them.
    """
    return None if own is None or len(own) < LEAST else as_summed(view, own.features, width)


def components_of(features: Matrix, seed: int) -> Components:
    """Independent components of the attacker's features (m, d), one for every `PER_COMPONENT` of them at most."""
    key = (sha256(features.tobytes()).digest(), seed)
    if key not in _known:
        if len(_known) > 1:
            _known.clear()
        _known[key] = _components(features, seed)
    return _known[key]


def _components(features: Matrix, seed: int) -> Components:
    from scipy.ndimage import gaussian_filter1d
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    order = np.random.default_rng(seed).permutation(len(features))
    cut = round(_KEPT_OUT * len(features))
    others, features = features[order[:cut]], features[order[cut:]]
    live = int((features.std(axis=0) > 1e-9 * np.abs(features).max(initial=0.0)).sum())
    number = max(2, min(live, len(features) // PER_COMPONENT))
    ica = FastICA(number, whiten="unit-variance", max_iter=_ICA_STEPS, tol=_ICA_TOLERANCE, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a poor basis shows in clients of its own
        own = np.asarray(ica.fit_transform(features.astype(np.float32)), np.float64)
    half = _EDGE / (_BINS - 1)
    ends = (-_EDGE - half, _EDGE + half)
    inside = np.clip(own, -_EDGE, _EDGE)
    counted = np.stack([np.histogram(column, _BINS, ends)[0] for column in inside.T]).astype(np.float64)
    smooth = gaussian_filter1d(counted, _WIDTH, axis=1, mode="nearest") / (len(own) * 2 * half)
    unmixing, mean = np.asarray(ica.components_, np.float64), np.asarray(ica.mean_, np.float64)
    return Components(unmixing, mean, np.log(smooth + _FLOOR), others)


def turnable(gram: Gram, size: Size) -> bool:
    """Whether only a rotation is left, of few enough vectors: without noise, and no more than the rank says."""
    groups = int((size.counts > 0).sum()) if size.counts.size else int(gram.sums is not None)
    return size.noise == 0 and 1 < size.total <= MOST and size.total - groups <= size.rank


def rotated(gram: Gram, size: Size, components: Components, rng: np.random.Generator) -> Factors:
    """`rotate`, with the error to expect of it from clients made of the attacker's own features."""
    found, own = rotate(gram, size, components, rng), []
    for _ in range(_SIMULATED):
        rows = components.others[rng.choice(len(components.others), size.total)]
        counts = size.counts[size.counts > 0] if size.counts.size else np.array([size.total])
        groups = np.repeat(np.arange(len(counts)), counts)
        sums = None if gram.sums is None else np.stack([rows[groups == g].sum(axis=0) for g in range(len(counts))])
        labels = np.arange(len(counts))
        alike = Gram(rows.T @ rows, sums, counts.astype(np.float64), labels, gram.unit)
        again = rotate(alike, replace(size, counts=counts if sums is not None else size.counts), components, rng)
        own.append(agreement_of(rows, again.vectors, groups if sums is not None else groups * 0))
    expected = float(np.median(np.concatenate(own)))
    return replace(found, agreement=np.maximum(found.agreement, expected))


def rotate(gram: Gram, size: Size, components: Components, rng: np.random.Generator) -> Factors:
    """The vectors with this second moment and these sums that look most like the attacker's own.

    Args:
        gram: With sums; those of classes are used class by class where counts are known, else their total.
        size: Of `measure`.
        components: Of features of the same kind.
        rng: Of random starts.
    """
    means, groups, labels = _means(gram, size)
    indicators = (groups[:, None] == np.unique(groups)).astype(np.float64)
    free = len(groups) - indicators.shape[1]
    second = gram.second - means.T @ means
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    kept = slice(len(values) - min(free, len(values)), len(values))
    scatter = np.sqrt(np.maximum(values[kept], 0.0))[:, None] * vectors[:, kept].T
    full, _ = np.linalg.qr(indicators / np.linalg.norm(indicators, axis=0), mode="complete")
    search = _Search(
        (means - components.mean) @ components.unmixing.T,
        full[:, indicators.shape[1] :][:, : len(scatter)],
        scatter @ components.unmixing.T,
        components,
    )
    runs = sorted((search.ascend(rng) for _ in range(_STARTS if free > 1 else 2)), key=lambda run: -run[0])
    ends = [means + search.basis @ (turn @ scatter) for _, turn in runs[:2]]
    return Factors(ends[0], labels, agreement_of(ends[0], ends[1], groups), 0.0, gram.unit, len(runs))


def _means(gram: Gram, size: Size) -> tuple[Matrix, Ints, Ints]:
    """Every vector's group mean, group and label."""
    width = len(gram.second)
    if gram.sums is None:
        return np.zeros((size.total, width)), np.arange(size.total), np.full(size.total, -1)
    if size.counts.size:
        present = np.flatnonzero(size.counts)
        groups = np.repeat(np.arange(len(present)), size.counts[present])
        means = (gram.sums[present] / size.counts[present][:, None])[groups]
        return means, groups, gram.labels[present][groups]
    mean = gram.sums.sum(axis=0) / size.total
    return np.tile(mean, (size.total, 1)), np.zeros(size.total, np.int64), np.full(size.total, -1)


@dataclass(frozen=True)
class _Search:
    """Coordinates of F = M + U R G in independent components, as a function of R.

    Attributes:
        means: Of M, shape (n, k).
        basis: U, shape (n, m).
        scatter: Of G, shape (m, k).
        components: The densities.
    """

    means: Matrix
    basis: Matrix
    scatter: Matrix
    components: Components

    def ascend(self, rng: np.random.Generator) -> tuple[float, Matrix]:
        """Likelihood and R at the end of one ascent from a random R, the step grown and halved on the way."""
        side = self.basis.shape[1]
        turn = np.linalg.qr(rng.standard_normal((side, side)))[0]
        best, value, direction, step = turn, -np.inf, np.zeros((side, side)), 0.1
        for _ in range(_STEPS):
            ahead, slope = self.components.likelihood(self.means + self.basis @ (turn @ self.scatter))
            if ahead > value:
                value, best, step = ahead, turn, 1.2 * step
                pull = self.basis.T @ slope @ self.scatter.T @ turn.T
                direction = pull - pull.T
                direction /= max(float(np.linalg.norm(direction)), 1e-12)
            else:
                step /= 2
            if step < _SMALLEST or side < 2:
                break
            half = step / 2 * direction
            turn = np.linalg.solve(np.eye(side) - half, (np.eye(side) + half) @ best)
        return value, best
