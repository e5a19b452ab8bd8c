"""The Gaussian mechanisms that methods release statistics through, and that audits rerun.

Each mechanism clips, computes the exact statistic, and adds noise; nothing else. Clipping is
inside, never assumed. `size` asks for that many independent releases of the same data set in
one call (leading axes of every array returned): methods leave it out, the observed bound asks
for 10^5, and both go through the very same code. What is returned is the unprocessed release,
to which the noise scales and the accounting belong; post-processing is in
`fedassay.privacy.postprocess`.

A noise scale of 0 switches that field's noise off (a control, or a field that leaves exactly).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.privacy.symmetric import Family, symmetric_noise
from fedassay.support.errors import DataError

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Size = tuple[int, ...]


class Moments(NamedTuple):
    """Mean (..., d) and a second moment, raw or centred: (..., d, d), (..., d) or (...,) by family."""

    mean: Floats
    second: Floats


class Sums(NamedTuple):
    """Class counts (..., C), class sums (..., C, d), and second-moment sums, per class or shared."""

    counts: Floats
    sums: Floats
    second: Floats


def clip_features(features: NDArray[np.floating], *, nonnegative: bool = False) -> Floats:
    """Features (n, d) scaled down to ||f||_2 <= 1 where longer, after max(f, 0) if `nonnegative`.

    Raises:
        DataError: if a feature is NaN or infinite: no clipping makes that private.
    """
    clipped = _finite(features)
    if nonnegative:
        clipped = np.maximum(clipped, 0.0)
    norms = np.linalg.norm(clipped, axis=-1, keepdims=True)
    return np.asarray(clipped / np.maximum(norms, 1.0), dtype=np.float64)


def moments(features: Floats, family: Family = "full") -> Moments:
    """Exact mean and raw second moment of features (n, d), n >= 1: E[x x^T], E[x^2] or E||x||^2."""
    _check_any(features)
    n = len(features)
    return Moments(features.mean(axis=0), _second_sum(features, family) / n)


def centred_moments(features: Floats, family: Family = "full") -> Moments:
    """Exact mean and covariance (divided by n) of features (n, d), n >= 1, in the family asked for."""
    _check_any(features)
    mean = features.mean(axis=0)
    return Moments(mean, _second_sum(features - mean, family) / len(features))


def class_sums(features: Floats, labels: Labels, classes: int, family: Family = "full") -> Sums:
    """Exact counts (C,), sums (C, d) and second-moment sums (C, ...) of every class."""
    one_hot = _one_hot(labels, classes, len(features))
    if family == "diag":
        second = one_hot.T @ features**2
    elif family == "spherical":
        second = one_hot.T @ np.sum(features**2, axis=1)
    else:
        second = np.stack([_second_sum(features[labels == c], family) for c in range(classes)])
    return Sums(one_hot.sum(axis=0), one_hot.T @ features, second)


def shared_sums(features: Floats, labels: Labels, classes: int) -> Sums:
    """Exact FedCGS statistics: N (C,), A (C, d) per class, and one B = sum f f^T (d, d) for all."""
    one_hot = _one_hot(labels, classes, len(features))
    return Sums(one_hot.sum(axis=0), one_hot.T @ features, features.T @ features)


def fedlog_sums(features: Floats, labels: Labels, classes: int) -> Floats:
    """Exact FedLog statistic T (C, m) of features (n, m - 1); the constant feature 1 is put first here."""
    phi = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    return np.asarray(_one_hot(labels, classes, len(features)).T @ phi, dtype=np.float64)


def add_noise(value: Floats, sigma: float, rng: np.random.Generator, *, size: Size = ()) -> Floats:
    """`value` plus independent N(0, sigma^2) on every entry, as (*size, *value.shape)."""
    noise = rng.standard_normal((*size, *np.shape(value)))
    noise *= _scale(sigma)
    noise += value
    return np.asarray(noise, dtype=np.float64)


def add_symmetric_noise(
    matrix: Floats, sigma: float, rng: np.random.Generator, *, size: Size = (), isometric: bool = True
) -> Floats:
    """Symmetric matrices (..., d, d) plus symmetric noise, as (*size, ..., d, d).

    `isometric` as in `symmetric_noise`: white noise of scale sigma in the `vech` embedding, or the
    same scale on every entry.
    """
    batch = (*size, *matrix.shape[:-2])
    noise = symmetric_noise(matrix.shape[-1], _scale(sigma), rng, size=batch, isometric=isometric)
    noise += matrix
    return noise


def release_mean_second_moment(
    features: NDArray[np.floating],
    *,
    sigmas: tuple[float, float],
    rng: np.random.Generator,
    family: Family = "full",
    nonnegative: bool = False,
    isometric: bool = True,
    size: Size = (),
) -> Moments:
    """Noised mean and raw second moment of one class: FedPFT `tight`, and `second_moment` (Remark B.3).

    Args:
        features: (n, d), n >= 1, any norm.
        sigmas: noise on the mean, and on the second moment.
        rng: where the noise comes from.
        family: what is kept of the second moment.
        nonnegative: clip to the non-negative orthant first.
        isometric: False puts the same noise on every entry of a full matrix, as Remark B.3 does.
        size: leading axes of independent reruns.

    Raises:
        DataError: if features are not finite, or there are none.
    """
    exact = moments(clip_features(features, nonnegative=nonnegative), family)
    return _noised_moments(exact, sigmas, rng, family, isometric, size)


def release_mean_covariance(
    features: NDArray[np.floating],
    *,
    sigma: float,
    rng: np.random.Generator,
    family: Family = "full",
    size: Size = (),
) -> Moments:
    """FedPFT's `paper` mechanism, Theorem 4.1: mean and covariance, the same noise on every entry.

    The covariance's noise is symmetrised by mirroring the upper triangle. The theorem's projection on
    the PSD cone is post-processing: `postprocess.covariance_from_release`.

    Raises:
        DataError: if features are not finite, or there are none.
    """
    exact = centred_moments(clip_features(features), family)
    return _noised_moments(exact, (sigma, sigma), rng, family, False, size)


def release_class_sums(
    features: NDArray[np.floating],
    labels: Labels,
    classes: int,
    *,
    sigmas: tuple[float, float, float],
    rng: np.random.Generator,
    family: Family = "full",
    nonnegative: bool = False,
    size: Size = (),
) -> Sums:
    """Noised (count, sum x, sum x x^T) of every class: FedPFT where counts are private.

    Args:
        features: (n, d), any norm; n may be 0.
        labels: (n,), in 0 .. classes - 1.
        classes: C, public.
        sigmas: noise on counts, sums and second-moment sums.
        rng: where the noise comes from.
        family: what is kept of the second moments.
        nonnegative: clip to the non-negative orthant first.
        size: leading axes of independent reruns.
    """
    exact = class_sums(clip_features(features, nonnegative=nonnegative), labels, classes, family)
    return noised_sums(exact, sigmas, rng, full=family == "full", size=size)


def release_shared_sums(
    features: NDArray[np.floating],
    labels: Labels,
    classes: int,
    *,
    sigmas: tuple[float, float, float],
    rng: np.random.Generator,
    nonnegative: bool = False,
    size: Size = (),
) -> Sums:
    """Noised FedCGS statistics (N, A, B) of one client, jointly; arguments as `release_class_sums`.

    The total sum A is the sum of the class sums: it is never noised on its own. For one noise on the
    securely aggregated sum of all clients, add their `shared_sums` and call `noised_sums` once.
    """
    exact = shared_sums(clip_features(features, nonnegative=nonnegative), labels, classes)
    return noised_sums(exact, sigmas, rng, full=True, size=size)


def noised_sums(
    exact: Sums,
    sigmas: tuple[float, float, float],
    rng: np.random.Generator,
    *,
    full: bool,
    size: Size = (),
) -> Sums:
    """The noise of `release_class_sums` and `release_shared_sums` alone; `full`: second is symmetric."""
    counts = add_noise(exact.counts, sigmas[0], rng, size=size)
    sums = add_noise(exact.sums, sigmas[1], rng, size=size)
    if full:
        return Sums(counts, sums, add_symmetric_noise(exact.second, sigmas[2], rng, size=size))
    return Sums(counts, sums, add_noise(exact.second, sigmas[2], rng, size=size))


def release_fedlog_sums(
    features: NDArray[np.floating],
    labels: Labels,
    classes: int,
    *,
    clip: float,
    sigma: float,
    rng: np.random.Generator,
    size: Size = (),
) -> Floats:
    """FedLog's noised T (..., C, m) of one round; features (n, m - 1) are clipped to [-clip, clip]."""
    clipped = np.clip(_finite(features), -clip, clip)
    return add_noise(fedlog_sums(clipped, labels, classes), sigma, rng, size=size)


