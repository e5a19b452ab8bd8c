"""The FedCGS statistics and the classifier they give without training (Guan et al. 2025, equations 6 to 14).

A client sends N (records per class), A (sum of the features of each class) and B (sum of f f^T over all its
records). Sums add up, so the server holds the statistics of the pooled records, for every partition. The head is
the Bayes classifier of Gaussian classes with one covariance,

    w_j = Sigma^-1 mu_j,   b_j = log pi_j - mu_j^T Sigma^-1 mu_j / 2.

(The paper's equations 11 and 14 print Sigma where equation 10 needs its inverse.)

Near-singular covariances. Features that never move (dead units, dark pixels), fewer records than features, float16
transport and privacy noise all leave Sigma singular or indefinite. The system is solved for Sigma + ridge *
(trace(Sigma) / d) * I: shrinkage towards a sphere of the same scale, so the default means the same for any feature
scale. Where that is not positive definite (rounding or noise), Sigma is first replaced by the nearest positive
semi-definite matrix, and the caller is informed. No matrix is inverted: there is one Cholesky factorisation with C
right-hand sides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedassay.heads.linear import LinearHead
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Ints, Matrix

Covariance = Literal["total", "within"]
"""Covariance of all features about the global mean, or pooled about the class means."""

RIDGE = 0.1
"""Default ridge, relative to the mean variance of the features.

