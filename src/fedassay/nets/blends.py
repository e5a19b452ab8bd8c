"""Blends of an adversary's own images: further pairs of feature and image for an adversary with the backbone.

An adversary with few images of its own can get as many pairs (feature, image) as it asks the backbone for. Half
are means of two images with a random weight (mixup, Zhang et al. 2018), half one image with a rectangle of another
(CutMix, Yun et al. 2019). They show no real person, but they show how a change of the image changes the feature,
which the inverse map lacks between few records. No label is needed, so none is mixed.
"""

from __future__ import annotations

import numpy as np

from fedassay.support.types import Images, Ints

MOST = 32
"""Blends of an image at most: more of so few say little that is new, and each asks the backbone once."""


def blends(images: Images, rows: int, rng: np.random.Generator) -> Images:
    """As many blends as are missing to `rows`, at most `MOST` of each image.

    Args:
        images: Shape (n, height, width, channels), uint8.
        rows: Images that are wanted, with the given ones.
        rng: Draws pairs, weights and rectangles.

    Returns:
        Shape (m, height, width, channels), uint8; empty where there are enough, or nothing to blend with.
    """
    n = len(images)
    wanted = min(rows - n, MOST * n)
    if n < 2 or wanted <= 0:
        return images[:0]
    first, second = _pairs(n, wanted, rng)
    made = np.empty((wanted, *images.shape[1:]), np.uint8)
    means = wanted - wanted // 2
    weights = rng.random((means, 1, 1, 1), dtype=np.float32)
    made[:means] = np.rint(weights * images[first[:means]] + (1 - weights) * images[second[:means]])
    made[means:] = images[first[means:]]
    for number in range(means, wanted):
        (top, bottom), (left, right) = (np.sort(rng.integers(0, side + 1, 2)) for side in images.shape[1:3])
        made[number, top:bottom, left:right] = images[second[number], top:bottom, left:right]
    return made


def _pairs(n: int, wanted: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Two different images for each blend; the first go around, so that each is in about as many."""
    first = np.concatenate([rng.permutation(n) for _ in range(-(-wanted // n))])[:wanted]
    second = (first + rng.integers(1, n, wanted)) % n
    return first, second