def release_magnitude_sum(
    magnitudes: NDArray[np.floating],
    *,
    clip: float,
    sigma: float,
    rng: np.random.Generator,
    size: Size = (),
) -> Floats:
    """Noised sum (..., D) of non-negative vectors (n, D), each clipped to L2 norm `clip`: FedDiff's FMF."""
    clipped = clip * clip_features(np.asarray(magnitudes, dtype=np.float64) / clip, nonnegative=True)
    return add_noise(clipped.sum(axis=0), sigma, rng, size=size)


def release_class_counts(
    labels: Labels, classes: int, *, sigma: float, rng: np.random.Generator, size: Size = ()
) -> Floats:
    """Noised label histogram (..., C)."""
    return add_noise(_one_hot(labels, classes, len(labels)).sum(axis=0), sigma, rng, size=size)


def _noised_moments(
    exact: Moments,
    sigmas: tuple[float, float],
    rng: np.random.Generator,
    family: Family,
    isometric: bool,
    size: Size,
) -> Moments:
    mean = add_noise(exact.mean, sigmas[0], rng, size=size)
    if family == "full":
        return Moments(mean, add_symmetric_noise(exact.second, sigmas[1], rng, size=size, isometric=isometric))
    return Moments(mean, add_noise(exact.second, sigmas[1], rng, size=size))


