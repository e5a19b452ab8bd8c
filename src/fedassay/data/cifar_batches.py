"""CIFAR's own files, which are Python pickles, read without running anything in them.

A pickle is a program. These files are checked against their published MD5 first; and since MD5 can
be forged, the unpickler knows the three names that arrays of numbers need and refuses all others.
"""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.download import Published, matches, published_file
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest
from fedassay.support.errors import DataError
from fedassay.support.paths import data_root

_RECONSTRUCT = np.empty(0).__reduce__()[0]
_NAMES: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
}


@dataclass(frozen=True)
class CifarFiles:
    """One of the two CIFARs, as torchvision lists it.

    Attributes:
        folder: Folder of the batches, in the archive and unpacked.
        file: The archive.
        train: Names and MD5s of the training batches, in order.
        test: Of the test batches.
        meta: Name and MD5 of the file of class names.
        names: Key of the class names in it.
        labels: Key of the labels in a batch.
    """

    folder: str
    file: Published
    train: Sequence[tuple[str, str]]
    test: Sequence[tuple[str, str]]
    meta: tuple[str, str]
    names: str
    labels: str


def read_cifar(request: DataRequest, files: CifarFiles) -> LoadedData:
    """Read the unpacked batches if they are there, else the archive, which stays packed.

    Raises:
        DataError: A file is not the published one, or the archive cannot be downloaded.
    """
    root = data_root(request.root, request.base)
    content = dict(_unpacked(root, files) if (root / files.folder).is_dir() else _packed(request, files))
    names = tuple(content[files.meta[0]][files.names])
    train, test = (
        ImageSet(
            np.concatenate([_images(content[name]) for name, _ in part]),
            np.concatenate([np.array(content[name][files.labels], dtype=np.int64) for name, _ in part]),
            names,
        )
        for part in (files.train, files.test)
    )
    return LoadedData(train, test, f"{files.file.name}, as published")


def _unpacked(root: Path, files: CifarFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, md5 in (*files.train, *files.test, files.meta):
        path = root / files.folder / name
        if not path.is_file() or not matches(path, md5):
            raise DataError(
                f"{files.folder}/{name}: is not there as published (MD5 {md5}); delete the folder to have "
                f"{files.file.name} used instead"
            )
        yield name, _unpickle(path.read_bytes(), f"{files.folder}/{name}")


def _packed(request: DataRequest, files: CifarFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    path = published_file(files.file, request)
    wanted = {f"{files.folder}/{name}": name for name, _ in (*files.train, *files.test, files.meta)}
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name in wanted else None
            if stream is not None:
                yield wanted[member.name], _unpickle(stream.read(), member.name)


class _Unpickler(pickle.Unpickler):
    """Builds arrays of numbers and Python's own containers, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The few names that are allowed."""
        try:
            return _NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed") from None


def _unpickle(data: bytes, where: str) -> dict[str, Any]:
    try:
        # Latin-1 maps Python 2's byte strings, array contents among them, onto text one to one.
        content = _Unpickler(BytesIO(data), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise DataError(f"{where}: is no CIFAR batch ({error})") from None
    if not isinstance(content, dict):
        raise DataError(f"{where}: is no CIFAR batch (a {type(content).__name__})")
    return content


def _images(batch: dict[str, Any]) -> NDArray[np.uint8]:
    """Rows of 1024 red, 1024 green, 1024 blue to (n, 32, 32, 3)."""
    rows: NDArray[np.uint8] = batch["data"]
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
