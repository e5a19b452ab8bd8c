"""Feature expansion: one random projection with a nonlinearity, shared by all clients.

The FedCGS head is linear in its features; wider random features make the classes more nearly separable by a plane,
at the price of messages that grow with the square of the width (Guan et al. 2025, section 3.3). The projection
depends on a public seed only, so it reveals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.support.types import Floats, Matrix


@dataclass(frozen=True)
class Expansion:
    """f -> max(f R, 0), R of shape (d, width) with independent N(0, 2 / width) entries.

    The variance keeps the expected squared norm of a feature vector.

    Attributes:
        matrix: R.
    """

    matrix: Matrix

    def __call__(self, features: Floats) -> Matrix:
        """Expand features (n, d) to (n, width)."""
        return np.maximum(np.asarray(features, dtype=np.float64) @ self.matrix, 0.0)


def make_expansion(features: int, width: int, generator: np.random.Generator) -> Expansion:
    """Draw the shared projection.

    Args:
        features: Feature width d.
        width: Width after expansion, at least 1.
        generator: Public randomness.

    Raises:
        ValueError: The width is not positive.
    """
    if width < 1:
        raise ValueError(f"make_expansion: width must be at least 1, given {width}")
    return Expansion(generator.standard_normal((features, width)) * np.sqrt(2.0 / width))
