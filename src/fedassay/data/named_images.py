"""Images as other tools leave them: a folder, an archive, an array or a tensor, with the names that files have.

No reading is silent: what was read stands in `how`, and what can be read in two ways is refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.archive import check_levels, open_archive
from fedassay.data.image_files import Reading, endings, is_image, read_images
from fedassay.similarity.images import check_images
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.reading import regular_size

_ALLOWED = "a folder of images, an .npz or .npy of images (n, height, width[, channels]), an array or a tensor"
_CHANNELS = (1, 3)

Given = str | os.PathLike[str] | NDArray[Any] | Any
"""A path, an array, or whatever has `numpy()`, such as a tensor."""


@dataclass(frozen=True)
class NamedImages:
    """Images with the names of their files.

    Attributes:
        images: Shape (n, height, width, channels), uint8, or floating point in [0, 1].
        names: Paths of files below the folder, in its order; empty where images have no names.
        how: Description of the reading, in words.
    """

    images: NDArray[Any]
    names: tuple[str, ...]
    how: str

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    def name(self, at: int) -> str:
        """The name of an image, its number where it has none."""
        return self.names[at] if self.names else str(at)


def named_images(given: Given, what: str) -> NamedImages:
    """Read images.

    Args:
        given: A folder, an archive, an array or a tensor.
        what: Name of the images, for errors.

    Raises:
        DataError: They cannot be read, or in two ways.
    """
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        if path.is_dir():
            return _of_folder(path, what)
        if path.suffix not in {".npz", ".npy"} or not path.is_file():
            raise DataError(f"{what}: {path} is no such file or folder; allowed: {_ALLOWED}")
        array, where = _of_file(path, what)
    else:
        array, where = as_array(given), "array"
    images, layout = _channels_last(array, what)
    try:
        images = check_images(images, what)
    except ValueError as error:
        raise DataError(f"{error}; allowed: uint8, or floating point in [0, 1]") from None
    check_levels(images, what)
    return NamedImages(images, (), f"{len(images)} images of the {where}, {layout}")


def alike(sets: Sequence[NamedImages]) -> list[NamedImages]:
    """The sets with the same number of channels: grey images beside coloured ones have three that are equal.

    Raises:
        DataError: Images are of different sizes.
    """
    channels = max(each.images.shape[3] for each in sets)
    out = []
    for each in sets:
        images, how = each.images, each.how
        if images.shape[3] == 1 < channels:
            images, how = np.repeat(images, channels, axis=3), f"{how}, grey in {channels} channels"
        out.append(NamedImages(images, each.names, how))
    shapes = {each.images.shape[1:]: each.how for each in out}
    if len(shapes) > 1:
        said = "; ".join(
            f"{shape[0]}x{shape[1]} with {shape[2]} channels ({how})" for shape, how in shapes.items()
        )
        raise DataError(f"images of different sizes: {said}; allowed: one size, for nothing is resized")
    return out


def _of_folder(path: Path, what: str) -> NamedImages:
    files = sorted(file for file in path.rglob("*") if is_image(file))
    others = sum(1 for file in path.rglob("*") if file.is_file() and not is_image(file))
    if not files:
        raise DataError(f"{what}: {path.name} holds no image ({endings()}); allowed: {_ALLOWED}")
    images = read_images(files, path, Reading())
    left = f", {others} other files left out" if others else ""
    names = tuple(file.relative_to(path).as_posix() for file in files)
    return NamedImages(images, names, f"{len(files)} images of the folder {path.name}{left}")


def _of_file(path: Path, what: str) -> tuple[NDArray[Any], str]:
    if path.suffix == ".npy":
        regular_size(path, limits.ARRAY_BYTES)
        try:
            return np.load(path, allow_pickle=False), f"file {path.name}"
        except (ValueError, OSError, EOFError) as error:
            raise DataError(f"{what}: {path.name} cannot be read ({error}); allowed: {_ALLOWED}") from None
    with open_archive(path, (), _ALLOWED) as archive:
        names = archive.names
    chosen = "x" if "x" in names else names[0] if len(names) == 1 else ""
    if not chosen:
        raise DataError(
            f"{what}: {path.name} holds {', '.join(names)}; allowed: one array, or one that is called x"
        )
    with open_archive(path, (chosen,), _ALLOWED) as archive:
        return np.ascontiguousarray(archive.read(chosen)), f"array {chosen} of {path.name}"


def as_array(given: Any) -> NDArray[Any]:
    """An array of whatever is given; a tensor leaves its device and its gradient behind."""
    for method in ("detach", "cpu", "numpy"):
        given = getattr(given, method)() if hasattr(given, method) else given
    return np.asarray(given)


def _channels_last(array: NDArray[Any], what: str) -> tuple[NDArray[Any], str]:
    """Images with channels last, and how they were read."""
    if array.ndim == 3 and array.shape[2] not in {1, 3, 4}:
        return array[..., None], "one channel"
    if array.ndim == 3:
        raise DataError(
            f"{what}: shape {array.shape} can be one image with channels last and several of one channel; "
            "allowed: (n, height, width, channels)"
        )
    if array.ndim != 4:
        raise DataError(f"{what}: shape {array.shape}; allowed: (n, height, width), with channels last or second")
    last, second = array.shape[3] in _CHANNELS, array.shape[1] in _CHANNELS
    if last and second:
        raise DataError(
            f"{what}: shape {array.shape} can be read with channels last and with channels second; allowed: (n, "
            "height, width) where there is one channel, or images whose sides are neither 1 nor 3"
        )
    if second:
        return np.ascontiguousarray(np.moveaxis(array, 1, 3)), "channels second"
    return array, "channels last"
