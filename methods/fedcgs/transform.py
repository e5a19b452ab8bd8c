"""The map that FedCGS applies to features before their statistics: expansion, and clipping under privacy."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fedassay.contracts.method import MethodInput
from fedassay.methods.fedcgs.expansion import Expansion, make_expansion
from fedassay.privacy.mechanisms import clip_features
from fedassay.support.errors import PlanError
from fedassay.support.types import Floats


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
