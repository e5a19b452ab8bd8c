"""The embedded photographs: what the packages ship is what the class names say, cut without overlap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedassay.data import DataRequest, ImageSet, load
from fedassay.data.photographs import LEAST_DEVIATION


@pytest.fixture(scope="module")
def photographs() -> ImageSet:
    return load(DataRequest("photographs", None, None, None, 0, Path("."))).train


def test_records_and_classes(photographs: ImageSet) -> None:
    assert photographs.image_shape == (32, 32, 3)
    assert len(photographs) == 1586
    assert dict(zip(photographs.class_names, np.bincount(photographs.labels).tolist(), strict=True)) == {
        "astronaut": 201,
        "cat": 108,
        "coffee": 149,
        "galaxies": 160,
        "motorcycle": 282,
        "pavilion": 170,
        "retina": 93,
        "rocket": 86,
        "tissue": 248,
        "flower": 89,
    }


def test_no_patch_is_flat_or_there_twice(photographs: ImageSet) -> None:
    assert (photographs.images.mean(axis=3).std(axis=(1, 2)) >= LEAST_DEVIATION).all()
    assert len({image.tobytes() for image in photographs.images}) == len(photographs)


def test_regions_hold_at_most_four_patches_of_one_photograph(photographs: ImageSet) -> None:
    assert photographs.together is not None
    assert np.bincount(photographs.together).max() == 4
    for group in np.unique(photographs.together):
        assert len(np.unique(photographs.labels[photographs.together == group])) == 1


def test_patches_are_pixels_of_the_photograph(photographs: ImageSet) -> None:
    from skimage.data import astronaut

    pixels = astronaut()
    first = photographs.images[photographs.labels == 0]
    places = [pixels[y : y + 32, x : x + 32].tobytes() for y in range(0, 512, 32) for x in range(0, 512, 32)]
    positions = [places.index(patch.tobytes()) for patch in first]
    assert positions == sorted(positions)
    # Patches of one region touch: rows and columns of the grid differ by at most 1.
    assert photographs.together is not None
    groups = photographs.together[photographs.labels == 0]
    rows, columns = np.divmod(np.array(positions), 16)
    for group in np.unique(groups):
        for axis in (rows, columns):
            assert np.ptp(axis[groups == group]) <= 1
