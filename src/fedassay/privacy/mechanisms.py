"""The Gaussian mechanisms that methods release statistics through, and that audits rerun.

Each mechanism clips, computes the exact statistic, and adds noise; nothing else. Clipping is inside, never
assumed. Methods and experiments use the very same code and differ in the `NoiseSource`: methods pass the noise
mechanism of their release (`MethodInput.mechanism`), experiments pass `FreeNoise`, which makes as many independent
releases of the same data set in one call as they ask for (leading axes of every array returned). The result is
the unprocessed release, which the noise scales and the accounting describe; post-processing is in
`fedassay.privacy.postprocess`.

A noise scale of 0 switches that field's noise off (a control, or a field that leaves exactly).

Sums over records take `weights`, one a record: with those of `fedassay.privacy.units` a person or a client adds
the mean of its clipped records. None: every record adds itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.privacy.symmetric import Family
from fedassay.privacy.tape import Layout, NoiseSource
from fedassay.support.errors import DataError
from fedassay.support.types import Ints, Matrix


class Moments(NamedTuple):
    """Mean (..., d) and a second moment, raw or centred: (..., d, d), (..., d) or (...,) by family."""

    mean: Matrix
    second: Matrix


class Sums(NamedTuple):
    """Class counts (..., C), class sums (..., C, d), and second-moment sums, per class or shared."""

    counts: Matrix
    sums: Matrix
    second: Matrix


class RidgeSums(NamedTuple):
    """The sums of a ridge regression on one-hot labels: class sums (..., C, d) and Gram matrix (..., d, d)."""

    sums: Matrix
    second: Matrix


def clip_features(features: NDArray[np.floating], *, nonnegative: bool = False) -> Matrix:
    """Features (n, d) scaled down to ||f||_2 <= 1 where longer, after max(f, 0) if `nonnegative`.

    Raises:
        DataError: if a feature is NaN or infinite: no clipping makes that private.
    """
    clipped = _finite(features)
    if nonnegative:
        clipped = np.maximum(clipped, 0.0)
    norms = np.linalg.norm(clipped, axis=-1, keepdims=True)
    return np.asarray(clipped / np.maximum(norms, 1.0), dtype=np.float64)


def moments(features: Matrix, family: Family = "full") -> Moments:
    """Exact mean and raw second moment of features (n, d), n >= 1: E[x x^T], E[x^2] or E||x||^2."""
    _check_any(features)
    n = len(features)
    return Moments(features.mean(axis=0), _second_sum(features, family) / n)


def centred_moments(features: Matrix, family: Family = "full") -> Moments:
    """Exact mean and covariance (divided by n) of features (n, d), n >= 1, in the family asked for."""
    _check_any(features)
    mean = features.mean(axis=0)
    return Moments(mean, _second_sum(features - mean, family) / len(features))


def class_sums(
    features: Matrix, labels: Ints, classes: int, family: Family = "full", weights: Matrix | None = None
) -> Sums:
    """Exact counts (C,), sums (C, d) and second-moment sums (C, ...) of every class."""
    one_hot = _one_hot(labels, classes, len(features), weights)
    if family == "diag":
        second = one_hot.T @ features**2
    elif family == "spherical":
        second = one_hot.T @ np.sum(features**2, axis=1)
    else:
        rooted = _rooted(features, weights)
        second = np.stack([_second_sum(rooted[labels == c], family) for c in range(classes)])
    return Sums(one_hot.sum(axis=0), one_hot.T @ features, second)


def shared_sums(features: Matrix, labels: Ints, classes: int, weights: Matrix | None = None) -> Sums:
    """Exact FedCGS statistics: N (C,), A (C, d) per class, and one B = sum f f^T (d, d) for all."""
    one_hot, rooted = _one_hot(labels, classes, len(features), weights), _rooted(features, weights)
    return Sums(one_hot.sum(axis=0), one_hot.T @ features, rooted.T @ rooted)


def ridge_sums(features: Matrix, labels: Ints, classes: int, weights: Matrix | None = None) -> RidgeSums:
    """Exact class sums (C, d) and Gram matrix (d, d)."""
    one_hot, rooted = _one_hot(labels, classes, len(features), weights), _rooted(features, weights)
    return RidgeSums(one_hot.T @ features, rooted.T @ rooted)


def clip_beside_constant(features: NDArray[np.floating], *, nonnegative: bool = False) -> Matrix:
    """Set the last of the features (n, d) to 1 for every record, and clip the others as `clip_features` does."""
    clipped = clip_features(features[:, :-1], nonnegative=nonnegative)
    return np.concatenate([clipped, np.ones((len(clipped), 1))], axis=1)


def fedlog_sums(features: Matrix, labels: Ints, classes: int, weights: Matrix | None = None) -> Matrix:
    """Exact FedLog statistic T (C, m) of features (n, m - 1); the constant feature 1 is put first here."""
    phi = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    return np.asarray(_one_hot(labels, classes, len(features), weights).T @ phi, dtype=np.float64)


def release_mean_second_moment(
    features: NDArray[np.floating],
    *,
    sigmas: tuple[float, float],
    noise: NoiseSource,
    family: Family = "full",
    nonnegative: bool = False,
    isometric: bool = True,
) -> Moments:
    """Noised mean and raw second moment of one class: FedPFT `tight`, and `second_moment` (Remark B.3).

    Args:
        features: (n, d), n >= 1, any norm.
        sigmas: noise on the mean, and on the second moment.
        noise: where the noise comes from.
        family: the part of the second moment that is kept.
        nonnegative: clip to the non-negative orthant first.
        isometric: False puts the same noise on every entry of a full matrix, as Remark B.3 does.

    Raises:
        DataError: if features are not finite, or empty.
    """
    exact = moments(clip_features(features, nonnegative=nonnegative), family)
    return _noised_moments(exact, sigmas, noise, family, "symmetric" if isometric else "mirrored")


def release_mean_covariance(
    features: NDArray[np.floating],
    *,
    sigma: float,
    noise: NoiseSource,
    family: Family = "full",
) -> Moments:
    """FedPFT's `paper` mechanism, Theorem 4.1: mean and covariance, the same noise on every entry.

    The covariance's noise is symmetrised by mirroring the upper triangle. The theorem's projection on
    the PSD cone is post-processing: `postprocess.covariance_from_release`.

    Raises:
        DataError: if features are not finite, or empty.
    """
    exact = centred_moments(clip_features(features), family)
    return _noised_moments(exact, (sigma, sigma), noise, family, "mirrored")


def release_class_sums(
    features: NDArray[np.floating],
    labels: Ints,
    classes: int,
    *,
    sigmas: tuple[float, float, float],
    noise: NoiseSource,
    family: Family = "full",
    nonnegative: bool = False,
    weights: Matrix | None = None,
) -> Sums:
    """Noised (count, sum x, sum x x^T) of every class: FedPFT where counts are private.

    Args:
        features: (n, d), any norm; n may be 0.
        labels: (n,), in 0 .. classes - 1.
        classes: C, public.
        sigmas: noise on counts, sums and second-moment sums.
        noise: where the noise comes from.
        family: the part of the second moments that is kept.
        nonnegative: clip to the non-negative orthant first.
        weights: of the records, (n,).
    """
    exact = class_sums(clip_features(features, nonnegative=nonnegative), labels, classes, family, weights)
    return noised_sums(exact, sigmas, noise, full=family == "full")


def release_shared_sums(
    features: NDArray[np.floating],
    labels: Ints,
    classes: int,
    *,
    sigmas: tuple[float, float, float],
    noise: NoiseSource,
    nonnegative: bool = False,
    weights: Matrix | None = None,
) -> Sums:
    """Noised FedCGS statistics (N, A, B) of one client, jointly; arguments as `release_class_sums`.

    The total sum A is the sum of the class sums: it is never noised on its own. For one noise on the
    securely aggregated sum of all clients, add their `shared_sums` and call `noised_sums` once.
    """
    exact = shared_sums(clip_features(features, nonnegative=nonnegative), labels, classes, weights)
    return noised_sums(exact, sigmas, noise, full=True)


def noised_sums(
    exact: Sums,
    sigmas: tuple[float, float, float],
    noise: NoiseSource,
    *,
    full: bool,
) -> Sums:
    """The noise of `release_class_sums` and `release_shared_sums` alone.

    Args:
        exact: The statistics.
        sigmas: noise on counts, sums and second-moment sums.
        noise: where the noise comes from.
        full: whether the second moments are symmetric matrices.
    """
    counts, sums, second = (sigma for sigma in sigmas)
    layout: Layout = "symmetric" if full else "entries"
    return Sums(
        noise.add("counts", exact.counts, counts),
        noise.add("sums", exact.sums, sums),
        noise.add("second", exact.second, second, layout=layout),
    )


def release_ridge_sums(
    features: NDArray[np.floating],
    labels: Ints,
    classes: int,
    *,
    sigmas: tuple[float, float],
    noise: NoiseSource,
    constant: bool = False,
    nonnegative: bool = False,
    weights: Matrix | None = None,
) -> RidgeSums:
    """Noised (class sums, Gram matrix) of one client, jointly: ridge regression without class counts.

    Args:
        features: (n, d), any norm; n may be 0.
        labels: (n,), in 0 .. classes - 1.
        classes: C, public.
        sigmas: noise on class sums, and on the Gram matrix.
        noise: where the noise comes from.
        constant: the last feature is 1 for every record, as in Fed3R, and not clipped.
        nonnegative: clip to the non-negative orthant first.
        weights: of the records, (n,).
    """
    clip = clip_beside_constant if constant else clip_features
    exact = ridge_sums(clip(features, nonnegative=nonnegative), labels, classes, weights)
    return RidgeSums(
        noise.add("sums", exact.sums, sigmas[0]),
        noise.add("second", exact.second, sigmas[1], layout="symmetric"),
    )


def release_count_sums(
    features: NDArray[np.floating],
    labels: Ints,
    classes: int,
    *,
    sigmas: tuple[float, float],
    noise: NoiseSource,
    nonnegative: bool = False,
    weights: Matrix | None = None,
) -> tuple[Matrix, Matrix]:
    """Noised (class counts (..., C), class sums (..., C, d)) of one client, jointly: FedNCM and FedCOF.

    Arguments as `release_ridge_sums`; `sigmas` are on counts, and on class sums.
    """
    clipped = clip_features(features, nonnegative=nonnegative)
    one_hot = _one_hot(labels, classes, len(clipped), weights)
    counts = noise.add("counts", one_hot.sum(axis=0), sigmas[0])
    return counts, noise.add("sums", one_hot.T @ clipped, sigmas[1])


def release_fedlog_sums(
    features: NDArray[np.floating],
    labels: Ints,
    classes: int,
    *,
    clip: float,
    sigma: float,
    noise: NoiseSource,
    weights: Matrix | None = None,
) -> Matrix:
    """FedLog's noised T (..., C, m) of one round; features (n, m - 1) are clipped to [-clip, clip]."""
    clipped = np.clip(_finite(features), -clip, clip)
    return noise.add("T", fedlog_sums(clipped, labels, classes, weights), sigma)


