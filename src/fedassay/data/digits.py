"""Scikit-learn's handwritten digits: 1797 grey images of 8x8, embedded in the package."""

from __future__ import annotations

import numpy as np

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest, DataSize, allow_only
from fedassay.support.registry import register


@register("dataset", "digits", size=DataSize(1_797, 0, (8, 8, 1), 10))
def digits(request: DataRequest) -> LoadedData:
    """Scikit-learn's handwritten digits, 1797 grey images of 8x8 in 10 classes (embedded).

    The source counts dark pixels in blocks of 4x4, whole numbers v from 0 to 16; here they are
    round(255 v / 16), half to even, so that v = round(16 u / 255) gets them back exactly.
    (E. Alpaydin and C. Kaynak 1998, UCI, test set of "Optical recognition of handwritten digits".)
    """
    from sklearn.datasets import load_digits

    allow_only(request)
    source = load_digits()
    images = np.rint(source.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    train = ImageSet(images, source.target.astype(np.int64), tuple(str(digit) for digit in range(10)))
    return LoadedData(train, None, "scikit-learn, embedded")