Measured on digits (64 pixels, and 64 features of a small network) and on CIFAR-10 (512 SqueezeNet features),
against the best of 0, 1e-6, ..., 1. It is within one point of that at 720 and 6,000 records. At 120 and 600
records it is within three points, while the paper's ridge of 0 fails altogether or loses 3 to 30 points.
"""

_BLOCK = 2048
"""Records that statistics are taken of at a time."""


@dataclass(frozen=True)
class Statistics:
    """Sums over records, of one client or of all of them.

    Attributes:
        counts: N, records per class, shape (C,); not whole where noised.
        sums: A, sum of the features of each class, shape (C, d).
        second: B, sum of f f^T over all records, shape (d, d), symmetric.
    """

    counts: Matrix
    sums: Matrix
    second: Matrix


def statistics(features: Floats, labels: Ints, classes: int, weights: Matrix | None = None) -> Statistics:
    """The statistics of one client's records, in float64.

    Args:
        features: Shape (n, d); n may be 0.
        labels: Shape (n,), in 0..C-1.
        classes: C.
        weights: Weights of the records, shape (n,); None: 1 each. See `fedassay.privacy.units`.

    Raises:
        ValueError: Shapes do not match or a label is out of range.
    """
    from scipy.linalg.blas import dsyrk
    from scipy.sparse import csc_array

    if features.ndim != 2 or labels.shape != (len(features),):
        raise ValueError(f"statistics: features {features.shape} and labels {labels.shape} do not match")
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(f"statistics: labels must lie in 0..{classes - 1}, given {labels.min()}..{labels.max()}")
    width = features.shape[1]
    counts = np.bincount(labels, weights, minlength=classes).astype(np.float64)
    sums, second = np.zeros((classes, width)), np.zeros((width, width), order="F")
    roots = None if weights is None else np.sqrt(weights)
    # Every factor of the sums is multiplied by the root of its weight in any case: here by the other root.
    values = np.ones(len(labels)) if roots is None else roots
    # Block by block: values converted to float64 are still in cache when they are summed.
    block = np.empty((min(_BLOCK, len(labels)), width))
    for start in range(0, len(labels), _BLOCK):
        rows = block[: len(features[start : start + _BLOCK])]
        rows[:] = features[start : start + _BLOCK]
        if roots is not None:
            rows *= roots[start : start + _BLOCK, None]
        # One column a record, with its class: what a small client's sums cost is mostly to build this.
        own = (values[start : start + _BLOCK], labels[start : start + _BLOCK], np.arange(len(rows) + 1))
        sums += csc_array(own, shape=(classes, len(rows))) @ rows
        # One triangle of the product, added in place: half of the work, and no second matrix.
        second = dsyrk(1.0, rows.T, beta=1.0, c=second, lower=1, overwrite_c=1)
    # The upper triangle is still zero.
    whole = second + second.T
    np.fill_diagonal(whole, np.diagonal(second))
    return Statistics(counts, sums, np.ascontiguousarray(whole))


def aggregate(parts: Iterable[Statistics]) -> Statistics:
    """Statistics of the union: sums over the clients, taken one at a time.

    Raises:
        ValueError: Nothing is given.
    """
    rest = iter(parts)
    first = next(rest, None)
    if first is None:
        raise ValueError("aggregate: at least one client's statistics are needed")
    counts, sums, second = first.counts.copy(), first.sums.copy(), first.second.copy()
    for part in rest:
        counts += part.counts
        sums += part.sums
        second += part.second
    return Statistics(counts, sums, second)


@dataclass(frozen=True)
class GlobalMoments:
    """Means and covariance of the pooled records, of the classes that have any.

    Attributes:
        classes: The classes present, shape (P,), ascending.
        priors: pi, shape (P,), summing to one.
        means: mu_j, shape (P, d).
        covariance: Sigma, shape (d, d).
    """

    classes: Ints
    priors: Matrix
    means: Matrix
    covariance: Matrix


def moments(given: Statistics, covariance: Covariance = "total", *, least: float = 0.5) -> GlobalMoments:
    """Class means and covariance from sums (Guan et al. 2025, equations 6 to 9).

    `total`: (B - N mu mu^T) / (N - 1), as the paper writes it. `within`: (B - sum_j N_j mu_j mu_j^T) /
    (N - P), P the number of classes present. A class with a count of at most `least` (0, or noised) is absent and
    is left out of means, priors and head; its records stay in B and N.

    Raises:
        DataError: There are too few records for a covariance.
    """
    kept = np.flatnonzero(given.counts > least)
    counts = given.counts[kept]
    # Noise can make the counts of absent classes negative; all of them belong to the total.
    total = float(given.counts.sum())
    freedom = total - 1 if covariance == "total" else total - kept.size
    if not kept.size or freedom <= 0:
        raise DataError(
            f"FedCGS: {total:.6g} records in {kept.size} classes are too few for a {covariance} covariance"
        )
    means = given.sums[kept] / counts[:, None]
    if covariance == "total":
        mean = given.sums.sum(axis=0) / total
        scatter = given.second - total * np.outer(mean, mean)
    else:
        scatter = given.second - (means * counts[:, None]).T @ means
    return GlobalMoments(kept, counts / counts.sum(), means, (scatter + scatter.T) / 2 / freedom)


@dataclass(frozen=True)
class GaussianHead:
    """A head and the facts of its computation.

    Attributes:
        head: The classifier over the classes present.
        projected: Whether Sigma had to be replaced by the nearest positive semi-definite matrix.
    """

    head: LinearHead
    projected: bool


def gaussian_head(given: GlobalMoments, ridge: float = RIDGE, *, shift: float = 0.0) -> GaussianHead:
    """The training-free head (Guan et al. 2025, equations 10 to 14).

    Args:
        given: Means, priors and covariance.
        ridge: At least 0, relative to trace(Sigma) / d; see the module.
        shift: At least 0, added to the diagonal besides: the scale of the noise in Sigma, where that is known.

    Raises:
        ValueError: The ridge is negative or not finite.
        DataError: Sigma is not finite, is zero, or is singular to working precision in spite of the ridge.
    """
    from scipy.linalg import cho_solve

    if not all(value >= 0 and np.isfinite(value) for value in (ridge, shift)):
        raise ValueError(f"gaussian_head: ridge and shift must be finite and at least 0, given {ridge}, {shift}")
    sigma, width = given.covariance, given.covariance.shape[0]
    if not (np.isfinite(sigma).all() and np.isfinite(given.means).all()):
        raise DataError("FedCGS: the aggregated statistics hold NaN or infinite values")
    projected = False
    # A noised Sigma may have an eigenvalue just above -shift, which would leave next to nothing to divide by.
    factor = None if shift > 0 else conditioned_factor(sigma, ridge * float(np.trace(sigma)) / width)
    if factor is None and ridge + shift > 0:
        values, vectors = np.linalg.eigh(sigma)
        projected = bool(values[0] < 0)
        if projected:
            sigma = (vectors * np.maximum(values, 0.0)) @ vectors.T
        factor = conditioned_factor(sigma, shift + ridge * float(np.trace(sigma)) / width)
    if factor is None:
        raise DataError(
            f"FedCGS: the {width} x {width} covariance is singular to working precision with ridge {ridge:g}; "
            "use a larger ridge, more records, or features that vary"
        )
    weights = cho_solve((factor, True), given.means.T, check_finite=False).T
    bias = np.log(given.priors) - 0.5 * np.einsum("pd,pd->p", given.means, weights)
    return GaussianHead(LinearHead(given.classes, weights, bias), projected)


def conditioned_factor(sigma: Matrix, shift: float) -> Matrix | None:
    """Lower Cholesky factor of sigma + shift I, or None where that is singular to working precision."""
    from scipy.linalg.lapack import dpocon

    shifted = sigma + shift * np.eye(len(sigma))
    try:
        factor = np.asarray(np.linalg.cholesky(shifted), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    # Rounding can let a singular matrix pass the factorisation; its solutions would be noise.
    reciprocal, _ = dpocon(factor, np.abs(shifted).sum(axis=0).max(), uplo="L")
    return factor if reciprocal > len(sigma) * np.finfo(np.float64).eps else None