def release_magnitude_sum(
    blocks: Iterable[NDArray[np.floating]],
    *,
    clip: float,
    sigma: float,
    noise: NoiseSource,
    weights: Matrix | None = None,
) -> Matrix:
    """Noised sum (..., D) of non-negative vectors, each clipped to L2 norm `clip`: FedDiff's FMF.

    Args:
        blocks: the vectors, in one or more blocks (n, D), n >= 0: not all of them must be held at once.
        clip: L2 norm.
        sigma: noise on every coordinate.
        noise: where the noise comes from.
        weights: of the records of all blocks, in their order, (n,).
    """
    total, start = np.zeros(()), 0
    for block in blocks:
        clipped = clip * clip_features(np.asarray(block, dtype=np.float64) / clip, nonnegative=True)
        own = slice(start, start := start + len(clipped))
        total = total + (clipped.sum(axis=0) if weights is None else weights[own] @ clipped)
    return noise.add("sum", np.asarray(total, dtype=np.float64), sigma)


def release_vector_sum(vectors: NDArray[np.floating], *, clip: float, sigma: float, noise: NoiseSource) -> Matrix:
    """Noised sum (..., D) of vectors (n, D) of any sign, each clipped to L2 norm `clip`: gradients."""
    clipped = clip * clip_features(np.asarray(vectors, dtype=np.float64) / clip)
    return noise.add("sum", clipped.sum(axis=0), sigma)


