"""Multi-scale structural similarity (MS-SSIM) of pairs of images of 161 pixels a side and more.

Wang, Simoncelli and Bovik, "Multi-Scale Structural Similarity for Image Quality Assessment" (2003): contrast and
structure at five scales, each half as large as the one before, and luminance at the coarsest, to the exponents of
section 3.2. Windows are Gaussian, 11 pixels wide with a deviation of 1.5, and lie wholly inside the
image, so that smaller images have no fifth scale. A negative factor counts as 0, since its power is no number.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedassay.support.metrics import MetricFacts
from fedassay.support.registry import register
from fedassay.support.types import Images, Matrix

_EXPONENTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
_WINDOW, _DEVIATION = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2
_LEAST = (_WINDOW - 1) * 2 ** (len(_EXPONENTS) - 1) + 1
"""Least number of pixels a side for which the coarsest scale holds a window."""


@register("metric", "ms_ssim")
class MsSsim:
    """MS-SSIM in float64, the mean over channels."""

    facts: ClassVar[MetricFacts] = MetricFacts(
        "ms_ssim",
        "MS-SSIM",
        "Structural similarity at five scales, of images of 161 pixels a side and more; higher is closer.",
        worse="higher",
        low=0.0,
        high=1.0,
    )

    @staticmethod
    def measure(truth: Images, images: Images) -> Matrix | None:
        """MS-SSIM of each pair; see `PairMetric`."""
        if min(truth.shape[1:3]) < _LEAST:
            return None
        return np.array([_of_pair(a / 255, b / 255) for a, b in zip(truth, images, strict=True)], np.float64)


def _of_pair(x: Matrix, y: Matrix) -> float:
    """MS-SSIM of two images, shape (H, W, C), in [0, 1]."""
    whole = np.ones(x.shape[2])
    for scale, exponent in enumerate(_EXPONENTS, 1):
        mean_x, mean_y = _smoothed(x), _smoothed(y)
        variances = _smoothed(x * x) - mean_x**2 + _smoothed(y * y) - mean_y**2
        factor = (2 * (_smoothed(x * y) - mean_x * mean_y) + _C2) / (variances + _C2)
        if scale == len(_EXPONENTS):
            factor = factor * (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
        whole *= np.maximum(factor.mean(axis=(0, 1)), 0.0) ** exponent
        x, y = _halved(x), _halved(y)
    return float(whole.mean())


def _smoothed(image: Matrix) -> Matrix:
    """The Gaussian mean around every pixel with a whole window, shape (H - 10, W - 10, C)."""
    from scipy.ndimage import gaussian_filter

    margin = _WINDOW // 2
    blurred = gaussian_filter(image, _DEVIATION, radius=margin, axes=(0, 1))
    return np.asarray(blurred[margin:-margin, margin:-margin])


def _halved(image: Matrix) -> Matrix:
    """Means of squares of four pixels; an odd last row or column is left out."""
    height, width, channels = image.shape
    even = image[: height // 2 * 2, : width // 2 * 2]
    return np.asarray(even.reshape(height // 2, 2, width // 2, 2, channels).mean(axis=(1, 3)))
