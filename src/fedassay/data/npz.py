"""The user's own images in one NumPy archive."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest, allow_only, check_usable
from fedassay.support import limits
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find
from fedassay.support.reading import regular_size
from fedassay.support.registry import register
from fedassay.support.text import cut

_WANTED = {f"{name}.npy" for name in ("x", "y", "x_train", "y_train", "x_test", "y_test", "domain")}
_ALLOWED = "arrays x and y, or x_train and y_train; x uint8 (n, height, width) or (n, height, width, channels)"


@register("dataset", "npz")
def npz(request: DataRequest) -> LoadedData:
    """Images of your own in a NumPy archive: arrays x, y and optionally x_test, y_test.

    `x_train`, `y_train` are accepted for `x`, `y`. Images are uint8, (n, height, width) or
    (n, height, width, channels) with 1 or 3 channels; labels are any whole numbers, numbered anew
    in ascending order (their values become the class names). An array `domain` of whole numbers, one for
    each training image, says where it comes from, for `clients.partition: domains` and
    `data.test_domain`. Other arrays are ignored. Nothing is unpickled, and sizes are checked before
    anything is unpacked.

    Raises:
        PlanError: No path is given.
        DataError: The file is missing, empty, no archive, too large, or holds something else.
    """
    allow_only(request, "path")
    if request.path is None:
        raise PlanError("data.path: not given; data set npz needs the path of an .npz file")
    path = find(request.path, request.base, "data.path")
    arrays = _read(path)
    where = path.name
    x, y = ("x_train", "y_train") if "x_train" in arrays else ("x", "y")
    for name in (x, y):
        if name not in arrays:
            raise DataError(f"{where}: has no array {name}; allowed: {_ALLOWED}")
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError(f"{where}: has only one of x_test and y_test; allowed: both or neither")
    parts = [(x, y)] + ([("x_test", "y_test")] if "x_test" in arrays else [])
    images = [_images(arrays[name], f"{where}: {name}") for name, _ in parts]
    values = [
        _labels(arrays[name], len(part), f"{where}: {name}") for part, (_, name) in zip(images, parts, strict=True)
    ]
    if images[-1].shape[1:] != images[0].shape[1:]:
        raise DataError(f"{where}: x_test holds images of {images[-1].shape[1:]}, {x} of {images[0].shape[1:]}")
    known = np.unique(np.concatenate(values))
    names = tuple(str(value) for value in known)
    sets = [
        ImageSet(part, np.searchsorted(known, value).astype(np.int64), names)
        for part, value in zip(images, values, strict=True)
    ]
    if "domain" in arrays:
        of_record = _labels(arrays["domain"], len(images[0]), f"{where}: domain")
        origins, positions = np.unique(of_record, return_inverse=True)
        sets[0] = replace(
            sets[0], domains=positions.astype(np.int64), domain_names=tuple(str(origin) for origin in origins)
        )
    check_usable(sets[0], where)
    return LoadedData(sets[0], sets[1] if len(sets) > 1 else None, f"file {where}")


@dataclass(frozen=True)
class _Header:
    """What a member of the archive says it is, before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def declared(path: Path) -> tuple[dict[str, tuple[int, ...]], NDArray[Any] | None]:
    """The shapes of the arrays that are used, from their headers, and the training labels; images are not read.

    Raises:
        DataError: As `npz`.
    """
    with _opened(path) as (archive, members):
        shapes = {_name(member): _header(archive, member, path.name).shape for member in members}
        labels = next((member for member in members if _name(member) in {"y", "y_train"}), None)
        return shapes, None if labels is None else _read_member(archive, labels, path.name)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays that are used, after checks of what the archive declares."""
    with _opened(path) as (archive, members):
        return {_name(member): _read_member(archive, member, path.name) for member in members}


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]]:
    """An archive and those of its members that are used, after checks of their number and their sizes."""
    size = regular_size(path, limits.ARRAY_BYTES)
    if size == 0:
        raise DataError(f"{path.name}: is empty (0 bytes); allowed: {_ALLOWED}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if member.filename in _WANTED]
            _check_members(archive, members, size, path.name)
            yield archive, members
    except DataError:
        raise
    # An encrypted archive, an unknown compression, a broken checksum, fields of the zip format that make no sense:
    # zipfile and NumPy raise whatever they run into.
    except Exception as error:  # noqa: BLE001
        raise DataError(f"{path.name}: is no sound .npz archive ({error}); allowed: {_ALLOWED}") from None


def _check_members(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], size: int, where: str) -> None:
    if len(archive.infolist()) > limits.MEMBERS:
        raise DataError(f"{where}: holds {len(archive.infolist()):,} files; allowed: {limits.MEMBERS:,}")
    if "x_train.npy" in (names := {member.filename for member in members}) and "x.npy" in names:
        raise DataError(f"{where}: has both x and x_train; allowed: one of them")
    if len(names) < len(members):
        raise DataError(f"{where}: holds an array twice")
    unpacked = sum(member.file_size for member in members)
    if unpacked > limits.ARRAY_BYTES:
        raise DataError(
            f"{where}: unpacks to {unpacked / limits.GIB:.1f} GiB; allowed: {limits.ARRAY_BYTES // limits.GIB} GiB"
        )
    if unpacked > max(limits.UNPACKED_FREELY, limits.RATIO * size):
        raise DataError(
            f"{where}: unpacks from {size:,} to {unpacked:,} bytes; allowed: {limits.RATIO} times as many"
        )


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> _Header:
    """What a member declares, which is checked against the size that it has."""
    where = f"{where}: {_name(member)}"
    with archive.open(member) as stream:
        try:
            header = _header_of(stream)
        # The header is a Python literal, which its parser refuses in several ways.
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, KeyError, IndexError) as error:
            raise DataError(f"{where}: is no NumPy array ({str(error).partition(chr(10))[0]})") from None
        if header.dtype.hasobject:
            raise DataError(
                f"{where}: holds pickled Python objects, which are never loaded; allowed: plain numbers"
            )
        # A header may promise more than the member holds, and memory is taken by the promise.
        if stream.tell() + math.prod(header.shape) * header.dtype.itemsize != member.file_size:
            shape = cut(str(header.shape), 100)
            raise DataError(f"{where}: declares {shape} {header.dtype}, which is not the size it has")
    return header


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    _header(archive, member, where)
    with archive.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _header_of(stream: IO[bytes]) -> _Header:
    """The header of an .npy file, from its start; the values are not read.

    Raises:
        ValueError: It is no .npy file, or declares what no array can be.
    """
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"format version {version[0]}.{version[1]}")
    if len(shape) > limits.SIDES or any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"shape {cut(str(shape), 100)}")
    return _Header(shape, dtype)


def _images(array: NDArray[Any], where: str) -> NDArray[np.uint8]:
    if array.dtype != np.uint8:
        nan = array.dtype.kind == "f" and bool(np.isnan(array).any())
        raise DataError(
            f"{where}: holds {array.dtype}{' with NaN' if nan else ''}; allowed: uint8, grey levels from 0 to 255"
        )
    if array.ndim not in (3, 4):
        raise DataError(
            f"{where}: has shape {array.shape}; allowed: (n, height, width) or (n, height, width, channels)"
        )
    if array.ndim == 4 and array.shape[3] not in (1, 3):
        first = " (channels come last)" if array.shape[1] in (1, 3) else ""
        raise DataError(f"{where}: has shape {array.shape}; allowed: 1 or 3 channels{first}")
    return np.ascontiguousarray(array if array.ndim == 4 else array[..., np.newaxis])


def _labels(array: NDArray[Any], records: int, where: str) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu":
        nan = array.dtype.kind == "f" and bool(np.isnan(array).any())
        raise DataError(f"{where}: holds {array.dtype}{' with NaN' if nan else ''}; allowed: whole numbers")
    if array.ndim != 1 or len(array) != records:
        raise DataError(f"{where}: has shape {array.shape}, but there are {records} images; allowed: ({records},)")
    if records and int(array.max()) > np.iinfo(np.int64).max:
        raise DataError(f"{where}: holds {array.max()}; allowed: whole numbers below 2^63")
    return array.astype(np.int64)
