"""The image metrics of a report, for tests that measure thousands of pairs: all at once, the same to rounding.

`tests/similarity/test_reported.py` holds these numbers against those of scikit-image.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.similarity.metrics import PSNR_CAP, Similarity
from fedassay.similarity.psnr import psnr
from fedassay.similarity.ssim import ssim
from fedassay.support.types import Images


class QuickSimilarity(Similarity):
    """PSNR and SSIM by `fedassay.similarity` in place of scikit-image's, which takes one pair after the other."""

    def measure(self, truth: Images, images: Images) -> dict[str, NDArray[np.float64]]:
        return {"psnr": np.minimum(psnr(truth, images), PSNR_CAP), "ssim": ssim(truth, images)}
