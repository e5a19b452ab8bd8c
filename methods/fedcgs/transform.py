"""The map that FedCGS applies to features before their statistics: expansion, and clipping under privacy.

Expansion is one random projection with a nonlinearity, shared by all clients. The FedCGS head is linear in its
features; wider random features make the classes more nearly separable by a plane, at the price of messages that
grow with the square of the width (Guan et al. 2025, section 3.3). The projection depends on a public seed only, so
it reveals nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from fedassay.contracts.method import MethodInput
from fedassay.privacy.mechanisms import clip_features
from fedassay.support.errors import PlanError
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


@dataclass(frozen=True)
class Transform:
    """The map applied to features before the head, equal to the one before the statistics."""

    expand: Expansion | None
    clip: bool

    def __call__(self, features: Floats) -> Floats:
        """Return features (n, d) as the statistics and the head use them."""
        if self.expand is not None:
            features = self.expand(features)
        return clip_features(features, nonnegative=self.expand is not None) if self.clip else features


def make_transform(width: int, clip: bool, task: MethodInput) -> Transform:
    """The transform of a run.

    Args:
        width: Width of the shared random features (Guan et al. 2025, "Feature expansion"); 0: none.
        clip: Whether features are clipped to norm 1.
        task: Seeds and backbone.

    Raises:
        PlanError: The second moment of so wide features does not fit into this machine's memory.
    """
    if not width:
        return Transform(None, clip)
    needed = 8 * width * (4 * width + task.backbone.width)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise PlanError(
            f"fedcgs: expansion {width} needs {needed / 2**30:.1f} GiB for its second moment; "
            f"this machine has {memory / 2**30:.1f} GiB"
        )
    return Transform(make_expansion(task.backbone.width, width, task.seeds.numpy("expansion")), clip)
