"""The user's own images in one NumPy archive, MedMNIST's files as they are among them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.data.account import NOTHING_SAID, LeftOut
from fedassay.data.archive import Archive, image_shape, open_archive
from fedassay.data.groups import numbered
from fedassay.data.images import LoadedData
from fedassay.data.loading import LABEL, DataRequest, allow_only
from fedassay.data.outline import Outline, without_pixels
from fedassay.data.spellings import listed, unlabelled
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find
from fedassay.support.registry import register

_ALLOWED = (
    "arrays x and y, x_train and y_train, or MedMNIST's train_images and train_labels; images uint8 "
    "(n, height, width) or (n, height, width, channels)"
)


class _Pair(NamedTuple):
    images: str
    labels: str


@dataclass(frozen=True)
class _Layout:
    """Names of arrays: the training set's (those of a later pair are put behind), and the official test set's."""

    train: _Pair
    more: _Pair | None
    test: _Pair


_LAYOUTS = (
    _Layout(_Pair("x", "y"), None, _Pair("x_test", "y_test")),
    _Layout(_Pair("x_train", "y_train"), None, _Pair("x_test", "y_test")),
    _Layout(
        _Pair("train_images", "train_labels"),
        _Pair("val_images", "val_labels"),
        _Pair("test_images", "test_labels"),
    ),
)
_PAIRS = [pair for each in _LAYOUTS for pair in (each.train, each.more, each.test) if pair is not None]
_NAMES = {name for pair in _PAIRS for name in pair}


def outline_of_npz(request: DataRequest) -> Outline:
    """Outline of an archive from its headers and labels; no image is unpacked.

    Raises:
        PlanError: As `npz`.
        DataError: As `npz`.
    """
    with open_archive(_path(request), _wanted(request), _ALLOWED) as archive:
        return _outline(archive, *_pairs(archive), request)


def names_of_npz(request: DataRequest) -> list[str]:
    """Return the names of arrays without `train`, `val` and `test` in them.

    Raises:
        PlanError: As `npz`.
        DataError: The file is no sound archive.
    """
    with open_archive(_path(request), _NAMES, _ALLOWED) as archive:
        return sorted({re.sub(r"^(train|val|test)_|_(train|test)$", "", name) for name in archive.names})


@register("dataset", "npz", size=outline_of_npz)
def npz(request: DataRequest) -> LoadedData:
    """Images of your own in a NumPy archive (x, y, optionally x_test, y_test), or a file of MedMNIST.

    `x_train`, `y_train` are accepted for `x`, `y`. Of a file of MedMNIST, `train_images` and behind them
    `val_images` are the training set, `test_images` the official test set. Images are uint8, (n, height, width)
    or (n, height, width, channels) with 1 or 3 channels; labels are any whole numbers, (n,) or (n, 1), numbered
    anew in ascending order (their values become the class names), or rows of 0 with a 1 for the class, (n, k). Of
    several labels a record, (n, k), `label_column` picks one. An array `domain` of whole numbers, one for each
    training image, says where it comes from, for `clients.partition: domains` and `data.test_domain`. `groups:
    patient` takes an array `patient` of numbers or names, one for each training image, for the person that it is
    of; `patient_train` and `patient_test` beside `x_train` and `x_test`, and `train_patient`, `val_patient` and
    `test_patient` beside MedMNIST's arrays, are taken as well. The names of `attributes` are arrays of the same
    form. Other arrays are left out, and named. Nothing is unpickled, and sizes are checked before anything is
    unpacked.

    Raises:
        PlanError: No path is given.
        DataError: The file is missing, empty, no archive, too large, or holds something else.
    """
    return read_npz(_path(request), request)


def read_npz(path: Path, request: DataRequest) -> LoadedData:
    """The images of an archive, for `npz` and for published files of its layouts.

    Raises:
        DataError: As `npz`.
    """
    with open_archive(path, _wanted(request), _ALLOWED) as archive:
        train, test = _pairs(archive)
        known = _outline(archive, train, test, request).data
        data = replace(known, train=replace(known.train, images=_images(archive, train)))
        if known.test is not None:
            data = replace(data, test=replace(known.test, images=_images(archive, test)))
    return data


def _path(request: DataRequest) -> Path:
    allow_only(request, "path", "label_column", "groups")
    if request.path is None:
        raise PlanError("data.path: not given; data set npz needs the path of an .npz file")
    return find(request.path, request.base, "data.path")


def _wanted(request: DataRequest) -> set[str]:
    """Names of all arrays that may be looked at."""
    beside = (*((request.group,) if request.group else ()), *request.attributes)
    whose = {name for each in beside for name in (each, *(_whose(pair.images, each) for pair in _PAIRS))}
    return _NAMES | {"domain"} | whose


def _whose(images: str, groups: str) -> str:
    """Name of the array with these images' persons: `patient_test` of `x_test`, `val_patient` of `val_images`."""
    return groups + images[1:] if images.startswith("x") else images.removesuffix("images") + groups


