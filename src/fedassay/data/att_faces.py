"""AT&T's faces, whose class is whether they wear glasses: a class that is not the person."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedassay.data.archive import Archive, open_archive
from fedassay.data.images import LoadedData
from fedassay.data.loading import DataRequest, allow_groups, allow_only
from fedassay.data.outline import Outline, without_pixels
from fedassay.support.errors import DataError
from fedassay.support.paths import find
from fedassay.support.registry import register
from fedassay.support.types import Ints

FILE = "att_faces.npz"
PERSONS, PICTURES = 40, 10
_SHAPE = (PERSONS * PICTURES, 112, 92)
_SHA256 = "2e4844a9f4fa4397058f69d6208047170f2e9d399cda18b55c1e8d28f0a83431"
"""Of the pixels: glasses are known of these pictures in this order."""

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
"""Persons, and their pictures, with glasses; told by eye."""


def outline_of_att_faces(request: DataRequest) -> Outline:
    """Classes and persons; of the file only what it declares is read.

    Raises:
        PlanError: As `att_faces`.
        DataError: As `att_faces`, apart from other pixels.
    """
    with _opened(request) as archive:
        return _outline(archive, request)


@register("dataset", "att_faces", size=outline_of_att_faces)
def att_faces(request: DataRequest) -> LoadedData:
    """Faces of 40 persons, ten pictures each: 400 grey images of 112x92 in 2 classes, glasses or none.

    AT&T Laboratories Cambridge (F. Samaria and A. Harter 1994, "Parameterisation of a stochastic model for human
    face identification"), in an archive `x` (400, 112, 92) that is ordered by person and picture: `path`, or
    att_faces.npz beside the plan or under FEDASSAY_DATA. The class is told by eye: 119 pictures of 15 persons
    are with glasses, and seven of these persons are in both classes. `groups: person` says whose each picture is.

    Raises:
        PlanError: Other groups are asked for.
        DataError: The file is missing, or holds other images.
    """
    with _opened(request) as archive:
        known = _outline(archive, request).data
        images = archive.read("x")
    if hashlib.sha256(images.tobytes()).hexdigest() != _SHA256:
        raise DataError(f"{archive.where}: x holds other pictures, or in another order, than AT&T's faces")
    return replace(known, train=replace(known.train, images=np.ascontiguousarray(images[..., None])))


def _opened(request: DataRequest) -> AbstractContextManager[Archive]:
    allow_only(request, "path", "groups")
    path = find(Path(FILE) if request.path is None else request.path, request.base, "data.path")
    return open_archive(path, {"x"}, "an array x of AT&T's faces, (400, 112, 92) uint8")


def _outline(archive: Archive, request: DataRequest) -> Outline:
    header = archive.headers.get("x")
    if header is None or header.shape != _SHAPE or header.dtype != np.uint8:
        found = "no array x" if header is None else f"x of {header.dtype} {header.shape}"
        raise DataError(f"{archive.where}: has {found}; allowed: uint8 {_SHAPE}, AT&T's faces")
    persons = np.repeat(np.arange(PERSONS), PICTURES)
    train = without_pixels(_glasses(), ("no glasses", "glasses"))
    if allow_groups(request, "person"):
        train = replace(train, groups=persons)
    return Outline(LoadedData(train, None, "AT&T's faces"), (_SHAPE[1], _SHAPE[2], 1))


def _glasses() -> Ints:
    """Whether each picture is with glasses, shape (400,)."""
    worn = np.zeros((PERSONS, PICTURES), np.int64)
    worn[list(_ALWAYS)] = 1
    for person, pictures in _SOMETIMES.items():
        worn[person, list(pictures)] = 1
    return worn.reshape(-1)
