"""A gallery of candidates: a folder of images, a folder a class, or an `.npz` file with features and labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedassay.data.archive import open_archive
from fedassay.data.class_labels import Classes
from fedassay.data.loading import DataRequest, load
from fedassay.data.records import Records, first_of_each
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.text import cut
from fedassay.support.types import Floats, Images

ARCHIVE = "gallery.npz"
_HOLDS = "arrays features (n, d) and labels (n,)"


def gallery_of(folder: Path, classes: Classes, extract: Callable[[Images], Floats] | None) -> tuple[Records, int]:
    """The candidates of a folder, each once, and how many were listed again: nothing tells which of two is meant.

    Args:
        folder: An `.npz` file; or a folder that holds `gallery.npz`, or a folder of images for each class, in the
            order of their names.
        classes: Of the messages, with which labels are matched.
        extract: Computes features of images; None: there is no backbone.

    Raises:
        DataError: There is no such folder, it is of other classes, or holds images and there is no backbone.
    """
    if folder.suffix == ".npz" and folder.is_file():
        return _of_archive(folder, classes)
    if folder.is_file():
        raise DataError(f"--gallery {folder}: no file that is read; allowed: an .npz with {_HOLDS}")
    if not folder.is_dir():
        raise DataError(
            f"--gallery {folder}: no such folder; allowed: a folder of images, one with {ARCHIVE}, or such a file"
        )
    if (folder / ARCHIVE).exists():
        return _of_archive(folder / ARCHIVE, classes)
    if extract is None:
        raise DataError(
            f"--gallery {folder}: images need a backbone, which --plan gives; allowed without one: {ARCHIVE}"
        )
    held = load(DataRequest("image_folder", None, folder.resolve(), None, 0, folder.resolve().parent)).train
    given = np.asarray(held.class_names)[held.labels] if classes.names else held.labels
    found = Records("candidates", held.images, classes.numbers(given, str(folder)), extract)
    kept = first_of_each(found.images, found.labels)
    return found if len(kept) == len(found) else found.take(kept), len(found) - len(kept)


def _of_archive(path: Path, classes: Classes) -> tuple[Records, int]:
    with open_archive(path, {"features", "labels"}, _HOLDS) as archive:
        unlabelled = not classes.read and "labels" not in archive.headers
        lacking = {"features", "labels"} - set(archive.headers) - ({"labels"} if unlabelled else set())
        if lacking:
            there = cut(", ".join(archive.names), limits.NAME_LENGTH)
            raise DataError(
                f"{path}: holds no {' and no '.join(sorted(lacking))} beside {there}; allowed: {_HOLDS}"
            )
        features = np.asarray(archive.read("features"))
        labels = np.zeros(len(features)) if unlabelled else np.asarray(archive.read("labels"))
    if features.ndim != 2 or labels.size != len(features) or features.dtype.kind not in "fiu":
        raise DataError(
            f"{path}: features {features.dtype} of shape {features.shape} and labels of shape {labels.shape}; "
            f"allowed: {_HOLDS}"
        )
    if not np.isfinite(features).all():
        raise DataError(f"{path}: features must be finite; allowed: {_HOLDS}")
    if not len(labels):
        raise DataError(f"{path}: holds no candidate; allowed: one or more")
    features = features if features.dtype.kind == "f" else features.astype(np.float64)
    numbers = classes.numbers(labels.ravel(), str(path))
    kept = first_of_each(features, numbers)
    features = features[kept]
    # Without images, numbers identify the records.
    marks = np.arange(len(kept), dtype="<u8").view(np.uint8).reshape(-1, 1, 8, 1)
    found = Records("candidates", marks, numbers[kept], lambda images: features[_rows(images)])
    return found, len(labels) - len(kept)


def _rows(images: Images) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ascontiguousarray(images).reshape(len(images), 8).view("<u8").ravel().astype(np.int64)