def _second_sum(features: Floats, family: Family) -> Floats:
    if family == "full":
        return np.asarray(features.T @ features, dtype=np.float64)
    if family == "diag":
        return np.asarray(np.sum(features**2, axis=0), dtype=np.float64)
    return np.asarray(np.sum(features**2), dtype=np.float64)


def _one_hot(labels: Labels, classes: int, n: int) -> Floats:
    if labels.shape != (n,):
        raise ValueError(f"labels must have shape ({n},), got {labels.shape}")
    if n and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(f"labels must lie in 0..{classes - 1}, got {labels.min()}..{labels.max()}")
    return np.asarray(labels[:, None] == np.arange(classes), dtype=np.float64)


def _finite(features: NDArray[np.floating]) -> Floats:
    array = np.asarray(features, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"features must have shape (n, d), got {array.shape}")
    bad = int(np.count_nonzero(~np.isfinite(array).all(axis=1)))
    if bad:
        raise DataError(f"features: {bad} of {len(array)} records are NaN or infinite; allowed: finite")
    return array


def _check_any(features: Floats) -> None:
    if len(features) == 0:
        raise DataError("features: a mean of 0 records does not exist; allowed: at least 1 record")


def _scale(sigma: float) -> float:
    if not (sigma >= 0 and np.isfinite(sigma)):
        raise ValueError(f"noise scale must be finite and at least 0, got {sigma}")
    return float(sigma)