def _pairs(archive: Archive) -> tuple[list[_Pair], list[_Pair]]:
    """The arrays of the training set and of the official test set."""
    there, where = archive.headers, archive.where
    layouts = [layout for layout in _LAYOUTS if layout.train.images in there]
    if len(layouts) > 1:
        both = " and ".join(layout.train.images for layout in layouts)
        raise DataError(f"{where}: has both {both}; allowed: one of them")
    if not layouts:
        raise DataError(f"{where}: has no array x, x_train or train_images; allowed: {_ALLOWED}")
    layout = layouts[0]
    if layout.train.labels not in there:
        raise DataError(f"{where}: has no array {layout.train.labels}; allowed: {_ALLOWED}")
    for pair in (layout.more, layout.test):
        if pair is not None and (pair.images in there) != (pair.labels in there):
            raise DataError(f"{where}: has only one of {pair.images} and {pair.labels}; allowed: both or neither")
    train = [pair for pair in (layout.train, layout.more) if pair is not None and pair.images in there]
    return train, [layout.test] if layout.test.images in there else []


def _outline(archive: Archive, train: list[_Pair], test: list[_Pair], request: DataRequest) -> Outline:
    """The labels, and everything that headers can be wrong about."""
    where = archive.where
    shapes = {
        pair.images: image_shape(archive.headers[pair.images], f"{where}: {pair.images}")
        for pair in (*train, *test)
    }
    first = train[0].images
    for name, shape in shapes.items():
        if shape[1:] != shapes[first][1:]:
            raise DataError(f"{where}: {name} holds images of {shape[1:]}, {first} of {shapes[first][1:]}")
    values = [
        np.concatenate(
            [_labels(archive, pair.labels, shapes[pair.images][0], request.label_column) for pair in part]
        )
        for part in (train, test)
        if part
    ]
    known = np.unique(np.concatenate(values))
    names = tuple(str(value) for value in known)
    sets = [without_pixels(np.searchsorted(known, value).astype(np.int64), names) for value in values]
    if "domain" in archive.headers:
        origins, positions = np.unique(_labels(archive, "domain", len(values[0]), None), return_inverse=True)
        sets[0] = replace(
            sets[0], domains=positions.astype(np.int64), domain_names=tuple(str(origin) for origin in origins)
        )
    counts = [{pair: shapes[pair.images][0] for pair in part} for part in (train, test)]
    if request.group is not None:
        numbers = _one_each(archive, request.group, counts, "data.groups")
        sets[: len(numbers)] = [replace(each, groups=whose) for each, whose in zip(sets, numbers, strict=False)]
    for name in request.attributes:
        if name != LABEL and (request.features is None or name in archive.names):
            numbers = _one_each(archive, name, counts, "data.attributes")
            sets[: len(numbers)] = [
                replace(each, attributes={**each.attributes, name: values})
                for each, values in zip(sets, numbers, strict=False)
            ]
    height, width, channels = shapes[first][1:]
    used = {name for pair in (*train, *test) for name in pair} | (_wanted(request) - _NAMES)
    rest = [name for name in archive.names if name not in used]
    left = [LeftOut("array", len(rest), listed(rest))] if rest else []
    notes = unlabelled(map(str, np.concatenate(values))) if known.size and known[0] == -1 else []
    account = NOTHING_SAID.adding(*left, notes=notes)
    data = LoadedData(sets[0], sets[1] if test else None, f"file {where}", account)
    return Outline(data, (height, width, channels))


