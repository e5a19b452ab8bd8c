"""A gallery of candidates: a folder of images, a folder a class, or an `.npz` file with features and labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedassay.data.archive import open_archive
from fedassay.data.loading import DataRequest, load
from fedassay.data.records import Records
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Images

ARCHIVE = "gallery.npz"
_HOLDS = "arrays features (n, d) and labels (n,)"


def gallery_of(folder: Path, classes: int, extract: Callable[[Images], Floats] | None) -> Records:
    """The candidates of a folder.

    Args:
        folder: An `.npz` file; or a folder that holds `gallery.npz`, or a folder of images for each class, in the
            order of their names.
        classes: Of the messages.
        extract: Computes features of images; None: there is no backbone.

    Raises:
        DataError: There is no such folder, it is of other classes, or holds images and there is no backbone.
    """
    if folder.suffix == ".npz" and folder.is_file():
        return _of_archive(folder, classes)
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
    _check_labels(held.labels, classes, str(folder))
    return Records("candidates", held.images, held.labels, extract)


def _of_archive(path: Path, classes: int) -> Records:
    with open_archive(path, {"features", "labels"}, _HOLDS) as archive:
        features, labels = np.asarray(archive.read("features")), np.asarray(archive.read("labels"))
    if features.ndim != 2 or labels.shape != (len(features),) or features.dtype.kind != "f":
        raise DataError(
            f"{path}: features of shape {features.shape} and labels of shape {labels.shape}; allowed: {_HOLDS}"
        )
    if labels.dtype.kind not in "iu" or not np.isfinite(features).all():
        raise DataError(f"{path}: labels must be whole numbers, and features finite; allowed: {_HOLDS}")
    _check_labels(labels, classes, str(path))
    # Without images, numbers identify the records.
    marks = np.arange(len(labels), dtype="<u8").view(np.uint8).reshape(-1, 1, 8, 1)
    return Records("candidates", marks, labels.astype(np.int64), lambda images: features[_rows(images)])


def _rows(images: Images) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ascontiguousarray(images).reshape(len(images), 8).view("<u8").ravel().astype(np.int64)


def _check_labels(labels: np.ndarray[tuple[int], np.dtype[np.int64]], classes: int, where: str) -> None:
    if not len(labels):
        raise DataError(f"{where}: holds no candidate; allowed: one or more")
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(
            f"{where}: labels from {labels.min()} to {labels.max()}; allowed: 0 to {classes - 1}, as sent"
        )
