"""Peak signal-to-noise ratio, per pair of images.

PSNR = 10 log10(R^2 / MSE), R the data range: 255 for uint8 images, 1 for
floating-point ones; the mean squared error runs over all pixels and channels, as
in `skimage.metrics.peak_signal_noise_ratio`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.similarity.images import check_pairs, to_unit

BATCH = 1024
"""Pairs converted to float64 at a time, which bounds the memory."""


def psnr(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """PSNR in decibels of each pair (x[i], y[i]).

    Args:
        x: (N, H, W) or (N, H, W, C), uint8 (data range 255) or float in [0, 1] (data range 1).
        y: the same shape; the two may differ in type, since PSNR does not depend on the scale.

    Returns:
        (N,). Identical images have no error and score +inf: take medians, or count
        and leave them out before a mean; they are never clipped here.

    Raises:
        ValueError: different shapes, another type, values outside [0, 1].

    >>> black, grey = np.zeros((1, 4, 4), np.uint8), np.full((1, 4, 4), 51, np.uint8)
    >>> psnr(black, grey).round(4).tolist(), psnr(grey, grey).tolist()
    ([13.9794], [inf])
    """
    x, y = check_pairs(x, y)
    mse = np.empty(len(x))
    for start in range(0, len(x), BATCH):
        part = slice(start, start + BATCH)
        mse[part] = np.square(to_unit(x[part]) - to_unit(y[part])).mean(axis=(1, 2, 3))
    with np.errstate(divide="ignore"):
        return -10.0 * np.log10(mse)
