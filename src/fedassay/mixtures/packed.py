"""The one representation of mixtures: concatenated over groups, packed as a message carries it.

A group is the set that one mixture was fitted to: the records of one class at one client. With P groups and
S components in all, the arrays are the ones of a FedPFT message: `components` and `counts` (P,),
`weights` (S,), `means` (S, d), `covariances` by family: `full` (S, d(d+1)/2), the lower triangle row
by row; `diag` (S, d), the variances; `spherical` (S,), one variance a component.

Float16 transport. Variances are affected most: below 2^-24 (6e-8) they would become 0, above 65504 infinite.
Positive diagonal entries are therefore raised to 2^-24 before rounding, the covariances of `full` are symmetric by
construction (one triangle is sent), and the receiver restores the definiteness that rounding can destroy: see
`from_transport`. A magnitude beyond float16 raises an error that names the remedy, and never becomes an infinity;
values with noise may be clipped to the range instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Ints, Matrix

Family = Literal["diag", "full", "spherical"]
"""Covariance families: a variance per feature, a whole matrix, one variance."""

Transport = Literal["float16", "float32", "float64"]

RECEIVED_FLOOR = 1e-4
"""Smallest eigenvalue of a received covariance, relative to its mean variance (see `from_transport`)."""


@dataclass(frozen=True)
class Mixtures:
    """Gaussian mixtures of P groups, S components in all, over d features.

    Attributes:
        family: The covariance family.
        components: Components per group, shape (P,).
        counts: Records per group, shape (P,): how many the receiver samples.
        weights: Component weights, shape (S,), summing to one in each group.
        means: Component means, shape (S, d).
        covariances: Packed covariances; shape by family, see the module's description.
    """

    family: Family
    components: Ints
    counts: Ints
    weights: Matrix
    means: Matrix
    covariances: Matrix

    def __post_init__(self) -> None:
        total, width = int(self.components.sum()), self.means.shape[-1]
        sides = {"full": (total, width * (width + 1) // 2), "diag": (total, width), "spherical": (total,)}
        shapes = {
            "components": (self.components.shape, self.counts.shape),
            "weights": (self.weights.shape, (total,)),
            "means": (self.means.shape, (total, width)),
            "covariances": (self.covariances.shape, sides[self.family]),
        }
        for name, (given, expected) in shapes.items():
            if given != expected:
                raise ValueError(
                    f"{self.family} mixtures of {total} components: {name} has shape {given}, not {expected}"
                )

    @property
    def groups(self) -> int:
        """Number of mixtures P."""
        return int(self.components.size)

    @property
    def width(self) -> int:
        """Feature width d."""
        return int(self.means.shape[1])

    @property
    def group_of_component(self) -> Ints:
        """The group each component belongs to, shape (S,)."""
        return np.repeat(np.arange(self.groups), self.components)

    def spans(self) -> Iterator[slice]:
        """The slice of the component axis of each group, in order."""
        ends = np.cumsum(self.components)
        return (slice(int(end - size), int(end)) for size, end in zip(self.components, ends, strict=True))

    def select(self, groups: Sequence[int] | Ints) -> Mixtures:
        """The mixtures of some groups, in the order given."""
        chosen = np.asarray(groups, dtype=np.int64)
        sizes, first = self.components[chosen], np.cumsum(self.components) - self.components
        before = np.cumsum(sizes) - sizes
        rows = np.arange(int(sizes.sum())) + np.repeat(first[chosen] - before, sizes)
        return Mixtures(
            self.family,
            self.components[chosen],
            self.counts[chosen],
            self.weights[rows],
            self.means[rows],
            self.covariances[rows],
        )


def concatenate(parts: Sequence[Mixtures]) -> Mixtures:
    """All groups of several mixtures, in order.

    Raises:
        ValueError: Nothing is given, or the families or widths differ.
    """
    if not parts:
        raise ValueError("concatenate: at least one set of mixtures is needed")
    if len({(part.family, part.width) for part in parts}) > 1:
        raise ValueError("concatenate: the mixtures must share one covariance family and one width")
    return Mixtures(
        parts[0].family,
        np.concatenate([part.components for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.means for part in parts]),
        np.concatenate([part.covariances for part in parts]),
    )


def parameters_sent(family: Family, width: int, components: int) -> int:
    """Parameters of mixtures with `components` components in all (Beitollahi et al. 2024, equations 9 to 11).

    Full: (2d + (d^2 - d)/2 + 1) K C, diag: (2d + 1) K C, spherical: (d + 2) K C, without counts.
    """
    each = {"full": 2 * width + (width * width - width) // 2 + 1, "diag": 2 * width + 1, "spherical": width + 2}
    return each[family] * components


@lru_cache(maxsize=8)
def _lower(width: int) -> tuple[Ints, Ints]:
    """Rows and columns of a lower triangle, which every class of every client asks for."""
    rows, columns = np.tril_indices(width)
    return rows, columns


def pack_lower(matrices: Floats) -> Matrix:
    """Lower triangles of symmetric matrices, (..., d, d) to (..., d(d+1)/2), row by row."""
    rows, columns = _lower(matrices.shape[-1])
    return np.asarray(matrices[..., rows, columns], dtype=np.float64)


def unpack_lower(packed: Floats) -> Matrix:
    """Symmetric matrices from their lower triangles, (..., d(d+1)/2) to (..., d, d).

    Raises:
        ValueError: The last side is no triangular number.
    """
    size = packed.shape[-1]
    width = (int(np.sqrt(8 * size + 1)) - 1) // 2
    if width * (width + 1) // 2 != size:
        raise ValueError(f"unpack_lower: {size} entries are no lower triangle (d(d+1)/2 of them)")
    rows, columns = _lower(width)
    matrices = np.empty((*packed.shape[:-1], width, width))
    matrices[..., rows, columns] = packed
    matrices[..., columns, rows] = packed
    return matrices


def side_of_triangle(size: int) -> int:
    """The side d of a triangle of d(d+1)/2 entries; 0 where they make none."""
    side = (math.isqrt(8 * size + 1) - 1) // 2
    return side if side * (side + 1) // 2 == size else 0


def at_limit(sent: Floats) -> int:
    """Return how many entries of an array have the largest magnitude of its type, as clipped ones do."""
    return int((np.abs(sent) == np.finfo(sent.dtype).max).sum())


def to_transport(
    values: Floats, transport: Transport, what: str, positive: Ints | None = None, *, clip: bool = False
) -> Floats:
    """Round an array to the type it travels in.

    Args:
        values: Any array of floats.
        transport: The type.
        what: Name of the array, for the message of an error.
        positive: Indices along the last axis that must stay positive (variances); they are raised to
            the smallest positive value of the type.
        clip: Clip magnitudes to the range instead of refusing them: for noised arrays.

    Raises:
        DataError: A magnitude is beyond the type's range, or there is a NaN.
    """
    kind = np.dtype(transport)
    limit = float(np.finfo(kind).max)
    if clip:
        values = np.clip(values, -limit, limit)
    largest = float(np.abs(values).max(initial=0.0))
    if not largest <= limit:
        raise DataError(
            f"{what}: magnitude {largest:.3g} does not fit {transport} (at most {limit:.5g}); "
            "use transport float32, or scale the features"
        )
    if positive is not None:
        values = np.array(values)
        values[..., positive] = np.maximum(values[..., positive], float(np.finfo(kind).smallest_subnormal))
    return values.astype(kind)


def diagonal_index(family: Family, width: int) -> Ints:
    """Return the places of variances on the last axis of packed covariances (a single column for spherical)."""
    if family == "full":
        steps = np.arange(1, width + 1, dtype=np.int64)
        return steps * (steps + 1) // 2 - 1
    return np.arange(width if family == "diag" else 1, dtype=np.int64)


def from_transport(
    family: Family, components: Ints, counts: Ints, weights: Floats, means: Floats, covariances: Floats
) -> Mixtures:
    """Mixtures from the arrays of a message, valid again after rounding.

    Weights are normalised within each group. Variances of `diag` and `spherical` are raised to at
    least `RECEIVED_FLOOR` times the component's mean variance only where they are not positive;
    covariances of `full` that have lost definiteness get their eigenvalues raised to that floor.

    Raises:
        ValueError: Shapes contradict each other, or a group's weights sum to nothing.
    """
    weights = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    received = np.asarray(covariances, dtype=np.float64)
    groups = np.repeat(np.arange(components.size), components)
    total = np.bincount(groups, weights=weights, minlength=components.size)
    if not (total > 0).all():
        raise ValueError(f"mixture {int(np.argmin(total))}: the component weights sum to 0")
    if family == "full":
        received = pack_lower(project_psd(unpack_lower(received), RECEIVED_FLOOR))
    else:
        tiny = float(np.finfo(np.float16).smallest_subnormal)
        spread = received if family == "spherical" else received.mean(axis=1, keepdims=True)
        floor = np.maximum(RECEIVED_FLOOR * spread, tiny)
        received = np.where(received > 0, received, floor)
    return Mixtures(
        family,
        np.asarray(components, dtype=np.int64),
        np.asarray(counts, dtype=np.int64),
        weights / total[groups],
        np.asarray(means, dtype=np.float64),
        received,
    )


def project_psd(matrices: Matrix, floor: float) -> Matrix:
    """Raise the eigenvalues of symmetric matrices to `floor` times their mean variance, where needed.

    The nearest matrix in Frobenius norm among those with no smaller eigenvalue. A matrix that is
    definite already comes back unchanged, bit by bit.

    Args:
        matrices: Shape (..., d, d), symmetric.
        floor: Positive, relative to trace / d (or to the mean magnitude of the diagonal where the
            trace is not positive, as heavy noise can make it).
    """
    width = matrices.shape[-1]
    flat = matrices.reshape(-1, width, width).copy()
    for index, matrix in enumerate(flat):
        diagonal = np.diagonal(matrix)
        mean = float(diagonal.mean())
        scale = mean if mean > 0 else float(np.abs(diagonal).mean())
        least = max(floor * scale, float(np.finfo(np.float64).tiny))
        if _definite(matrix, least):
            continue
        values, vectors = np.linalg.eigh(matrix)
        raised = (vectors * np.maximum(values, least)) @ vectors.T
        flat[index] = (raised + raised.T) / 2
    return flat.reshape(matrices.shape)


def _definite(matrix: Matrix, least: float) -> bool:
    # Cholesky of the shifted matrix costs a tenth of an eigendecomposition.
    try:
        np.linalg.cholesky(matrix - least * np.eye(matrix.shape[0]))
    except np.linalg.LinAlgError:
        return False
    return True
