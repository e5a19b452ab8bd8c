"""Points of a square in two classes, inside and outside a circle: the synthetic experiment of Yu et al. 2026."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import MIN_SIDE, DataRequest, DataSize, allow_only
from fedassay.support.registry import register

HALF_SIDE = 5.0
"""Points are uniform on [-5, 5] x [-5, 5]."""
RADIUS = 26 / 7
TRAINING, TEST = 80, 2000

_SIDE = MIN_SIDE + 1


@register("dataset", "circle", size=DataSize(80, 0, (8, 8, 1), 2))
def circle(request: DataRequest) -> LoadedData:
    """80 points of a square, in 2 classes by a circle, and 2000 test points (generated from the seed).

    Yu et al. 2026, figure 1: uniform on [-5, 5]^2, class `inside` within 26/7 of the origin. Each is an 8x8 grey
    image, its left half x1 and its right half x2: the pixel value round(255 (x + 5) / 10). The points are
    placed on these levels before they are labelled. The half of the training points with the smaller x1 is domain
    `left`, the other `right`; test points are divided at the same x1. So `partition: domains` gives the
    two clients of the paper.
    """
    allow_only(request)
    rng = np.random.default_rng(request.seed)
    train, test = (rng.integers(0, 256, (n, 2)) for n in (TRAINING, TEST))
    border = np.sort(train[:, 0])[TRAINING // 2]
    domains = np.zeros(TRAINING, np.int64)
    domains[np.argsort(train[:, 0], kind="stable")[TRAINING // 2 :]] = 1
    return LoadedData(
        _image_set(train, domains), _image_set(test, (test[:, 0] >= border).astype(np.int64)), "generated"
    )


def points_of(images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The points (n, 2) that images (n, 8, 8, 1) stand for."""
    levels = np.stack([images[:, 0, 0, 0], images[:, 0, -1, 0]], axis=1).astype(np.float64)
    return np.asarray(2 * HALF_SIDE * levels / 255 - HALF_SIDE, dtype=np.float64)


def images_of(levels: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Images (n, 8, 8, 1) of pairs of levels (n, 2) from 0 to 255."""
    images = np.repeat(levels.astype(np.uint8)[:, None, :], _SIDE, axis=1).repeat(_SIDE // 2, axis=2)
    return np.ascontiguousarray(images[..., None])


def _image_set(levels: NDArray[np.int64], domains: NDArray[np.int64]) -> ImageSet:
    images = images_of(levels)
    outside = np.hypot(*points_of(images).T) > RADIUS
    return ImageSet(images, outside.astype(np.int64), ("inside", "outside"), domains, ("left", "right"))
