"""The image metrics of a report, for tests that measure thousands of pairs: all at once, the same to rounding.

`tests/similarity/test_reported.py` holds these numbers against those of scikit-image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.similarity.images import check_pairs, to_unit
from fedassay.similarity.metrics import PSNR_CAP, Similarity
from fedassay.similarity.ssim import ssim
from fedassay.support.types import Images


def psnr(truth: NDArray[Any], images: NDArray[Any]) -> NDArray[np.float64]:
    """PSNR in decibels of each pair, shape (n,); +inf for identical images."""
    truth, images = check_pairs(truth, images)
    with np.errstate(divide="ignore"):
        return -10 * np.log10(np.square(to_unit(truth) - to_unit(images)).mean(axis=(1, 2, 3)))


class QuickSimilarity(Similarity):
    """PSNR as above and SSIM by `fedassay.similarity`: scikit-image's take one pair after the other."""

    def measure(self, truth: Images, images: Images) -> dict[str, NDArray[np.float64]]:
        return {"psnr": np.minimum(psnr(truth, images), PSNR_CAP), "ssim": ssim(truth, images)}
