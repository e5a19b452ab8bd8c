"""Exact L2 sensitivities of every released statistic, and the neighbouring records that attain them.

Features are clipped to ||f||_2 <= 1 inside the mechanism, optionally also to the non-negative
orthant. A joint release (say mean and second moment) is one vector: its sensitivity is the
largest distance between the two vectors of neighbouring data sets, which is smaller than the
fields' own sensitivities added in quadrature, because no pair of records is the worst for
every field. Symmetric matrices are measured in Frobenius norm (the `vech` embedding).

`weights` multiply the fields before the distance is taken. With weights 1/sigma_f for noise
sigma_f on field f the "sensitivity" returned is the mu of that heteroscedastic joint Gaussian
mechanism; with all weights 1 it is the plain sensitivity of one common noise scale.

The distance that replacing one record moves a mean and a second moment together is derived in
`fedassay.privacy.moment_distance`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedassay.privacy.moment_distance import farthest_moments, unit
from fedassay.privacy.symmetric import Family
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import PlanError

_Weights = TypeVar("_Weights", bound=tuple[float, ...])


@dataclass(frozen=True, eq=False)
class WorstCase:
    """An exact sensitivity and the one record that differs in a pair of neighbours attaining it.

    Attributes:
        sensitivity: the exact L2 sensitivity (weighted, where weights were given).
        record0: the record in data set 0, shape (d,), or None where data set 0 lacks it (`add_remove`).
        label0: its label.
        record1: the record in data set 1, shape (d,).
        label1: its label.
        background: the value of every other record, shape (d,); their label is `label1`.
    """

    sensitivity: float
    record0: NDArray[np.float64] | None
    label0: int
    record1: NDArray[np.float64]
    label1: int
    background: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two neighbouring data sets: features (n, d) and integer labels (n,) of each."""

    features0: NDArray[np.float64]
    labels0: NDArray[np.int64]
    features1: NDArray[np.float64]
    labels1: NDArray[np.int64]


