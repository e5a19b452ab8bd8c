"""Agreement within groups of images: how an adversary ranks its own reconstructions without the truth."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch

from fedassay.similarity.ssim import ssim
from fedassay.support.types import Images, Ints, Matrix


def group_agreement(groups: Images, *, device: str | torch.device = "cpu") -> tuple[Matrix, Ints]:
    """Mean pairwise SSIM of each group, and its medoid.

    Args:
        groups: Shape (n, k, H, W, C), k at least 2.
        device: Device of the computation.

    Returns:
        Agreement, shape (n,), and the index in 0..k-1 of the image most like the others, shape (n,).

    Raises:
        ValueError: Fewer than 2 images a group.
    """
    n, k = groups.shape[:2]
    if k < 2:
        raise ValueError(f"agreement needs at least 2 images a group, given {k}")
    table = np.zeros((n, k, k))
    for first, second in combinations(range(k), 2):
        values = ssim(groups[:, first], groups[:, second], device=device)
        table[:, first, second] = table[:, second, first] = values
    per_image = table.sum(axis=2) / (k - 1)
    return per_image.mean(axis=1), per_image.argmax(axis=1).astype(np.int64)
