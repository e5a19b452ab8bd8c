"""A first guess of the image: kernel ridge regression from condition to pixels.

This is an addition of ours to the attack of Beitollahi et al. 2024. The regression gives the mean image of a
condition in seconds, and the denoiser, which sees it beside the noisy image, spends its training on the remaining
difference. Training rows get a guess of the regression without them (leave-one-out, closed form), so that in
training the guess is as wrong as it will be on private records.

The kernel is Matern 3/2 on Nystroem centres, beside a linear part; the ridge, the bandwidth and the
shrinkage of the whitening are those with the smallest leave-one-out error on the adversary's own
records (Rasmussen & Williams 2006, equations 4.17 and 5.12). Computation is blockwise: beside the
images memory grows with the number of centres only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.nets.whitening import Whitening, fit_whitening
from fedassay.support.types import Floats, Images, Matrix

SHRINKAGES = (0.01, 0.1)
BANDWIDTHS = (0.5, 1.0)
"""In units of the median distance between two records."""
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
_SEARCH_RECORDS = 4000
_SEARCH_CENTRES = 800
_SEARCH_ERRORS = 1000
_LINEAR = 0.1
"""Scale of the linear part beside the kernel's unit diagonal."""
_JITTER = 1e-6
_BLOCK = 2048
_MOST_LEVERAGE = 1 - 1e-6


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A fitted regression.

    Attributes:
        whitening: Whitening of the condition.
        centres: Shape (m, d), whitened, float32.
        bandwidth: Bandwidth of the kernel, in whitened units; shape (1,).
        coefficients: Shape (m + d + 1, pixels), float32: weights of the kernel at each
            centre and of each whitened column, and the constant.
    """

    whitening: Whitening
    centres: NDArray[np.float32]
    bandwidth: Matrix
    coefficients: NDArray[np.float32]

    def guess(self, conditions: Floats, image_shape: tuple[int, int, int]) -> Images:
        """First guesses, shape (n, height, width, channels), uint8, for conditions (n, d)."""
        guesses = np.empty((len(conditions), *image_shape), np.uint8)
        weights = self.coefficients.astype(np.float64)
        for block in _blocks(len(conditions)):
            columns = _columns(self.whitening(conditions[block]), self.centres, float(self.bandwidth[0]))
            guesses[block] = _to_uint8(columns @ weights[:-1] + weights[-1], image_shape)
        return guesses


def fit_warm_start(
    images: Images, conditions: Floats, *, centres: int, rng: np.random.Generator
) -> tuple[WarmStart, Images]:
    """Fit the regression, and guess every training record without itself.

    Args:
        images: Shape (n, height, width, channels), uint8.
        conditions: Shape (n, d).
        centres: Largest number of Nystroem centres.
        rng: Draws the records of the search and the centres.

    Returns:
        The regression, and the leave-one-out guesses, shape and type of `images`.
    """
    shrinkage, bandwidth, ridge = _search(images, conditions, rng)
    whitening = fit_whitening(conditions, decorrelate=True, shrinkage=shrinkage)
    whitened = whitening(conditions)
    chosen = np.sort(rng.permutation(len(images))[:centres])
    basis = _basis(whitened[chosen], bandwidth)
    mean = images.mean(axis=0, dtype=np.float64).reshape(-1)
    gram, moment = _moments(basis, images, whitened, mean)
    inverse = _invert(gram + ridge * basis.penalty)
    weights = inverse @ moment
    held_out = np.empty_like(images)
    own_centre = np.full(len(images), -1)
    own_centre[chosen] = np.arange(len(chosen))
    for block in _blocks(len(images)):
        columns = basis.columns(whitened[block])
        target = _flat(images[block]) - mean
        guesses = _leave_one_out(columns, own_centre[block], inverse, weights, target)
        held_out[block] = _to_uint8(guesses + mean, images.shape[1:])
    coefficients = np.concatenate([weights, mean[None]]).astype(np.float32)
    return WarmStart(whitening, basis.centres, np.array([basis.bandwidth]), coefficients), held_out


@dataclass(frozen=True, eq=False)
class _Basis:
    """The regression's columns: the kernel at m centres, and the d whitened columns themselves.

    Attributes:
        centres: Shape (m, d), float32.
        bandwidth: Bandwidth of the kernel.
        penalty: Shape (m + d, m + d): the squared norm of a function with weights w is w' P w.
    """

    centres: NDArray[np.float32]
    bandwidth: float
    penalty: Matrix

    def columns(self, whitened: NDArray[np.float32]) -> Matrix:
        return _columns(whitened, self.centres, self.bandwidth)


def _basis(centres: NDArray[np.float32], relative_bandwidth: float) -> _Basis:
    points = centres.astype(np.float64)
    distances = np.sqrt(_squared_distances(points, points))
    # A single record, or equal ones, have no scale of their own.
    typical = float(np.median(distances[~np.eye(len(points), dtype=bool)])) if len(points) > 1 else 0.0
    bandwidth = relative_bandwidth * (typical or 1.0)
    m, d = points.shape
    penalty = np.eye(m + d)
    penalty[:m, :m] = _matern(points, points, bandwidth) + _JITTER * np.eye(m)
    return _Basis(centres, bandwidth, penalty)


def _moments(basis: _Basis, images: Images, whitened: NDArray[np.float32], mean: Matrix) -> tuple[Matrix, Matrix]:
    """Phi' Phi and Phi' (Y - mean), block by block."""
    size = len(basis.penalty)
    gram, moment = np.zeros((size, size)), np.zeros((size, len(mean)))
    for block in _blocks(len(images)):
        columns = basis.columns(whitened[block])
        gram += columns.T @ columns
        moment += columns.T @ (_flat(images[block]) - mean)
    return gram, moment


def _search(images: Images, conditions: Floats, rng: np.random.Generator) -> tuple[float, float, float]:
    """Shrinkage, relative bandwidth and ridge with the least leave-one-out error on a subset."""
    subset = rng.permutation(len(images))[:_SEARCH_RECORDS]
    some = images[subset]
    mean = some.mean(axis=0, dtype=np.float64).reshape(-1)
    target = _flat(some[:_SEARCH_ERRORS]) - mean
    own_centre = np.where(np.arange(len(target)) < _SEARCH_CENTRES, np.arange(len(target)), -1)
    best = (np.inf, SHRINKAGES[0], BANDWIDTHS[0], RIDGES[-1])
    for shrinkage, bandwidth in itertools.product(SHRINKAGES, BANDWIDTHS):
        whitened = fit_whitening(conditions, decorrelate=True, shrinkage=shrinkage)(conditions[subset])
        basis = _basis(whitened[:_SEARCH_CENTRES], bandwidth)
        gram, moment = _moments(basis, some, whitened, mean)
        columns = basis.columns(whitened[:_SEARCH_ERRORS])
        for ridge in RIDGES:
            inverse = _invert(gram + ridge * basis.penalty)
            guesses = _leave_one_out(columns, own_centre, inverse, inverse @ moment, target)
            best = min(best, (float(np.mean(np.square(guesses - target))), shrinkage, bandwidth, ridge))
    return best[1:]


def _leave_one_out(
    columns: Matrix, own_centre: NDArray[np.intp], inverse: Matrix, weights: Matrix, target: Matrix
) -> Matrix:
    """Predictions for training rows by the regression fitted without each, both row and centre.

    A private record is never a centre. A training record that is a centre must lose it together with its row, or
    its guess would be unlike any guess in sampling. Dropping column j of the normal equations changes the weights
    by -B_j w_j / B_jj. Dropping a row of leverage h then gives (f - h y) / (1 - h).

    Args:
        columns: Rows of Phi, shape (k, p).
        own_centre: Column of each row's own centre, -1 where it has none; shape (k,).
        inverse: B = (Phi' Phi + ridge P)^-1, shape (p, p).
        weights: B Phi' Y, shape (p, pixels).
        target: Rows of Y, shape (k, pixels).
    """
    spread = columns @ inverse
    leverage = np.einsum("ij,ij->i", spread, columns)
    prediction = columns @ weights
    rows = np.flatnonzero(own_centre >= 0)
    centre = own_centre[rows]
    share = spread[rows, centre] / inverse[centre, centre]
    prediction[rows] -= share[:, None] * weights[centre]
    leverage[rows] -= share * spread[rows, centre]
    leverage = np.clip(leverage, 0.0, _MOST_LEVERAGE)[:, None]
    guess: Matrix = (prediction - leverage * target) / (1 - leverage)
    return guess


def _columns(whitened: NDArray[np.float32], centres: NDArray[np.float32], bandwidth: float) -> Matrix:
    points = whitened.astype(np.float64)
    return np.concatenate([_matern(points, centres.astype(np.float64), bandwidth), _LINEAR * points], axis=1)


def _matern(a: Matrix, b: Matrix, bandwidth: float) -> Matrix:
    scaled = np.sqrt(_squared_distances(a, b)) / bandwidth
    kernel: Matrix = (1 + scaled) * np.exp(-scaled)
    return kernel


def _squared_distances(a: Matrix, b: Matrix) -> Matrix:
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)[None] - 2 * a @ b.T
    distances: Matrix = np.maximum(squares, 0.0)
    return distances


def _invert(matrix: Matrix) -> Matrix:
    return np.linalg.inv(matrix).astype(np.float64, copy=False)


def _flat(images: Images) -> Matrix:
    """Shape (n, pixels)."""
    return images.reshape(len(images), -1).astype(np.float64)


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK))


def _to_uint8(flat: Matrix, image_shape: tuple[int, ...]) -> Images:
    return np.clip(flat, 0, 255).round().astype(np.uint8).reshape(-1, *image_shape)