def release_class_counts(
    labels: Ints,
    classes: int,
    *,
    sigma: float,
    noise: NoiseSource,
    weights: Matrix | None = None,
) -> Matrix:
    """Noised label histogram (..., C)."""
    counts = _one_hot(labels, classes, len(labels), weights).sum(axis=0)
    return noise.add("counts", counts, sigma)


def _noised_moments(
    exact: Moments,
    sigmas: tuple[float, float],
    noise: NoiseSource,
    family: Family,
    layout: Layout,
) -> Moments:
    mean = noise.add("mean", exact.mean, sigmas[0])
    layout = layout if family == "full" else "entries"
    return Moments(mean, noise.add("second", exact.second, sigmas[1], layout=layout))


def _second_sum(features: Matrix, family: Family) -> Matrix:
    if family == "full":
        return np.asarray(features.T @ features, dtype=np.float64)
    if family == "diag":
        return np.asarray(np.sum(features**2, axis=0), dtype=np.float64)
    return np.asarray(np.sum(features**2), dtype=np.float64)


def _rooted(features: Matrix, weights: Matrix | None) -> Matrix:
    """Return features times the roots of their weights: the factors of second moments."""
    return features if weights is None else np.asarray(np.sqrt(weights)[:, None] * features)


def _one_hot(labels: Ints, classes: int, n: int, weights: Matrix | None = None) -> Matrix:
    """The weight of each record (1 without any) in the column of its label, (n, C)."""
    if labels.shape != (n,):
        raise ValueError(f"labels must have shape ({n},), got {labels.shape}")
    if n and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(f"labels must lie in 0..{classes - 1}, got {labels.min()}..{labels.max()}")
    if weights is not None and weights.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), got {weights.shape}")
    found = np.asarray(labels[:, None] == np.arange(classes), dtype=np.float64)
    return found if weights is None else np.asarray(weights[:, None] * found)


def _finite(features: NDArray[np.floating]) -> Matrix:
    array = np.asarray(features, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"features must have shape (n, d), got {array.shape}")
    bad = int(np.count_nonzero(~np.isfinite(array).all(axis=1)))
    if bad:
        raise DataError(f"features: {bad} of {len(array)} records are NaN or infinite; allowed: finite")
    return array


def _check_any(features: Matrix) -> None:
    if len(features) == 0:
        raise DataError("features: a mean of 0 records does not exist; allowed: at least 1 record")
