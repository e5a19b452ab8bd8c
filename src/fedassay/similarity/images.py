"""The images that every similarity function accepts, checked once.

Images are arrays of shape (N, H, W) or (N, H, W, C), either uint8 (0 to 255) or
floating point in [0, 1]. PSNR and SSIM depend only on values divided by the data
range, so a uint8 array may be compared with a float one: both are put on [0, 1].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

UNIT_TOLERANCE = 1e-6
"""Distance outside [0, 1] up to which a float image is accepted (rounding of a float32 network)."""


def check_images(images: NDArray[Any], name: str) -> NDArray[Any]:
    """Checks type, shape and range and returns the array as (N, H, W, C), unscaled and without a copy.

    Args:
        images: (N, H, W) or (N, H, W, C), uint8 or floating point in [0, 1].
        name: how the caller's error message calls them.

    Raises:
        ValueError: another type or shape, an empty side, a value that is not finite or outside [0, 1].
    """
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4:
        raise ValueError(f"{name}: shape {images.shape}; images are (N, H, W) or (N, H, W, C)")
    if 0 in images.shape[1:]:
        raise ValueError(f"{name}: shape {images.shape} has an empty side")
    if images.dtype == np.uint8:
        return images
    if not np.issubdtype(images.dtype, np.floating):
        raise ValueError(f"{name}: type {images.dtype}; images are uint8, or floating point in [0, 1]")
    if images.size:
        low, high = float(images.min()), float(images.max())
        # Written so that NaN, which compares false with everything, is refused as well.
        if not (low >= -UNIT_TOLERANCE and high <= 1 + UNIT_TOLERANCE):
            raise ValueError(f"{name}: values from {low:g} to {high:g}; floating-point images lie in [0, 1]")
    return images


def check_same_size(x: NDArray[Any], y: NDArray[Any]) -> None:
    """Raises ValueError unless two checked image arrays agree in (H, W, C)."""
    if x.shape[1:] != y.shape[1:]:
        raise ValueError(f"image sizes differ: {x.shape[1:]} and {y.shape[1:]} (height, width, channels)")


def check_pairs(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Checks two arrays of images that are compared one to one: same number, same size."""
    x, y = check_images(x, "x"), check_images(y, "y")
    if len(x) != len(y):
        raise ValueError(f"pairs need as many images on both sides: {len(x)} and {len(y)}")
    check_same_size(x, y)
    return x, y


def to_unit(images: NDArray[Any]) -> NDArray[np.float64]:
    """Float64 on [0, 1] from checked images."""
    if images.dtype == np.uint8:
        return images.astype(np.float64) / 255.0
    return images.astype(np.float64)