def _one_each(archive: Archive, array: str, records: list[dict[_Pair, int]], key: str) -> list[NDArray[np.int64]]:
    """Numbers of what an array names for the training images, and for the test images where one does.

    Args:
        archive: Open.
        array: As the plan names it.
        records: Images of every pair of the training set and of the test set.
        key: Of the plan, for errors.

    Raises:
        DataError: There is no such array, or it does not belong to the images.
    """
    train, test = ({_whose(pair.images, array): count for pair, count in part.items()} for part in records)
    if not all(name in archive.headers for name in train):
        if array not in archive.headers:
            names = " and ".join(sorted({array, *train}, key=len))
            raise DataError(f"{key}: {array} given; {archive.where} has no array {names}")
        train = {array: sum(train.values())}
    known = [np.concatenate([_names(archive, name, count, key) for name, count in train.items()])]
    known += [_names(archive, name, count, key) for name, count in test.items() if name in archive.headers]
    return numbered(*known)


def _names(archive: Archive, name: str, records: int, key: str) -> NDArray[Any]:
    """Names of persons, or values of an attribute, one for each record, as text or numbers."""
    header, where = archive.headers[name], f"{archive.where}: {name}"
    if header.dtype.kind not in ("iuUS" if key == "data.groups" else "iuUSb"):
        raise DataError(f"{key}: {where} holds {header.dtype}; allowed: whole numbers or names")
    if header.shape not in ((records,), (records, 1)):
        raise DataError(
            f"{key}: {where} has shape {header.shape}, but there are {records} images; allowed: ({records},)"
        )
    names = archive.read(name).reshape(records)
    if names.dtype.kind == "S":
        names = np.char.decode(names, "latin-1")
    if names.dtype.kind == "U" and (unnamed := np.flatnonzero(np.char.strip(names) == "")).size:
        raise DataError(
            f"{key}: {where} names nobody for {unnamed.size} images (the first is number {unnamed[0]}, "
            "from 0); allowed: a name for each"
        )
    return names


def _images(archive: Archive, pairs: list[_Pair]) -> NDArray[np.uint8]:
    arrays = [archive.images(pair.images) for pair in pairs]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _labels(archive: Archive, name: str, records: int, column: object) -> NDArray[np.int64]:
    header, where = archive.headers[name], f"{archive.where}: {name}"
    shape = header.shape
    if header.dtype.kind not in "iu":
        raise DataError(f"{where}: holds {header.dtype}; allowed: whole numbers")
    if len(shape) not in (1, 2) or shape[0] != records or shape[1:] == (0,):
        raise DataError(f"{where}: has shape {shape}, but there are {records} images; allowed: ({records},)")
    labels: NDArray[Any] = archive.read(name)
    if column is None and labels.ndim == 2 and shape[1] > 1 and _is_one_hot(labels):
        labels = labels.argmax(axis=1)
    elif labels.ndim == 2:
        labels = labels[:, _column(shape[1], column, where)]
    elif column is not None:
        raise DataError(f"data.label_column: {column} given, but {where} has one label a record")
    if records and int(labels.max()) > np.iinfo(np.int64).max:
        raise DataError(f"{where}: holds {labels.max()}; allowed: whole numbers below 2^63")
    return labels.astype(np.int64)


def _is_one_hot(labels: NDArray[Any]) -> bool:
    return bool(np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all())


def _column(columns: int, asked: object, where: str) -> int:
    if asked is None and columns > 1:
        raise DataError(
            f"{where}: has {columns} labels a record; allowed: one, which data.label_column picks (a number from "
            f"0 to {columns - 1})"
        )
    if asked is not None and not (isinstance(asked, int) and 0 <= asked < columns):
        raise DataError(
            f"data.label_column: {asked} given; {where} has {columns} columns, allowed: 0 to {columns - 1}"
        )
    return asked if isinstance(asked, int) else 0
