"""The data sets that torchvision knows, read from its own layout under `data.root`.

Names, addresses and MD5s are torchvision's. The files are read here and not by torchvision, which
would unpack archives into the user's folder and unpickle CIFAR: archives are read where they lie,
in memory, and a file is downloaded only if it is absent.

CIFAR's own files are Python pickles, and a pickle is a program. They are checked against their published MD5
first; and since MD5 can be forged, the unpickler knows the three names that arrays of numbers need and refuses
all others.
"""

from __future__ import annotations

import gzip
import math
import pickle
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.download import Published, matches, published, published_file
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest, DataSize, allow_only
from fedassay.support.errors import DataError
from fedassay.support.paths import data_root
from fedassay.support.registry import register
from fedassay.support.torchvision import import_torchvision


@published(lambda: _mnist_files("FashionMNIST"))
@register("dataset", "fashion_mnist", size=DataSize(60_000, 10_000, (28, 28, 1), 10))
def fashion_mnist(request: DataRequest) -> LoadedData:
    """Zalando's articles, 60,000 + 10,000 grey images of 28x28 in 10 classes (`root`)."""
    return _mnist(request, "FashionMNIST")


@published(lambda: _mnist_files("MNIST"))
@register("dataset", "mnist", size=DataSize(60_000, 10_000, (28, 28, 1), 10))
def mnist(request: DataRequest) -> LoadedData:
    """Handwritten digits, 60,000 + 10,000 grey images of 28x28 in 10 classes (`root`)."""
    return _mnist(request, "MNIST")


@published(lambda: [_cifar_files("CIFAR10", "labels").file])
@register("dataset", "cifar10", size=DataSize(50_000, 10_000, (32, 32, 3), 10))
def cifar10(request: DataRequest) -> LoadedData:
    """Small photographs, 50,000 + 10,000 colour images of 32x32 in 10 classes (`root`)."""
    return _cifar(request, "CIFAR10", labels="labels")


@published(lambda: [_cifar_files("CIFAR100", "fine_labels").file])
@register("dataset", "cifar100", size=DataSize(50_000, 10_000, (32, 32, 3), 100))
def cifar100(request: DataRequest) -> LoadedData:
    """Small photographs, 50,000 + 10,000 colour images of 32x32 in 100 classes (`root`)."""
    return _cifar(request, "CIFAR100", labels="fine_labels")


@published(lambda: list(_svhn_files()))
@register("dataset", "svhn", size=DataSize(73_257, 26_032, (32, 32, 3), 10))
def svhn(request: DataRequest) -> LoadedData:
    """House numbers, 73,257 + 26,032 colour images of 32x32 in 10 classes (`root`)."""
    from scipy.io import loadmat

    allow_only(request, "root")
    sets = []
    for file in _svhn_files():
        content = loadmat(published_file(file, request))
        images = np.ascontiguousarray(np.transpose(content["X"], (3, 0, 1, 2)))
        # The files give the digit 0 the label 10.
        labels = content["y"].reshape(-1).astype(np.int64) % 10
        sets.append(ImageSet(images, labels, tuple(str(digit) for digit in range(10))))
    return LoadedData(sets[0], sets[1], "svhn, as published")


def _torchvision_class(name: str) -> Any:
    return getattr(import_torchvision().datasets, name)


def _svhn_files() -> tuple[Published, Published]:
    """Training and test images."""
    listed = _torchvision_class("SVHN").split_list
    (train, name, md5), (test, other, its) = listed["train"], listed["test"]
    return Published(name, (train,), md5), Published(other, (test,), its)


def _cifar_files(name: str, labels: str) -> CifarFiles:
    listed = _torchvision_class(name)
    return CifarFiles(
        folder=listed.base_folder,
        file=Published(listed.filename, (listed.url,), listed.tgz_md5, instead=listed.base_folder),
        train=listed.train_list,
        test=listed.test_list,
        meta=(listed.meta["filename"], listed.meta["md5"]),
        names=listed.meta["key"],
        labels=labels,
    )


def _cifar(request: DataRequest, name: str, labels: str) -> LoadedData:
    allow_only(request, "root")
    return read_cifar(request, _cifar_files(name, labels))


def _mnist_files(name: str) -> list[Published]:
    """Training images, training labels, test images, test labels."""
    listed = _torchvision_class(name)
    return [
        Published(
            f"{name}/raw/{file}",
            tuple(mirror + file for mirror in listed.mirrors),
            md5,
            instead=f"{name}/raw/{file.removesuffix('.gz')}",
        )
        for file, md5 in listed.resources
    ]


def _mnist(request: DataRequest, name: str) -> LoadedData:
    allow_only(request, "root")
    arrays = [_read_idx(file, request) for file in _mnist_files(name)]
    names = tuple(_torchvision_class(name).classes)
    sets = []
    for images, labels in (arrays[:2], arrays[2:]):
        if images.ndim != 3 or labels.shape != images.shape[:1] or labels.max(initial=0) >= len(names):
            raise DataError(f"{name}/raw: images {images.shape} and labels {labels.shape} do not belong together")
        sets.append(ImageSet(images[..., np.newaxis], labels.astype(np.int64), names))
    return LoadedData(sets[0], sets[1], f"{name}, as published")


def _read_idx(file: Published, request: DataRequest) -> NDArray[np.uint8]:
    """Read an archive, or the file that somebody unpacked from it."""
    root = data_root(request.root, request.base)
    if not (root / file.name).exists() and (root / file.instead).exists():
        return parse_idx((root / file.instead).read_bytes(), file.instead)
    with gzip.open(published_file(file, request)) as stream:
        return parse_idx(stream.read(), file.name)


def parse_idx(data: bytes, where: str) -> NDArray[np.uint8]:
    """Parse the idx format: 0, 0, 8 (bytes), number of axes, axes as big-endian 32 bits, values.

    Raises:
        DataError: Another format, another type than bytes, or a truncated file.
    """
    axes = data[3] if len(data) >= 4 and data[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * axes
    if axes == 0 or len(data) < start:
        raise DataError(f"{where}: is no idx file of bytes")
    shape = tuple(int(side) for side in np.frombuffer(data, ">u4", count=axes, offset=4))
    if len(data) != start + math.prod(shape):
        raise DataError(f"{where}: holds {len(data) - start} bytes, but its header says {shape}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy()


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
