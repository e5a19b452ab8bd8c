"""Other people's NumPy archives: what their members declare is checked first, and nothing is unpickled."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedassay.support import limits
from fedassay.support.errors import DataError, FedassayError
from fedassay.support.reading import regular_size
from fedassay.support.text import cut, shown

_OUTSIDE = re.compile(r"^([/\\]|[A-Za-z]:)|(^|[/\\])\.\.([/\\]|$)")
"""Absolute paths, and those that leave their folder."""


@dataclass(frozen=True)
class Header:
    """Declared shape and type of a member of an archive, before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Archive:
    """An open archive.

    Attributes:
        where: The file's name, for errors.
        headers: Headers of the wanted arrays that are there, by name.
        names: Names of all arrays.
    """

    where: str
    headers: dict[str, Header]
    names: tuple[str, ...]
    _file: zipfile.ZipFile = field(repr=False)

    def read(self, name: str) -> NDArray[Any]:
        """One of the arrays in `headers`."""
        with self._file.open(f"{name}.npy") as stream:
            array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array

    def images(self, name: str) -> NDArray[np.uint8]:
        """One of the arrays in `headers`, as images with channels last."""
        array = self.read(name)
        check_levels(array, f"{self.where}: {name}")
        return np.ascontiguousarray(array if array.ndim == 4 else array[..., np.newaxis])


@contextmanager
def open_archive(path: Path, wanted: Collection[str] | None, allowed: str) -> Iterator[Archive]:
    """Open an archive and read the headers of the arrays that are wanted; others are never looked at.

    Args:
        path: An existing file.
        wanted: Names of arrays; None: all that it holds.
        allowed: Allowed content of the archive, for errors.

    Raises:
        DataError: No regular file, an empty one, no archive, a damaged one, one that holds an array twice or
            unpacks to too much, or an array that is a pickle or not of the size that it declares. This holds for
            what is read in the body of the `with` as well.
    """
    where, size = path.name, regular_size(path, limits.ARRAY_BYTES)
    if size == 0:
        raise DataError(f"{where}: is empty (0 bytes); allowed: {allowed}")
    try:
        with zipfile.ZipFile(path) as file:
            members = [
                member
                for member in file.infolist()
                if (member.filename.endswith(".npy") if wanted is None else _name(member) in wanted)
            ]
            _check_members(file, members, size, where)
            headers = {_name(member): _declared(file, member, where) for member in members}
            yield Archive(where, headers, tuple(_name(member) for member in file.infolist()), file)
    except FedassayError:
        raise
    # An encrypted archive, an unknown compression, a broken checksum, fields of the zip format that make no sense:
    # zipfile and NumPy raise whatever they run into.
    except Exception as error:  # noqa: BLE001
        raise DataError(
            f"{where}: is no sound .npz archive ({cut(str(error), 200)}); allowed: {allowed}"
        ) from None


def _check_members(file: zipfile.ZipFile, members: list[zipfile.ZipInfo], size: int, where: str) -> None:
    if len(file.infolist()) > limits.MEMBERS:
        raise DataError(f"{where}: holds {len(file.infolist()):,} files; allowed: {limits.MEMBERS:,}")
    if len({member.filename for member in members}) < len(members):
        raise DataError(f"{where}: holds an array twice")
    outside = next((member.filename for member in members if _OUTSIDE.search(member.filename)), None)
    if outside is not None:
        raise DataError(
            f"{where}: holds {shown(outside)}, which is a path out of the archive; allowed: plain names"
        )
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


def _declared(file: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> Header:
    """Return the declaration of a member, checked against its size."""
    with file.open(member) as stream:
        return _checked(stream, member.file_size, f"{where}: {_name(member)}")


def _checked(stream: IO[bytes], size: int, where: str) -> Header:
    """The header of an array of `size` bytes, from its start."""
    try:
        header = _header(stream)
    # The header is a Python literal, which its parser refuses in several ways.
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, KeyError, IndexError) as error:
        raise DataError(f"{where}: is no NumPy array ({cut(str(error).partition(chr(10))[0], 200)})") from None
    if header.dtype.hasobject:
        raise DataError(
            f"{where}: holds pickled Python objects, which are never loaded; allowed: plain numbers, or text by "
            ".astype(str)"
        )
    # A header may promise more than the file holds, and memory is taken by the promise.
    if stream.tell() + math.prod(header.shape) * header.dtype.itemsize != size:
        shape = cut(str(header.shape), 100)
        raise DataError(f"{where}: declares {shape} {header.dtype}, which is not the size it has")
    return header


def read_single(path: Path) -> NDArray[Any]:
    """The array of an .npy file.

    Raises:
        DataError: It is no regular file, no such array, a pickle, or not of the size that it declares.
    """
    where, size = path.name, regular_size(path, limits.ARRAY_BYTES)
    try:
        with path.open("rb") as stream:
            _checked(stream, size, where)
            stream.seek(0)
            array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror or error})") from None
    return array


def _header(stream: IO[bytes]) -> Header:
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
    return Header(shape, dtype)


def image_shape(header: Header, where: str) -> tuple[int, int, int, int]:
    """Records, height, width and channels of an array of images."""
    shape = header.shape
    if header.dtype != np.uint8:
        raise DataError(f"{where}: holds {header.dtype}; allowed: uint8, grey levels from 0 to 255")
    if len(shape) not in (3, 4):
        raise DataError(f"{where}: has shape {shape}; allowed: (n, height, width) or (n, height, width, channels)")
    if len(shape) == 4 and shape[3] not in (1, 3):
        first = " (channels come last)" if shape[1] in (1, 3) else ""
        raise DataError(f"{where}: has shape {shape}; allowed: 1 or 3 channels{first}")
    return shape[0], shape[1], shape[2], shape[3] if len(shape) == 4 else 1


def check_levels(images: NDArray[Any], where: str) -> None:
    """Refuse bytes up to 1, or floats up to 1 / 255: these are black, and their owner means white.

    Raises:
        DataError: They are such.
    """
    high = float(images.max(initial=0))
    if images.dtype == np.uint8 and high == 1:
        raise DataError(f"{where}: holds the grey levels 0 and 1 alone; allowed: levels from 0 to 255")
    if images.dtype.kind == "f" and 0 < high <= 1 / 255:
        raise DataError(f"{where}: holds values up to {high:.2g} alone; allowed: values up to 1")
