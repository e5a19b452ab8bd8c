"""Scikit-image's face set: 200 grey images of 25x25, embedded in the package."""

from __future__ import annotations

import numpy as np

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest, DataSize, allow_only
from fedassay.support.registry import register


@register("dataset", "lfw_subset", size=DataSize(200, 0, (25, 25, 1), 2))
def lfw_subset(request: DataRequest) -> LoadedData:
    """Faces and background patches of 25x25, 200 grey images in 2 classes (embedded).

    The first 100 are faces from Labeled Faces in the Wild, the other 100 patches of the same
    pictures without a face (G. B. Huang et al. 2007; `skimage.data.lfw_subset`). The source's
    floats in [0, 1], which resampling left between the 256 grey levels, are rounded to the nearest.
    """
    from skimage.data import lfw_subset as read

    allow_only(request)
    images = np.rint(read() * 255).astype(np.uint8)[..., np.newaxis]
    labels = np.repeat(np.array([0, 1], dtype=np.int64), 100)
    return LoadedData(ImageSet(images, labels, ("face", "no face")), None, "scikit-image, embedded")