def worst_pair(worst: WorstCase, n: int) -> Neighbours:
    """The neighbouring data sets that attain `worst.sensitivity`: the canaries of the observed bound.

    Args:
        worst: from one of the functions below, made with the same n where that takes one.
        n: records of data set 1, at least 1; data set 0 has as many, or one fewer under `add_remove`.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1 record, got {n}")
    features = np.tile(worst.background, (n, 1))
    labels = np.full(n, worst.label1, dtype=np.int64)
    features[-1] = worst.record1
    if worst.record0 is None:
        return Neighbours(features[:-1].copy(), labels[:-1].copy(), features, labels)
    features0, labels0 = features.copy(), labels.copy()
    features0[-1], labels0[-1] = worst.record0, worst.label0
    return Neighbours(features0, labels0, features, labels)


def mean_second_moment(
    n: int,
    dim: int,
    *,
    adjacency: Adjacency,
    family: Family = "full",
    nonnegative: bool = False,
    weights: tuple[float, float] = (1.0, 1.0),
) -> WorstCase:
    """Joint (mean, raw second moment E[x x^T]) of the n records of one class: FedPFT `tight`, K = 1.

    Unweighted: sqrt(4.5)/n for full and diag with dim >= 2, 2/n for spherical, for dim = 1, and for full
    and diag on the non-negative orthant (spherical there: sqrt(2)/n).

    Raises:
        PlanError: unless the adjacency is `replace_one_same_label`: a class mean divides by the class's
            own count, so where that count is private the sums must be released (`class_sums`).
    """
    check_records(n)
    if adjacency != "replace_one_same_label":
        raise PlanError(_MEANS_NEED_PUBLIC_COUNTS.format(adjacency))
    value, x, y = farthest_moments(dim, family, nonnegative, *_checked(weights))
    return WorstCase(value / n, x, 0, y, 0, np.zeros(dim))


def mean_covariance(
    n: int, dim: int, *, adjacency: Adjacency, weights: tuple[float, float] = (1.0, 1.0)
) -> WorstCase:
    """Joint (mean, covariance centred on it, divided by n) of one class: FedPFT's Theorem 4.1.

    sqrt(4 w1^2 + 16 w2^2 (n-1)^2/n^2) / n: all other records at m, |m| = 1, and the one record moving
    from -m to m. It holds for all three families and for every dim, since one axis attains it. The paper
    states 2 sqrt(10)/n. Clipping to the non-negative orthant could only lower it.

    Raises:
        PlanError: unless the adjacency is `replace_one_same_label` (see `mean_second_moment`; the
            paper's noise scale depends on n besides).
    """
    check_records(n)
    if adjacency != "replace_one_same_label":
        raise PlanError(_MEANS_NEED_PUBLIC_COUNTS.format(adjacency))
    w1, w2 = _checked(weights)
    value = math.hypot(2 * w1, 4 * w2 * (n - 1) / n) / n
    return WorstCase(value, -unit(dim, 0), 0, unit(dim, 0), 0, unit(dim, 0))


def class_sums(
    dim: int,
    *,
    adjacency: Adjacency,
    classes: int = 2,
    family: Family = "full",
    nonnegative: bool = False,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> WorstCase:
    """Joint (count, sum x, sum x x^T) of EVERY class of a client: FedPFT where counts are private.

    Unweighted, dim >= 2: sqrt(3) under `add_remove`, sqrt(4.5) under `replace_one_same_label`, sqrt(6)
    under `replace_one` (the record leaves one class and enters another: all three fields of both change).
    """
    w0, w1, w2 = _checked(weights)
    one = math.sqrt(w0**2 + w1**2 + w2**2)
    zero, axis = np.zeros(dim), unit(dim, 0)
    if adjacency == "add_remove":
        return WorstCase(one, None, 0, axis, 0, zero)
    value, x, y = farthest_moments(dim, family, nonnegative, w1, w2)
    moved = math.sqrt(2) * one
    if adjacency == "replace_one" and classes > 1 and moved > value:
        return WorstCase(moved, axis, 1, axis, 0, zero)
    return WorstCase(value, x, 0, y, 0, zero)


def responsibility_sums(
    dim: int,
    *,
    adjacency: Adjacency,
    components: int = 2,
    family: Family = "full",
    nonnegative: bool = False,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> WorstCase:
    """Joint (sum r_k, sum r_k x, sum r_k x x^T) over mixture components k: one iteration of DP-EM.

    Park, Foulds, Choudhary and Welling, "DP-EM" (2017). A record's responsibilities r lie on the simplex,
    so it is a soft label; |r (x) v - s (x) u|^2 is convex in r and in s and so is largest at vertices:
    the value is that of `class_sums` with a label that may change, even where class labels may not.
    """
    soft: Adjacency = "add_remove" if adjacency == "add_remove" else "replace_one"
    return class_sums(
        dim, adjacency=soft, classes=components, family=family, nonnegative=nonnegative, weights=weights
    )


def shared_sums(
    dim: int,
    *,
    adjacency: Adjacency,
    classes: int = 2,
    nonnegative: bool = False,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> WorstCase:
    """Joint (class counts N, class sums A, one second-moment sum B over all classes): FedCGS.

    Unweighted, dim >= 2: sqrt(3) under `add_remove`, sqrt(4.5) under `replace_one_same_label`, sqrt(6)
    under `replace_one` (x and y orthogonal, so that B moves by sqrt(2)).
    """
    w0, w1, w2 = _checked(weights)
    zero, axis = np.zeros(dim), unit(dim, 0)
    if adjacency == "add_remove":
        return WorstCase(math.sqrt(w0**2 + w1**2 + w2**2), None, 0, axis, 0, zero)
    value, x, y = farthest_moments(dim, "full", nonnegative, w1, w2)
    if adjacency == "replace_one_same_label" or classes == 1:
        return WorstCase(value, x, 0, y, 0, zero)
    # A changed label makes the two class sums orthogonal: N moves by sqrt(2), A by hypot(|x|, |y|).
    if dim > 1:
        moved, other = math.sqrt(2 * (w0**2 + w1**2 + w2**2)), unit(dim, 1)
    else:
        moved = math.sqrt(2 * w0**2 + max(2 * w1**2, w1**2 + w2**2))
        other = axis if w1 >= w2 else zero
    if moved > value:
        return WorstCase(moved, axis, 1, other, 0, zero)
    return WorstCase(value, x, 0, y, 0, zero)


def count_sums(
    dim: int,
    *,
    adjacency: Adjacency,
    classes: int = 2,
    nonnegative: bool = False,
    weights: tuple[float, float] = (1.0, 1.0),
) -> WorstCase:
    """Joint (class counts N, class sums A): FedNCM and FedCOF.

    Unweighted: sqrt(2) under `add_remove`, 2 where a record is replaced (opposite features, or another label).
    """
    w0, w1 = _checked(weights)
    return shared_sums(dim, adjacency=adjacency, classes=classes, nonnegative=nonnegative, weights=(w0, w1, 0.0))


def ridge_sums(
    dim: int,
    *,
    adjacency: Adjacency,
    classes: int = 2,
    constant: bool = False,
    nonnegative: bool = False,
    weights: tuple[float, float] = (1.0, 1.0),
) -> WorstCase:
    """Joint (class sums A, Gram matrix B), without counts: ridge regression on one-hot labels.

    Unweighted, dim >= 2: sqrt(2) under `add_remove`, sqrt(4.5) under `replace_one_same_label`, the same under
    `replace_one` (an orthogonal record of another label moves by 2 only). Where the last feature is a `constant`
    1, z = (x, 1), as in Fed3R, and there are others: sqrt(6) under `add_remove`, since |z|^2 = 2. Where a record
    is replaced: sqrt(12) for any label, at y = -x, where z and w = (y, 1) are orthogonal.

    Derivation with the constant feature. Replacing z by w moves B by |z|^4 + |w|^4 - 2 <z, w>^2, convex in x for
    fixed y (its Hessian 4 (1 + |x|^2) I + 8 x x^T - 4 y y^T is positive where |y| <= 1), and A by |z|^2 + |w|^2,
    or |x - y|^2 where the label stays. So the largest is at unit vectors (or at 0, in the orthant), and there it
    falls with c = <x, y>: B by 8 - 2 (1 + c)^2, A by 4 or by 2 - 2 c.
    """
    w1, w2 = _checked(weights)
    if not constant:
        return shared_sums(
            dim, adjacency=adjacency, classes=classes, nonnegative=nonnegative, weights=(0.0, w1, w2)
        )
    one = unit(dim, dim - 1)
    if dim == 1:
        raise ValueError("dim must be at least 2 with a constant feature, which is the last of them")
    free, axis = dim - 1, unit(dim, 0)
    if adjacency == "add_remove":
        return WorstCase(math.sqrt(2 * w1**2 + 4 * w2**2), None, 0, axis + one, 0, one)
    changes = adjacency == "replace_one" and classes > 1
    label0 = 1 if changes else 0
    if not nonnegative:
        return WorstCase(math.sqrt(4 * w1**2 + 8 * w2**2), one - axis, label0, axis + one, 0, one)
    if free > 1:
        value = math.sqrt((4 if changes else 2) * w1**2 + 6 * w2**2)
        return WorstCase(value, unit(dim, 1) + one, label0, axis + one, 0, one)
    # On one axis of the orthant: a record at 0 against one at 1, or the same record under another label.
    value = math.sqrt((3 if changes else 1) * w1**2 + 3 * w2**2)
    if changes and 2 * w1 > value:
        return WorstCase(2 * w1, axis + one, 1, axis + one, 0, one)
    return WorstCase(value, one, label0, axis + one, 0, one)


def class_counts(*, adjacency: Adjacency, classes: int = 2) -> WorstCase:
    """Label histogram alone: 1 under `add_remove`, sqrt(2) under `replace_one`, 0 with the label fixed."""
    empty = np.zeros(0)
    if adjacency == "add_remove":
        return WorstCase(1.0, None, 0, empty, 0, empty)
    if adjacency == "replace_one" and classes > 1:
        return WorstCase(math.sqrt(2), empty, 1, empty, 0, empty)
    return WorstCase(0.0, empty, 0, empty, 0, empty)


def fedlog_sums(features: int, clip: float, *, adjacency: Adjacency, classes: int = 2) -> WorstCase:
    """FedLog's T = sum of (1, z) kron e_y, z in [-clip, clip]^(features - 1): one round.

    sqrt(1 + (m-1) b^2) under `add_remove` (the paper's), 2 b sqrt(m-1) with the label fixed, and the
    larger of that and sqrt(2 (1 + (m-1) b^2)) under `replace_one`. The body that computes z is taken as
    fixed: if it was trained on the same records this is not the whole release.

    Args:
        features: m, including the constant feature.
        clip: b, greater than 0.
        adjacency: which neighbours.
        classes: number of classes; with one, a label cannot change.

    Returns:
        Records hold the m - 1 free features, without the constant.
    """
    if features < 1 or not clip > 0:
        raise ValueError(f"features must be at least 1 and clip greater than 0, got {features}, {clip}")
    corner = np.full(features - 1, clip)
    zero = np.zeros(features - 1)
    one = math.sqrt(1 + (features - 1) * clip**2)
    if adjacency == "add_remove":
        return WorstCase(one, None, 0, corner, 0, zero)
    same_label = 2 * clip * math.sqrt(features - 1)
    if adjacency == "replace_one" and classes > 1 and math.sqrt(2) * one > same_label:
        return WorstCase(math.sqrt(2) * one, corner, 1, corner, 0, zero)
    return WorstCase(same_label, -corner, 0, corner, 0, zero)


def magnitude_sum(dim: int, clip: float, *, adjacency: Adjacency) -> WorstCase:
    """Sum of non-negative vectors clipped to L2 norm `clip`: FedDiff's Fourier magnitudes.

    clip under `add_remove`; sqrt(2) clip when one is replaced (orthogonal vectors are the furthest apart
    in the orthant; clip if dim = 1). Labels play no part.
    """
    if not clip > 0:
        raise ValueError(f"clip must be greater than 0, got {clip}")
    first, zero = clip * unit(dim, 0), np.zeros(dim)
    if adjacency == "add_remove":
        return WorstCase(clip, None, 0, first, 0, zero)
    if dim == 1:
        return WorstCase(clip, zero, 0, first, 0, zero)
    return WorstCase(math.sqrt(2) * clip, clip * unit(dim, 1), 0, first, 0, zero)


def vector_sum(dim: int, clip: float, *, adjacency: Adjacency) -> WorstCase:
    """Sum of vectors of any sign clipped to L2 norm `clip`: gradients.

    clip under `add_remove`; 2 clip when one is replaced (by its opposite). Labels play no part.
    """
    if not clip > 0:
        raise ValueError(f"clip must be greater than 0, got {clip}")
    first, zero = clip * unit(dim, 0), np.zeros(dim)
    if adjacency == "add_remove":
        return WorstCase(clip, None, 0, first, 0, zero)
    return WorstCase(2 * clip, -first, 0, first, 0, zero)


_MEANS_NEED_PUBLIC_COUNTS = (
    "adjacency: under {!r} the number of records that a mean divides by is private, and a mean released "
    "with it has no finite guarantee; allowed for means: replace_one_same_label (release noised sums and "
    "counts for the others)"
)


def check_records(n: int) -> None:
    """Refuse fewer than one record."""
    if n < 1:
        raise ValueError(f"n must be at least 1 record, got {n}")


def _checked(weights: _Weights) -> _Weights:
    if not all(math.isfinite(w) and w >= 0 for w in weights):
        raise ValueError(f"weights must be finite and at least 0, got {weights}")
    return weights
