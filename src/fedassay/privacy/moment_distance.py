"""The largest distance between the first and second moments of two records, and the records that attain it.

Records have L2 norm at most 1. Replacing x by y with the same label moves (w1 x, w2 x x^T) by

    w1^2 (|x|^2 + |y|^2 - 2c) + w2^2 (|x|^4 + |y|^4 - 2c^2),  c = <x, y>,

which grows with both norms, so |x| = |y| = 1 and c = -w1^2 / (2 w2^2) if that is at least -1:
unweighted c = -1/2 and sqrt(4.5). In two dimensions x = (cos t, sin t), y = (-sin t, -cos t)
with sin 2t = -c attains it with a DIAGONAL x x^T - y y^T, so the diagonal family, and noise
that is not isometric off the diagonal (FedPFT's papers), have the very same sensitivity.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedassay.privacy.symmetric import Family


def farthest_moments(
    dim: int, family: Family, nonnegative: bool, w1: float, w2: float
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Largest |(w1 (x-y), w2 (m(x) - m(y)))|, m the family's second moment, and x, y that attain it.

    Args:
        dim: length of the records, at least 1.
        family: the part of the second moment that is kept.
        nonnegative: whether records lie in the non-negative orthant.
        w1: weight of the first moment, at least 0.
        w2: weight of the second, at least 0.

    Returns:
        The distance, and the two records, shape (dim,) each.
    """
    scale = max(w1, w2)
    if scale not in (0.0, 1.0):  # the squares below must neither overflow nor vanish
        value, x, y = farthest_moments(dim, family, nonnegative, w1 / scale, w2 / scale)
        return scale * value, x, y
    first = unit(dim, 0)
    plane = family != "spherical" and dim > 1
    if nonnegative:
        # <x, y> >= 0 here, so orthogonal records are the furthest apart; on one axis, 1 and 0.
        if plane:
            return math.sqrt(2 * w1**2 + 2 * w2**2), first, unit(dim, 1)
        if dim > 1 and w1 > w2:  # spherical: two unit vectors have the same norm, so only the mean moves
            return math.sqrt(2) * w1, first, unit(dim, 1)
        return math.hypot(w1, w2), first, np.zeros(dim)
    if plane:
        if w1**2 >= 2 * w2**2:
            return 2 * w1, first, -first
        angle = 0.5 * math.asin(w1**2 / (2 * w2**2))
        x, y = np.zeros(dim), np.zeros(dim)
        x[:2] = math.cos(angle), math.sin(angle)
        y[:2] = -math.sin(angle), -math.cos(angle)
        return (w1**2 + 2 * w2**2) / (math.sqrt(2) * w2), x, y
    # On one axis (or for the trace, where only norms and the distance count): x = 1, y = 1 - t gives
    # t^2 (w1^2 + w2^2 (2 - t)^2), largest at t = 2 or at its one interior local maximum.
    steps = [2.0]
    if 2 * w1**2 <= w2**2 and w2 > 0:
        steps.append((3 - math.sqrt(1 - 2 * w1**2 / w2**2)) / 2)
    value, step = max((t * math.hypot(w1, w2 * (2 - t)), t) for t in steps)
    return value, first, (1 - step) * first


def unit(dim: int, index: int) -> NDArray[np.float64]:
    """The unit vector along one axis, shape (dim,)."""
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    along = np.zeros(dim)
    along[index] = 1.0
    return along
