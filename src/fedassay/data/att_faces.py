"""AT&T's faces, classified by glasses: the class is not the person."""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedassay.data.archive import open_archive
from fedassay.data.download import Published, published, published_file
from fedassay.data.image_files import Reading, read_images
from fedassay.data.images import LoadedData
from fedassay.data.loading import DataRequest, allow_groups, allow_only
from fedassay.data.outline import Outline, without_pixels
from fedassay.support import limits
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import data_root, find
from fedassay.support.reading import regular_size
from fedassay.support.registry import register
from fedassay.support.types import Ints

PERSONS, PICTURES = 40, 10
_FILE = Published(
    "att_faces.zip",
    ("https://www.idiap.ch/software/bob/data/bob/att_faces.zip",),
    "6efb25cb0d40755e9492b9c012e3348d",
    instead="att_faces",
    runs=False,
)
"""AT&T's own address is gone; Idiap keeps this copy of its archive. What counts is the digest of the pixels."""
_NAMES = [f"s{person}/{picture}.pgm" for person in range(1, PERSONS + 1) for picture in range(1, PICTURES + 1)]
_ALLOWED = "att_faces.zip, the folder unpacked from it, or an .npz with x, uint8 (400, 112, 92), in that order"
_SHAPE = (PERSONS * PICTURES, 112, 92)
_SHA256 = "2e4844a9f4fa4397058f69d6208047170f2e9d399cda18b55c1e8d28f0a83431"
"""Digest of the pixels: glasses are known of these pictures in this order."""

_ALWAYS = (1, 5, 13, 26, 27, 30, 33, 36)
_SOMETIMES = {
    3: (0, 1, 2, 7, 8),
    6: (3, 4, 9),
    12: (0, 1, 4, 5, 6, 7, 8, 9),
    16: (0, 1, 4, 5, 6, 7, 8, 9),
    18: (0, 1, 2, 5, 9),
    19: (0, 1, 2, 4, 6, 7, 8, 9),
    35: (8, 9),
}
"""Persons, and their pictures, with glasses; classified by eye."""


def outline_of_att_faces(request: DataRequest) -> Outline:
    """Classes and persons, which are known of the published pictures.

    Raises:
        PlanError: Other groups or labels are asked for.
        DataError: `path` leads nowhere.
    """
    allow_only(request, "root", "path", "label_column", "groups")
    if request.path is not None:
        find(request.path, request.base, "data.path")
    persons = np.repeat(np.arange(PERSONS), PICTURES)
    match request.label_column:
        case None | "glasses":
            train = without_pixels(_glasses(), ("no glasses", "glasses"))
        case "person":
            train = without_pixels(persons, tuple(f"s{number}" for number in range(1, PERSONS + 1)))
        case other:
            raise PlanError(f"data.label_column: {other} given; data set att_faces knows glasses, person")
    if allow_groups(request, "person"):
        train = replace(train, groups=persons)
    return Outline(LoadedData(train, None, "AT&T's faces"), (*_SHAPE[1:], 1))


@published(lambda: [_FILE])
@register("dataset", "att_faces", size=outline_of_att_faces)
def att_faces(request: DataRequest) -> LoadedData:
    """Faces of 40 persons, ten pictures each: 400 grey images of 112x92 (`root` or `path`).

    Source: AT&T Laboratories Cambridge (F. Samaria and A. Harter 1994, "Parameterisation of a stochastic model for
    human face identification"). Allowed are att_faces.zip as it is published, the folder unpacked from it
    (`s1/1.pgm` to `s40/10.pgm`), or, as `path`, an archive of one array x (400, 112, 92) in that order. The class
    was assigned by eye: 119 pictures of 15 persons are with glasses, and seven of these persons are in both
    classes. With `label_column: person` it is the person. `groups: person` gives the person of each picture.

    Raises:
        PlanError: Other groups or labels are asked for.
        DataError: The files are missing, cannot be downloaded, or hold other images.
    """
    known = outline_of_att_faces(request).data
    if request.path is not None:
        path = find(request.path, request.base, "data.path")
    else:
        unpacked = data_root(request.root, request.base) / _FILE.instead
        path = unpacked if unpacked.is_dir() else published_file(_FILE, request)
    images = _of_folder(path) if path.is_dir() else _of_file(path)
    if images.shape != _SHAPE or hashlib.sha256(images.tobytes()).hexdigest() != _SHA256:
        raise DataError(f"{path.name}: holds other pictures, or in another order, than AT&T's faces")
    return replace(known, train=replace(known.train, images=np.ascontiguousarray(images[..., None])))


def _of_folder(folder: Path) -> NDArray[np.uint8]:
    files = [folder / name for name in _NAMES]
    if absent := next((file for file in files if not file.is_file()), None):
        raise DataError(f"{folder.name}: has no {absent.relative_to(folder)}; allowed: {_ALLOWED}")
    return read_images(files, folder, Reading())[..., 0]


def _of_file(path: Path) -> NDArray[np.uint8]:
    """The pictures of the published archive, or of an array."""
    if path.suffix == ".npz":
        with open_archive(path, {"x"}, _ALLOWED) as archive:
            header = archive.headers.get("x")
            if header is None or header.shape != _SHAPE or header.dtype != np.uint8:
                found = "no array x" if header is None else f"x of {header.dtype} {header.shape}"
                raise DataError(f"{archive.where}: has {found}; allowed: {_ALLOWED}")
            return archive.read("x")
    regular_size(path, limits.TABLE_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {"/".join(Path(name).parts[-2:]): name for name in archive.namelist()}
            pictures = [_pixels(archive, members[name]) for name in _NAMES]
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise DataError(f"{path.name}: cannot be read as AT&T's archive ({error}); allowed: {_ALLOWED}") from None
    return np.stack(pictures)


def _pixels(archive: zipfile.ZipFile, name: str) -> NDArray[np.uint8]:
    """The grey levels of a picture as AT&T writes it: P5, width, height, 255, and a byte a pixel.

    Raises:
        ValueError: It is none.
    """
    if archive.getinfo(name).file_size > limits.IMAGE_HEADER_BYTES:
        raise ValueError(f"{name} is too large")
    content = archive.read(name)
    header = re.match(rb"P5\s+(\d+)\s+(\d+)\s+255\s", content)
    if header is None or (int(header[2]), int(header[1])) != _SHAPE[1:]:
        raise ValueError("a picture that is no grey one of 92x112")
    return np.frombuffer(content, np.uint8, offset=header.end()).reshape(_SHAPE[1:]).copy()


def _glasses() -> Ints:
    """Whether each picture is with glasses, shape (400,)."""
    worn = np.zeros((PERSONS, PICTURES), np.int64)
    worn[list(_ALWAYS)] = 1
    for person, pictures in _SOMETIMES.items():
        worn[person, list(pictures)] = 1
    return worn.reshape(-1)
