"""Colour photographs that scikit-image and scikit-learn bring along, cut into patches of 32x32."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest, DataSize, allow_groups, allow_only
from fedassay.support.registry import register
from fedassay.support.types import Images, Ints

SIDE = 32
"""Height and width of a patch, in pixels."""
REGION = 2
"""Patches on the side of a region; the patches of a region are never in two roles."""
LEAST_DEVIATION = 12.0
"""Least deviation of the grey levels of a patch, of 255; others are left out: sky, background, blur."""


class _Photograph(NamedTuple):
    function: str
    """Name in `skimage.data`, or a file of `sklearn.datasets.load_sample_image`."""
    factor: int
    """Blocks of so many pixels squared are averaged into one before the patches are cut."""


_PHOTOGRAPHS = {
    "astronaut": _Photograph("astronaut", 1),
    "cat": _Photograph("cat", 1),
    "coffee": _Photograph("coffee", 1),
    "galaxies": _Photograph("hubble_deep_field", 2),
    "motorcycle": _Photograph("stereo_motorcycle", 1),
    "pavilion": _Photograph("china.jpg", 1),
    "retina": _Photograph("retina", 2),
    "rocket": _Photograph("rocket", 1),
    "tissue": _Photograph("immunohistochemistry", 1),
    "flower": _Photograph("flower.jpg", 1),
}


@register("dataset", "photographs", size=DataSize(1_586, 0, (32, 32, 3), 10))
def photographs(request: DataRequest) -> LoadedData:
    """Patches of ten photographs, 1,586 colour images of 32x32 in 10 classes (embedded).

    A class is a photograph: an astronaut, a cat's face, a cup of coffee, galaxies, a motorcycle, a pavilion, a
    fundus of an eye, a rocket, stained tissue, a flower (`skimage.data`, `sklearn.datasets`; of the stereo pair
    the left picture). Two large ones are halved by averaging blocks of 2x2 pixels. Patches lie side by side in
    a grid at the picture's centre and share no pixel. Left out are those that are all but flat (standard
    deviation of the grey level under 12 of 255), since patches of one sky are near-duplicates of each other.

    There are no official roles. The patches of one region, a square of 2x2, are always in the same role, so that
    an attacker does not hold three neighbours of a private patch; with `groups: region` a region is a person,
    who has up to four records. Every photograph is in every role: its patches are the class.
    """
    allow_only(request, "groups")
    patches, regions = zip(*(_patches(_read(photograph)) for photograph in _PHOTOGRAPHS.values()), strict=True)
    before = np.cumsum([0, *(region.max() + 1 for region in regions[:-1])])
    of_region = np.concatenate([region + first for region, first in zip(regions, before, strict=True)])
    train = ImageSet(
        np.concatenate(patches),
        np.repeat(np.arange(len(patches)), [len(images) for images in patches]),
        tuple(_PHOTOGRAPHS),
        groups=of_region if allow_groups(request, "region") else None,
        together=of_region,
    )
    return LoadedData(train, None, "photographs of scikit-image and scikit-learn, embedded")


def _read(photograph: _Photograph) -> Images:
    """A photograph (height, width, 3), reduced, and cut at its edges to whole patches."""
    import skimage.data
    from sklearn.datasets import load_sample_image

    if "." in photograph.function:
        pixels = load_sample_image(photograph.function)
    else:
        pixels = getattr(skimage.data, photograph.function)()
    if isinstance(pixels, tuple):
        pixels = pixels[0]  # a stereo pair
    factor = photograph.factor
    height, width = (side // (SIDE * factor) * SIDE * factor for side in pixels.shape[:2])
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    blocks = pixels[top : top + height, left : left + width].reshape(
        height // factor, factor, width // factor, factor, 3
    )
    return np.asarray(np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8))


def _patches(pixels: Images) -> tuple[Images, Ints]:
    """The patches (n, 32, 32, 3) of a photograph that are not flat, row by row, and the region of each."""
    rows, columns = pixels.shape[0] // SIDE, pixels.shape[1] // SIDE
    patches = pixels.reshape(rows, SIDE, columns, SIDE, 3).swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3)
    row, column = np.divmod(np.arange(rows * columns), columns)
    region = row // REGION * -(-columns // REGION) + column // REGION
    kept = patches.mean(axis=3).std(axis=(1, 2)) >= LEAST_DEVIATION
    return np.ascontiguousarray(patches[kept]), region[kept].astype(np.int64)
