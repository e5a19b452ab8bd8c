"""Distance of generated images to training images, relative to their surroundings.

For a generated image x' with nearest training image x and the set S of its n nearest
training images, x among them, the score is

    l(x') = d(x', x) / (alpha * mean of d(x', y) over y in S),

d the Euclidean distance over pixels (Carlini et al. 2023, as used by FedDiff, section 5.2, equation 4, with alpha
= 0.5 and n = 50). It is at most 1 / alpha; under 1 counts as memorized. Duplicates in the training set hide
memorization: an image with n copies there has n equal distances and scores 1 / alpha, even if its copy is exact.
Deduplicate first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedassay.similarity.images import check_images, check_same_size
from fedassay.similarity.nearest import stream_top_k_l2
from fedassay.support.progress import Advance, no_progress

BLOCK = 1024


@dataclass(frozen=True)
class MemorizationScores:
    """Scores of N generated images.

    Attributes:
        scores: (N,), from 0 to 1 / alpha.
        nearest: (N,), position of the nearest training image; of equal ones the lowest.
        distance: (N,), Euclidean distance to it over pixels on [0, 1].
        neighbours: how many neighbours the mean runs over: n, or all training images where there
            are fewer. Scores with fewer neighbours are not comparable with those of the papers.
    """

    scores: NDArray[np.float64]
    nearest: NDArray[np.int64]
    distance: NDArray[np.float64]
    neighbours: int


def memorization_scores(
    generated: NDArray[Any] | Iterable[NDArray[Any]],
    training: NDArray[Any],
    *,
    n: int = 50,
    alpha: float = 0.5,
    device: str | torch.device = "cpu",
    progress: Advance = no_progress,
) -> MemorizationScores:
    """Memorization score of each generated image.

    An exact copy scores 0, even where all its n neighbours are copies too.

    Args:
        generated: (N, H, W) or (N, H, W, C), uint8 or float in [0, 1]; or an iterable of such
            blocks, which are dropped as soon as they are scored.
        training: (M, H, W) or (M, H, W, C), the same image size, M at least 2.
        n: size of the neighbourhood, at least 2. With fewer training images all are taken,
            and the result's `neighbours` says so.
        alpha: scale of the score.
        device: where to compute.
        progress: called with (images scored, images in all); the total is 0 while it is unknown.

    Raises:
        ValueError: fewer than two training images, n under 2, alpha not positive, images of
            another type, range or size.
    """
    training = check_images(training, "training")
    if n < 2 or len(training) < 2:
        raise ValueError(f"n = {n} with {len(training)} training images: a neighbourhood holds at least 2")
    if not alpha > 0:
        raise ValueError(f"alpha = {alpha}: must be positive")
    neighbours = min(n, len(training))
    total = len(generated) if isinstance(generated, np.ndarray) else 0
    # Distances between 8-bit images are exact on their own scale.
    scale = 255 if training.dtype == np.uint8 else 1
    scores, nearest, distance = [], [], []
    done = 0
    blocks = _blocks(generated, training, scale)
    for found in stream_top_k_l2(blocks, _on_scale(training, scale), neighbours, device=device):
        closest, mean = found.distances[:, 0] / scale, found.distances.mean(axis=1) / scale
        # Where the mean is 0 so is the closest distance: an exact copy.
        scores.append(np.divide(closest, alpha * mean, out=np.zeros_like(closest), where=mean > 0))
        nearest.append(found.indices[:, 0])
        distance.append(closest)
        done += len(closest)
        progress(done, total)
    return MemorizationScores(
        scores=np.concatenate(scores or [np.empty(0)]),
        nearest=np.concatenate(nearest or [np.empty(0, np.int64)]),
        distance=np.concatenate(distance or [np.empty(0)]),
        neighbours=neighbours,
    )


def _blocks(
    generated: NDArray[Any] | Iterable[NDArray[Any]], training: NDArray[Any], scale: int
) -> Iterator[NDArray[Any]]:
    for block in [generated] if isinstance(generated, np.ndarray) else generated:
        checked = check_images(block, "generated")
        check_same_size(checked, training)
        for start in range(0, len(checked), BLOCK):
            yield _on_scale(checked[start : start + BLOCK], scale)


def _on_scale(images: NDArray[Any], scale: int) -> NDArray[Any]:
    """Pixels on [0, scale]: 8-bit ones as they are where that is 255, else float32."""
    if images.dtype == np.uint8:
        return images if scale == 255 else images.astype(np.float32) / np.float32(255)
    return images.astype(np.float32) * np.float32(scale)
