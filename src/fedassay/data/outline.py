"""Outline of a user's own data set, from names, headers and labels: no image is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.images import ImageSet, LoadedData


@dataclass(frozen=True)
class Outline:
    """A data set before its images are read.

    Attributes:
        data: Labels, classes and domains of the records; the images have no pixels.
        image: Height, width and channels of every image, as they will be read.
        proposals: Keys of `data` that names in the data give away and that the plan does not have.
    """

    data: LoadedData
    image: tuple[int, int, int]
    proposals: Mapping[str, Any] = field(default_factory=dict)


def without_pixels(
    labels: NDArray[np.int64],
    class_names: tuple[str, ...],
    domains: NDArray[np.int64] | None = None,
    domain_names: tuple[str, ...] = (),
) -> ImageSet:
    """A set of records with unread images: 0 pixels high, wide and deep."""
    return ImageSet(np.empty((len(labels), 0, 0, 0), np.uint8), labels, class_names, domains, domain_names)
