"""The archive of `data.features`: what it must hold, and its rows held against a data set's records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.archive import Archive, Header, image_shape, open_archive
from fedassay.data.groups import numbered
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.outline import without_pixels
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.types import Images

_PARTS = ("", "test_")
_NAMES = {f"{part}{name}" for part in _PARTS for name in ("features", "labels", "images", "groups")}
_ALLOWED = (
    "arrays features (n, d) and labels (n,), and if there are any images (n, height, width[, channels]) and "
    "groups (n,); test_features, test_labels, test_images, test_groups for a test set"
)


def opened(path: Path, attributes: Sequence[str] = ()) -> AbstractContextManager[Archive]:
    """The archive of features at a path, with arrays of attributes beside them.

    Raises:
        DataError: It is no archive.
    """
    return open_archive(path, _NAMES | {f"{part}{name}" for part in _PARTS for name in attributes}, _ALLOWED)


def with_features(data: LoadedData, path: Path, attributes: Sequence[str] = ()) -> LoadedData:
    """The same images with the features of an archive, and with the attributes that it has of these names.

    Raises:
        DataError: The file is missing or broken, or its rows are not those of the data set.
    """
    if not data.train.pictures:
        raise DataError(f"{data.source}: images are one pixel high; allowed: larger ones")
    with opened(path, attributes) as archive:
        check_rows(archive, data.source, len(data.train), None if data.test is None else len(data.test))
        sets = [_joined(archive, "", data.train)]
        sets += [] if data.test is None else [_joined(archive, "test_", data.test)]
        sets = with_attributes(archive, _PARTS[: len(sets)], sets)
        train, test = sets[0], sets[1] if len(sets) > 1 else None
        return LoadedData(train, test, f"{data.source}, features of {archive.where}", data.account)


def check_features(path: Path, source: str, records: int, test: int | None) -> int:
    """Hold an archive's headers against a data set; returns the width of the features.

    Args:
        path: Of the archive.
        source: The data set, for errors.
        records: Training records.
        test: Records of its official test set; None: it has none.

    Raises:
        DataError: As `with_features`, as far as headers tell.
    """
    with opened(path) as archive:
        check_rows(archive, source, records, test)
        return archive.headers["features"].shape[1]


def check_rows(archive: Archive, source: str, records: int, test: int | None) -> None:
    """Refuse features that are not one row for each record of a data set.

    Raises:
        DataError: They are not.
    """
    for part, size, role in (("", records, "training"), ("test_", test, "test")):
        name = f"{part}features"
        if size is None:
            if name in archive.headers:
                raise DataError(f"{archive.where}: has {name}, but {source} has no test set of its own")
            continue
        rows = _features(archive, name).shape[0]
        if rows != size:
            raise DataError(
                f"{archive.where}: {name} has {rows:,} rows, but {source} has {size:,} {role} records; allowed: "
                "one row a record, in their order"
            )


def width_of(path: Path) -> int:
    """Width of the features, from the archive's header.

    Raises:
        DataError: The file is missing or broken.
    """
    with opened(path) as archive:
        return _features(archive, "features").shape[1]


def parts_of(archive: Archive) -> list[str]:
    """The prefixes of the sets that are there, after a look at what belongs together."""
    found = []
    for part in _PARTS:
        held = [
            name for name in sorted(_NAMES) if name in archive.headers and name.startswith("test_") == bool(part)
        ]
        if not held and part:
            continue
        for needed in (f"{part}features", f"{part}labels"):
            if needed not in archive.headers:
                raise DataError(f"{archive.where}: has no array {needed}; allowed: {_ALLOWED}")
        rows = _features(archive, f"{part}features").shape[0]
        for name in held:
            if archive.headers[name].shape[:1] != (rows,):
                raise DataError(
                    f"{archive.where}: {name} has shape {archive.headers[name].shape}, but {part}features has "
                    f"{rows:,} rows; allowed: one a row"
                )
        found.append(part)
    if len(found) == 2:
        _check_alike(archive)
    return found


def _check_alike(archive: Archive) -> None:
    width, other = (_features(archive, f"{part}features").shape[1] for part in _PARTS)
    if width != other:
        raise DataError(f"{archive.where}: test_features has {other} columns, features {width}")
    if ("images" in archive.headers) != ("test_images" in archive.headers):
        raise DataError(f"{archive.where}: has only one of images and test_images; allowed: both or neither")
    if "images" in archive.headers and image_of(archive, "images")[1:] != image_of(archive, "test_images")[1:]:
        raise DataError(f"{archive.where}: images and test_images are of different sizes")


def _features(archive: Archive, name: str) -> Header:
    """The header of an array of features."""
    if name not in archive.headers:
        raise DataError(f"{archive.where}: has no array {name}; allowed: {_ALLOWED}")
    header = archive.headers[name]
    if header.dtype.kind != "f" or len(header.shape) != 2 or not 1 <= header.shape[1] <= limits.WIDTH:
        raise DataError(
            f"{archive.where}: {name} holds {header.dtype} {header.shape}; allowed: floating-point numbers (n, "
            f"d), d up to {limits.WIDTH:,}"
        )
    return header


def image_of(archive: Archive, name: str) -> tuple[int, int, int, int]:
    """Records, height, width and channels of an array of images."""
    shape = image_shape(archive.headers[name], f"{archive.where}: {name}")
    if shape[1] < 2:
        raise DataError(f"{archive.where}: {name} are one pixel high; allowed: images, or none")
    return shape


def _whole(archive: Archive, name: str) -> NDArray[np.int64]:
    header = archive.headers[name]
    if header.dtype.kind not in "iu" or len(header.shape) != 1:
        raise DataError(
            f"{archive.where}: {name} holds {header.dtype} {header.shape}; allowed: whole numbers (n,)"
        )
    return archive.read(name).astype(np.int64)


def classes_of(archive: Archive) -> NDArray[np.int64]:
    """The values of the labels, ascending."""
    return np.unique(np.concatenate([_whole(archive, f"{part}labels") for part in parts_of(archive)]))


def outline_of_part(archive: Archive, part: str, classes: NDArray[np.int64]) -> ImageSet:
    """The labels and groups of one set, without features and images."""
    labels = np.searchsorted(classes, _whole(archive, f"{part}labels")).astype(np.int64)
    found = without_pixels(labels, tuple(str(value) for value in classes))
    groups = f"{part}groups"
    return replace(found, groups=_whole(archive, groups)) if groups in archive.headers else found


def with_attributes(archive: Archive, parts: Sequence[str], sets: Sequence[ImageSet]) -> list[ImageSet]:
    """The sets of some parts with the attributes that the archive holds, values numbered alike in all of them.

    Raises:
        DataError: An attribute is no whole number or name for each record.
    """
    found = list(sets)
    names = [name for name in archive.headers if name not in _NAMES and not name.startswith("test_")]
    for name in names:
        held = [(place, part) for place, part in enumerate(parts) if f"{part}{name}" in archive.headers]
        values = numbered(*(_values_of(archive, f"{part}{name}", len(found[place])) for place, part in held))
        for (place, _), numbers in zip(held, values, strict=True):
            found[place] = replace(found[place], attributes={**found[place].attributes, name: numbers})
    return found


def _values_of(archive: Archive, name: str, records: int) -> NDArray[Any]:
    header = archive.headers[name]
    if header.dtype.kind not in "iubU" or header.shape != (records,):
        raise DataError(
            f"data.attributes: {archive.where}: {name} holds {header.dtype} {header.shape}; allowed: whole "
            f"numbers or names ({records},)"
        )
    return archive.read(name)


def read_part(archive: Archive, part: str, outline: ImageSet) -> ImageSet:
    """The same with its features, and with images or what stands for them."""
    rows = _values(archive, f"{part}features")
    name = f"{part}images"
    if name not in archive.headers:
        return replace(outline, images=stand_ins(rows), features=rows)
    image_of(archive, name)
    return replace(outline, images=archive.images(name), features=rows)


def _values(archive: Archive, name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        rows = archive.read(name).astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise DataError(f"{archive.where}: {name}: row {bad[0]} holds a value that is no finite float32")
    return np.ascontiguousarray(rows)


def _joined(archive: Archive, part: str, records: ImageSet) -> ImageSet:
    """A data set's records with their rows; labels and images in the archive must be the data set's own."""
    name = f"{part}labels"
    if name in archive.headers:
        theirs = np.unique(_whole(archive, name), return_inverse=True)[1]
        ours = np.unique(records.labels, return_inverse=True)[1]
        if theirs.shape != ours.shape or (theirs != ours).any():
            row = int(np.flatnonzero(theirs != ours)[0]) if theirs.shape == ours.shape else 0
            raise DataError(
                f"{archive.where}: {name}: row {row} is of another class than that record of the data set; "
                "allowed: the data set's records in their order"
            )
    name = f"{part}images"
    if name in archive.headers:
        images = archive.images(name)
        if images.shape != records.images.shape or (images != records.images).any():
            raise DataError(f"{archive.where}: {name} are not the images of the data set; allowed: leave them out")
    return replace(records, features=_values(archive, f"{part}features"))


def stand_ins(features: NDArray[np.float32]) -> Images:
    """Placeholder images (n, 1, 4 d, 1): the bytes of each row, so that equal rows are equal."""
    rows = np.ascontiguousarray(features)
    return rows.view(np.uint8).reshape(len(rows), 1, 4 * rows.shape[1], 1)
