"""Candidates of `knowledge.gallery`, which the attacker has: a folder of images for each class, or an archive.

Classes are matched by name with the data set's; labels are positions where none names a class. Candidates have the
shape of the plan's images, since a member is a candidate with the image and label of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedassay.data.archive import image_shape, open_archive
from fedassay.data.image_files import Reading, endings, is_image, read_images
from fedassay.data.images import ImageSet
from fedassay.data.records import Records, first_of_each
from fedassay.support.errors import DataError
from fedassay.support.text import cut
from fedassay.support.types import Floats, Images, Ints

KEY = "knowledge.gallery"
ALLOWED = (
    "a folder with a folder of images for each class, or an .npz with images x (n, height, width[, channels]), "
    "uint8, and labels y (n,)"
)
_NAMES = {"x", "y"}
_LISTED = 200
"""Letters of the names of classes that an error quotes."""


def candidates_of(path: Path, alike: ImageSet, extract: Callable[[Images], Floats]) -> Records:
    """The candidates of a folder or an archive.

    Args:
        path: Exists.
        alike: Images of the plan; candidates have their shape and classes.
        extract: Computes features of images.

    Raises:
        DataError: It is neither, holds no candidate, or images of another shape or class; the message says which.
    """
    try:
        images, names = _of_folder(path) if path.is_dir() else _of_archive(path)
    except DataError as error:
        raise DataError(f"{KEY}: {error}") from None
    if images.shape[1:] != alike.images.shape[1:]:
        raise DataError(
            f"{KEY}: {path.name} holds images of {images.shape[1:]}; allowed: {alike.images.shape[1:]}, as the "
            "plan's, which they are compared with"
        )
    labels = _labels(names, alike.class_names, f"{KEY}: {path.name}")
    # Of a candidate that is listed twice nothing tells which one is meant.
    kept = first_of_each(images, labels)
    return Records("candidates", images[kept], labels[kept], extract)


def _of_folder(path: Path) -> tuple[Images, list[str]]:
    """All images, and the folder that each is in."""
    folders = sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    files = [file for folder in folders for file in sorted(folder.iterdir()) if is_image(file)]
    if not files:
        raise DataError(f"{path.name}: has no folder with images in it ({endings()}); allowed: {ALLOWED}")
    return read_images(files, path, Reading()), [file.parent.name for file in files]


def _of_archive(path: Path) -> tuple[Images, list[str]]:
    """All images, and the label of each as text."""
    with open_archive(path, _NAMES, ALLOWED) as archive:
        if missing := sorted(_NAMES - set(archive.headers)):
            raise DataError(f"{archive.where}: has no array {missing[0]}; allowed: {ALLOWED}")
        shape = image_shape(archive.headers["x"], f"{archive.where}: x")
        if not shape[0]:
            raise DataError(f"{archive.where}: x has shape {shape}; allowed: {ALLOWED}")
        labels = archive.headers["y"]
        if labels.dtype.kind not in "iu" or labels.shape != shape[:1]:
            raise DataError(
                f"{archive.where}: y has shape {labels.shape} of {labels.dtype}; allowed: whole numbers, "
                f"{shape[:1]}"
            )
        return archive.images("x"), [str(number) for number in archive.read("y")]


def _labels(names: Sequence[str], classes: Sequence[str], where: str) -> Ints:
    """Positions of the classes that candidates are of, shape (n,)."""
    places = {name: place for place, name in enumerate(classes)}
    if not set(names) & set(places):
        places = {str(place): place for place in range(len(classes))}
    if unknown := sorted(set(names) - set(places)):
        raise DataError(
            f"{where}: has class {unknown[0]}; allowed: {cut(', '.join(classes), _LISTED)}, or all of them as "
            f"positions 0 to {len(classes) - 1}"
        )
    return np.array([places[name] for name in names], np.int64)
