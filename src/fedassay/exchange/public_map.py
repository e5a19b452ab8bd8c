"""Public maps of features before the sum: random projections, and random Fourier features.

Both are random draws that clients and server share, so the server makes them known in its messages: R as a field
of kind `projection`, and c beside it as `phases`, where there are any. They hide nothing: any receiver can map
features of its own in the same way.

Of features f of width w, d columns of R and phases c:

- without phases, R^T f;
- with phases, z = sqrt(2 / d) cos(R^T f + c); inner products approximate the Gaussian kernel exp(-|f - g|^2 / (2
  b^2)) where R has independent N(0, 1 / b^2) entries and c is uniform in [0, 2 pi) (Rahimi and Recht, "Random
  Features for Large-Scale Kernel Machines", 2007).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import public
from fedassay.exchange.view import View
from fedassay.support.types import Floats, Matrix

_COMPARED = 2000
"""Maximum number of records with compared distances."""


@dataclass(frozen=True, eq=False)
class PublicMap:
    """A public map of features, in the type that it is sent in.

    Attributes:
        matrix: R, shape (w, d), float32.
        phases: c, shape (d,), float32; None: the map is linear.
    """

    matrix: NDArray[np.float32]
    phases: NDArray[np.float32] | None = None

    def __call__(self, features: Floats) -> Matrix:
        """Map features (n, w) to (n, d)."""
        rows = np.asarray(features, np.float64) @ self.matrix.astype(np.float64)
        if self.phases is None:
            return rows
        return np.asarray(math.sqrt(2 / len(self.phases)) * np.cos(rows + self.phases))

    def broadcast(self, receivers: Iterable[str]) -> list[Message]:
        """The server's messages that make it known."""
        fields = {"R": MessageField(self.matrix, "projection", public("from a seed that all share"))}
        if self.phases is not None:
            fields["c"] = MessageField(self.phases, "phases", public("from a seed that all share"))
        return [Message(0, SERVER, name, fields) for name in receivers]


def projection(width: int, size: int, generator: np.random.Generator) -> PublicMap:
    """R with independent N(0, 1 / w) entries, which keeps squared norms times d / w in the mean."""
    return PublicMap((generator.standard_normal((width, size)) / math.sqrt(width)).astype(np.float32))


def fourier_features(width: int, size: int, bandwidth: float, generator: np.random.Generator) -> PublicMap:
    """Random Fourier features of a Gaussian kernel with standard deviation `bandwidth`."""
    matrix = generator.standard_normal((width, size)) / bandwidth
    phases = generator.uniform(0, 2 * math.pi, size)
    return PublicMap(matrix.astype(np.float32), phases.astype(np.float32))


def separating_bandwidth(features: Floats) -> float:
    """The bandwidth at which random features of any two records are as good as orthogonal.

    At a quarter of a distance the kernel is exp(-8) = .0003. Sums of such features hold every record apart from
    all others: what a gallery lacks does not hide those that it has. No source is known to us; it is what a hash
    table does.

    Args:
        features: Of the server's own records, shape (n, w), n at least 2. What counts is the 5 % quantile of their
            distances above 0 to the nearest other one.
    """
    rows = np.asarray(features, np.float64)[:_COMPARED]
    squares = (rows**2).sum(axis=1)
    apart = np.maximum(squares[:, None] + squares[None] - 2 * rows @ rows.T, 0)
    np.fill_diagonal(apart, np.inf)
    nearest = np.sqrt(apart.min(axis=1, initial=np.inf))
    known = nearest[np.isfinite(nearest) & (nearest > 1e-6 * float(np.sqrt(squares.max(initial=0.0))))]
    return float(np.quantile(known, 0.05)) / 4 if len(known) else 1.0


def public_map(view: View, width: int) -> PublicMap | None:
    """The map of features of this width that a view makes known; None where it makes none known."""
    for message in view.messages:
        matrix, phases = message.of_kind("projection"), message.of_kind("phases")
        if matrix is not None and len(matrix) == width:
            return PublicMap(matrix.astype(np.float32), None if phases is None else phases.astype(np.float32))
    return None


def as_summed(view: View, features: Floats, width: int) -> Matrix | None:
    """Features (n, w) as the clients of a view sum them up (n, width), or None where the view does not say how.

    A constant last feature, as of ridge regression with an intercept, is appended where sums are wider by one.
    """
    known = public_map(view, features.shape[1])
    rows = np.asarray(features, np.float64) if known is None else known(features)
    if rows.shape[1] + 1 == width:
        rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    return rows if rows.shape[1] == width and np.isfinite(rows).all() else None
