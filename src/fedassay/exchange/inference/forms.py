"""Convert correlations, principal axes and clusters to the equivalent sums.

| sent | follows | exact |
|---|---|---|
| correlation R, deviations s | covariance diag(s) R diag(s) | always |
| principal axes V (k, d), variances v or singular values | covariance V' diag(v) V | k at least min(n - 1, d) |
| singular values s and vectors V without a mean | second moment V' diag(s^2) V | k at least min(n, d) |
| left vectors U beside them | the records U diag(s) V, and the mean | likewise |
| centroids, the cluster of each record | counts of the clusters | always |

Histograms, quantiles, and deviations without a correlation hold no product of two features: they are reported, and
not converted to sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.kinds import FieldKind
from fedassay.support.types import Matrix

FORMED: tuple[FieldKind, ...] = (
    *("correlation", "axes", "histogram", "quantiles", "deviations", "variances"),
    *("axis_variances", "singular_values", "left_vectors", "bin_edges"),
)
"""Kinds of statistics in such forms."""

NEAR = 1e-6
HALF = 4e-3
"""Relative differences that count as rounding in single and in half precision."""
_COLUMNS = ("v", "eigenvectors", "eigvecs")
"""Names under which libraries store axes as columns; a square matrix does not show its order."""


@dataclass(frozen=True)
class Formed:
    """Fields with the kinds and values that they are read as, and why.

    Attributes:
        fields: Kind and values by name.
        text: A sentence that explains the reading.
    """

    fields: dict[str, tuple[FieldKind, NDArray[Any]]]
    text: str


@dataclass(frozen=True)
class Held:
    """The statistics of one message by kind, populations along the first side.

    Attributes:
        names: Field of each kind.
        values: Its array in float64.
        groups: Number of populations, or clusters.
        counts: Records of each, shape (P,); None: not sent.
    """

    names: dict[FieldKind, str]
    values: dict[FieldKind, Matrix]
    groups: int
    counts: Matrix | None

    @property
    def means(self) -> Matrix | None:
        """Means of the populations, shape (P, d); None where they neither are sent nor follow from sums."""
        means, sums = self.values.get("class_means"), self.values.get("class_sums")
        if means is not None:
            return means.reshape(self.groups, -1)
        if sums is None or self.counts is None or not self.counts.all():
            return None
        return sums.reshape(self.groups, -1) / self.counts[:, None]


def orthonormal(rows: Matrix) -> bool:
    """Whether rows have length 1 and are orthogonal."""
    return bool(np.abs(rows @ rows.T - np.eye(len(rows))).max() < 2 * HALF)


def _of_correlation(held: Held) -> Formed | None:
    """Return the covariance, diag(s) R diag(s), of a correlation R and deviations s."""
    matrix = held.values.get("correlation")
    if matrix is None:
        return None
    name = held.names["correlation"]
    spread = "deviations" if "deviations" in held.names else "variances"
    if spread not in held.values:
        return Formed({}, f"{name} is a correlation; no covariance follows without standard deviations")
    scale = held.values[spread].reshape(held.groups, -1)
    scale = np.sqrt(scale) if spread == "variances" else scale
    if matrix.shape[1] != scale.shape[1]:
        return None
    found = matrix * scale[:, :, None] * scale[:, None, :]
    text = f"{name} and {held.names[spread]} are read as the covariance that they make"
    return Formed({name: ("class_covariances", found)}, text)


def _of_axes(held: Held) -> Formed | None:
    """Return the covariance, second moment or records that principal axes and the lengths along them give."""
    axes = _rows(held)
    if axes is None:
        return None
    name, along = held.names["axes"], held.values.get("singular_values")
    lengths = held.values.get("axis_variances") if along is None else along
    if lengths is None:
        return Formed({}, f"{name} are directions of features; no sum follows without their lengths")
    count, kept = _count(held), len(axes)
    centred = held.means is not None or along is None
    most = axes.shape[1] if count is None else min(count - centred, axes.shape[1])
    whole = bool(lengths.min() <= NEAR * lengths.max()) or kept >= most
    if not whole and (count is not None or centred):
        return Formed({}, _truncated(name, kept, most, count))
    left = held.values.get("left_vectors")
    if left is not None and along is not None and left.shape[1] == kept:
        records = (left * along) @ axes + (0 if held.means is None else held.means)
        text = f"{held.names['left_vectors']}, {held.names['singular_values']} and {name} are read as the records"
        return Formed({held.names["left_vectors"]: ("features", records)}, f"{text} whose decomposition they are")
    if along is not None and not centred:
        moment = (axes.T * np.square(along)) @ axes
        text = f"{name} and {held.names['singular_values']} are read as the second moment that they decompose"
        more = "" if whole else f", which it is of at most {kept} records"
        return Formed({name: ("second_moment", moment)}, text + more)
    variances = held.values.get("axis_variances")
    if variances is None:
        if count is None or count < 2:
            return Formed({}, f"{name} are principal axes; no covariance follows without a count")
        variances = np.square(lengths) / (count - 1)
    covariance = ((axes.T * variances) @ axes)[None]
    fields: dict[str, tuple[FieldKind, NDArray[Any]]] = {name: ("class_covariances", covariance)}
    if held.counts is None and count is not None:
        fields[held.names["axis_variances"]] = ("class_counts", np.array([count]))
    return Formed(fields, f"{name} and what lies along them are read as the covariance that they decompose")


def _truncated(name: str, kept: int, most: int, count: int | None) -> str:
    of = f"{most} that {count} records may have" if count is not None else f"at most {most}"
    return (
        f"{name} keep {kept} directions of {of}: the covariance is not whole, so that attacks that need exact "
        "second moments do not apply"
    )


def _rows(held: Held) -> Matrix | None:
    """Return the axes as rows, shape (k, d); None where the lengths do not fit, or they are not orthonormal."""
    axes = held.values.get("axes")
    if axes is None or axes.ndim != 2 or held.groups != 1:
        return None
    along = held.values.get("singular_values", held.values.get("axis_variances"))
    kept = min(axes.shape) if along is None else along.size
    turned = axes.shape[0] != kept
    if axes.shape[0] == axes.shape[1]:
        turned = held.names["axes"].rpartition("/")[2].casefold() in _COLUMNS
    rows = axes.T if turned else axes
    return rows if len(rows) == kept and orthonormal(rows) else None


def _count(held: Held) -> int | None:
    """Return the number of records n: as sent, from the n - 1 axes of positive length, or from s^2 / v = n - 1."""
    if held.counts is not None:
        return int(held.counts[0])
    along, variances = held.values.get("singular_values"), held.values.get("axis_variances")
    lengths = variances if along is None else along
    if lengths is None or held.means is None:
        return None
    if lengths.min() <= NEAR * lengths.max():
        return 1 + int((lengths > NEAR * lengths.max()).sum())
    if along is None or variances is None or along.shape != variances.shape:
        return None
    found = np.square(along[0]) / variances[0] + 1
    return int(np.rint(found)) if abs(found - np.rint(found)) < HALF * found else None


def _of_clusters(held: Held) -> Formed | None:
    """Count the records of each cluster from the cluster of each record."""
    labels, means = held.values.get("labels"), held.values.get("class_means")
    if labels is None or means is None or means.ndim != 2 or held.counts is not None or labels.ndim != 1:
        return None
    if (labels < 0).any() or (labels != np.rint(labels)).any() or labels.max(initial=0) >= len(means):
        return None
    counts = np.bincount(labels.astype(np.int64), minlength=len(means))
    name = held.names["labels"]
    text = (
        f"{name} say in which cluster each record is, and so how many records {held.names['class_means']} are of"
    )
    return Formed({name: ("class_counts", counts)}, text)


def _of_bins(held: Held) -> Formed | None:
    """Describe a histogram, and count its bins that hold one record."""
    values = held.values.get("histogram")
    if values is None:
        return None
    alone = int((values == 1).sum())
    seen = f"{alone or 'none'} of its {values.size} bins hold{'s'[: alone < 2]} one record"
    return Formed({}, f"{held.names['histogram']} is a histogram: {seen}. {_NO_PRODUCTS}")


def _of_spreads(held: Held) -> Formed | None:
    """Describe quantiles, or means and deviations feature by feature."""
    kind = next((kind for kind in ("quantiles", "deviations", "variances") if kind in held.values), None)
    if kind is None or (kind != "quantiles" and held.means is None):
        return None
    few = (
        ""
        if held.counts is None or not (held.counts == 2).any() or kind == "quantiles"
        else ("; of 2 records both values of every feature follow from its mean and spread")
    )
    return Formed({}, f"{held.names[kind]} speaks of every feature by itself{few}. {_NO_PRODUCTS}")


_NO_PRODUCTS = "No product of two features is sent, so that attacks that factor second moments do not apply"
FORMS: tuple[Callable[[Held], Formed | None], ...] = (
    _of_correlation,
    _of_axes,
    _of_clusters,
    _of_bins,
    _of_spreads,
)
