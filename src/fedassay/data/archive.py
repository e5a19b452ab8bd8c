"""Other people's NumPy archives: what their members declare is checked first, and nothing is unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedassay.support.errors import DataError

MAX_BYTES = 8 * 2**30
"""Most bytes that the arrays read from one archive, or the images read from one folder, may take in memory."""


@dataclass(frozen=True)
class Header:
    """What a member of an archive says it is, before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Archive:
    """An open archive.

    Attributes:
        where: The file's name, for errors.
        headers: What the wanted arrays that are there declare, by name.
    """

    where: str
    headers: dict[str, Header]
    _file: zipfile.ZipFile = field(repr=False)

    def read(self, name: str) -> NDArray[Any]:
        """One of the arrays in `headers`."""
        with self._file.open(f"{name}.npy") as stream:
            array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


@contextmanager
def open_archive(path: Path, wanted: Collection[str], allowed: str) -> Iterator[Archive]:
    """Open an archive and read the headers of the arrays that are wanted; others are never looked at.

    Args:
        path: An existing file.
        wanted: Names of arrays.
        allowed: What the archive should hold, for errors.

    Raises:
        DataError: A folder, an empty file, no archive, a damaged one, one that holds an array twice or more than
            `MAX_BYTES`, or an array that is a pickle or not of the size that it declares. This holds for what is
            read in the body of the `with` as well.
    """
    where = path.name
    if not path.is_file():
        raise DataError(f"data.path: {where} is a folder; allowed: an .npz file")
    if path.stat().st_size == 0:
        raise DataError(f"{where}: is empty (0 bytes); allowed: {allowed}")
    try:
        with zipfile.ZipFile(path) as file:
            members = [member for member in file.infolist() if member.filename.removesuffix(".npy") in wanted]
            if len({member.filename for member in members}) < len(members):
                raise DataError(f"{where}: holds an array twice")
            declared = sum(member.file_size for member in members)
            if declared > MAX_BYTES:
                raise DataError(
                    f"{where}: unpacks to {declared / 2**30:.1f} GiB; allowed: {MAX_BYTES / 2**30:.0f} GiB"
                )
            headers = {member.filename.removesuffix(".npy"): _declared(file, member, where) for member in members}
            yield Archive(where, headers, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        # RuntimeError is an encrypted archive, NotImplementedError an unknown compression.
        raise DataError(f"{where}: is no sound .npz archive ({error}); allowed: {allowed}") from None


def _declared(file: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> Header:
    where = f"{where}: {member.filename.removesuffix('.npy')}"
    with file.open(member) as stream:
        try:
            header = _header(stream)
        except ValueError as error:
            raise DataError(f"{where}: is no NumPy array ({str(error).partition(chr(10))[0]})") from None
        if header.dtype.hasobject:
            raise DataError(
                f"{where}: holds pickled Python objects, which are never loaded; allowed: plain numbers"
            )
        # A header may promise more than the member holds, and memory is taken by the promise.
        if stream.tell() + math.prod(header.shape) * header.dtype.itemsize != member.file_size:
            raise DataError(f"{where}: declares {header.shape} {header.dtype}, which is not the size it has")
    return header


def _header(stream: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"format version {version[0]}.{version[1]}")
    if any(side < 0 for side in shape):
        raise ValueError(f"shape {shape}")
    return Header(shape, dtype)
