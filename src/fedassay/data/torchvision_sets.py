"""The data sets that torchvision knows, read from its own layout under `data.root`.

Names, addresses and MD5s are torchvision's. The files are read here and not by torchvision, which
would unpack archives into the user's folder and unpickle CIFAR: archives are read where they lie,
in memory, and a file is downloaded only if it is absent.
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.cifar_batches import CifarFiles, read_cifar
from fedassay.data.download import published_file
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest, DataSize, allow_only
from fedassay.support.errors import DataError
from fedassay.support.paths import data_root
from fedassay.support.registry import register
from fedassay.support.torchvision import import_torchvision


@register("dataset", "fashion_mnist", size=DataSize(60_000, 10_000, (28, 28, 1), 10))
def fashion_mnist(request: DataRequest) -> LoadedData:
    """Zalando's articles, 60,000 + 10,000 grey images of 28x28 in 10 classes (`root`)."""
    return _mnist(request, "FashionMNIST")


@register("dataset", "mnist", size=DataSize(60_000, 10_000, (28, 28, 1), 10))
def mnist(request: DataRequest) -> LoadedData:
    """Handwritten digits, 60,000 + 10,000 grey images of 28x28 in 10 classes (`root`)."""
    return _mnist(request, "MNIST")


@register("dataset", "cifar10", size=DataSize(50_000, 10_000, (32, 32, 3), 10))
def cifar10(request: DataRequest) -> LoadedData:
    """Small photographs, 50,000 + 10,000 colour images of 32x32 in 10 classes (`root`)."""
    return _cifar(request, "CIFAR10", labels="labels")


@register("dataset", "cifar100", size=DataSize(50_000, 10_000, (32, 32, 3), 100))
def cifar100(request: DataRequest) -> LoadedData:
    """Small photographs, 50,000 + 10,000 colour images of 32x32 in 100 classes (`root`)."""
    return _cifar(request, "CIFAR100", labels="fine_labels")


@register("dataset", "svhn", size=DataSize(73_257, 26_032, (32, 32, 3), 10))
def svhn(request: DataRequest) -> LoadedData:
    """House numbers, 73,257 + 26,032 colour images of 32x32 in 10 classes (`root`)."""
    from scipy.io import loadmat

    allow_only(request, "root")
    listed = _torchvision_class("SVHN").split_list
    root = data_root(request.root, request.base)
    sets = []
    for part in ("train", "test"):
        url, name, md5 = listed[part]
        content = loadmat(published_file(root, name, [url], md5))
        images = np.ascontiguousarray(np.transpose(content["X"], (3, 0, 1, 2)))
        # The files give the digit 0 the label 10.
        labels = content["y"].reshape(-1).astype(np.int64) % 10
        sets.append(ImageSet(images, labels, tuple(str(digit) for digit in range(10))))
    return LoadedData(sets[0], sets[1], "svhn, as published")


def _torchvision_class(name: str) -> Any:
    return getattr(import_torchvision().datasets, name)


def _cifar(request: DataRequest, name: str, labels: str) -> LoadedData:
    allow_only(request, "root")
    listed = _torchvision_class(name)
    files = CifarFiles(
        folder=listed.base_folder,
        archive=listed.filename,
        url=listed.url,
        md5=listed.tgz_md5,
        train=listed.train_list,
        test=listed.test_list,
        meta=(listed.meta["filename"], listed.meta["md5"]),
        names=listed.meta["key"],
        labels=labels,
    )
    return read_cifar(data_root(request.root, request.base), files)


def _mnist(request: DataRequest, name: str) -> LoadedData:
    allow_only(request, "root")
    listed = _torchvision_class(name)
    root = data_root(request.root, request.base)
    arrays = [
        _read_idx(root, f"{name}/raw/{file}", [mirror + file for mirror in listed.mirrors], md5)
        # In this order: training images, training labels, test images, test labels.
        for file, md5 in listed.resources
    ]
    names = tuple(listed.classes)
    sets = []
    for images, labels in (arrays[:2], arrays[2:]):
        if images.ndim != 3 or labels.shape != images.shape[:1] or labels.max(initial=0) >= len(names):
            raise DataError(f"{name}/raw: images {images.shape} and labels {labels.shape} do not belong together")
        sets.append(ImageSet(images[..., np.newaxis], labels.astype(np.int64), names))
    return LoadedData(sets[0], sets[1], f"{name}, as published")


def _read_idx(root: Path, name: str, urls: list[str], md5: str) -> NDArray[np.uint8]:
    """Read an archive `name`, or the file that somebody unpacked from it."""
    unpacked = root / name.removesuffix(".gz")
    if not (root / name).exists() and unpacked.exists():
        return parse_idx(unpacked.read_bytes(), name.removesuffix(".gz"))
    with gzip.open(published_file(root, name, urls, md5)) as stream:
        return parse_idx(stream.read(), name)


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
