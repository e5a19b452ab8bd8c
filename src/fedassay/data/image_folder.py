"""The user's own images in folders: one folder a class, or a CSV of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedassay.data.account import Account
from fedassay.data.groups import PERSON, PathPattern, numbered
from fedassay.data.image_files import (
    Reading,
    endings,
    in_words,
    is_image,
    places_in,
    read_images,
    shared_shape,
)
from fedassay.data.image_header import Place
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.label_table import Columns, read_labels
from fedassay.data.loading import DataRequest, allow_only
from fedassay.data.other_files import lies_there, other_files
from fedassay.data.outline import Outline, without_pixels
from fedassay.data.sampling import stratified_sample, whole_persons
from fedassay.support import limits
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find
from fedassay.support.registry import register
from fedassay.support.text import encodable
from fedassay.support.types import Images

_LAYOUTS = "class/image, domain/class/image, or train/class/image with test/class/image; or data.labels, a CSV"


_PARTS = {"train", "test", "val", "valid", "validation"}
"""Folders that part a data set, and are no domains."""


@dataclass(frozen=True)
class _File:
    path: Path
    domain: str
    label: str
    person: str = ""
    frame: int = 0


@dataclass(frozen=True)
class _Folder:
    """Which files are read, in order, and every class that the folder has."""

    root: Path
    train: list[_File]
    test: list[_File]
    classes: list[str]
    account: Account

    @property
    def places(self) -> list[Place]:
        """The pictures of both sets."""
        return [Place(file.path, file.frame) for file in (*self.train, *self.test)]


def outline_of_image_folder(request: DataRequest) -> Outline:
    """What names, the table of labels, the images' headers and some decoded images tell.

    Raises:
        PlanError: As `image_folder`.
        DataError: As `image_folder`; images that are broken inside are found in a small set, or by chance.
    """
    folder, reading = _folder(request), _reading(request)
    shape = shared_shape(folder.places, folder.root, reading)
    return Outline(_outline(folder, reading), shape)


def paths_of_image_folder(request: DataRequest) -> list[str]:
    """Paths of the images below their folder, with `/`.

    Raises:
        PlanError: As `image_folder`.
        DataError: As `outline_of_image_folder`.
    """
    folder = _folder(request)
    return [place.path.relative_to(folder.root).as_posix() for place in folder.places]


@register("dataset", "image_folder", size=outline_of_image_folder)
def image_folder(request: DataRequest) -> LoadedData:
    """Images of your own in folders: class/image, or domain/class/image; or any folder with a CSV of labels.

    `groups` says whose each image is: a pattern laid on the end of its path (`{person}_*` for `p12_left.png`,
    `{person}/*` for a folder a person), or a column of the CSV.

    Two folders named `train` and `test` at the top, with classes inside, are the training set and
    the official test set. Classes, domains and images come in the order of their names. With `labels`, a CSV
    (beside the plan or in the folder), every image at any depth has one row, which names it (`file_column`)
    and its class (`label_column`); the columns are found by themselves where there is no doubt. Folders at the top
    are the domains then, where all images lie in such, and mean nothing else.
    All images are grey (1 channel) if every file is, else all are RGB (transparency is ignored); they are
    turned upright by their EXIF orientation. Sizes must agree, unless `size` has them all resized
    to a square (Lanczos). Of more than 8 bits a channel the highest 8 are kept (`bits`), and a file of several
    pictures is read as `frames` says. DICOM files need the extra `dicom`.

    Raises:
        PlanError: No path is given, or `size` is too small.
        DataError: A layout other than these, fewer than two classes, a broken or too small image, two sizes, a
            table or a pattern that does not belong to the images; the message names the files.
    """
    folder, reading = _folder(request), _reading(request)
    images = read_images(folder.places, folder.root, reading)
    outline = _outline(folder, reading)
    split = len(folder.train)
    return LoadedData(
        _with(images[:split], outline.train),
        None if outline.test is None else _with(images[split:], outline.test),
        outline.source,
        outline.account,
    )


def _folder(request: DataRequest) -> _Folder:
    allow_only(request, "path", "labels", "file_column", "label_column", "groups", "bits", "frames")
    if request.path is None:
        raise PlanError("data.path: not given; data set image_folder needs the path of a folder")
    root = find(request.path, request.base, "data.path")
    if not root.is_dir():
        raise DataError(f"data.path: {root.name} is a file; allowed: a folder ({_LAYOUTS})")
    files = _with_persons(_files(root) if request.labels is None else _labelled(root, request), root, request)
    files = _with_frames(files, root, request)
    train, test = files, []
    if request.labels is None and {file.domain for file in files} == {"train", "test"}:
        train = [file for file in files if file.domain == "train"]
        test = [file for file in files if file.domain == "test"]
    classes = sorted({file.label for file in files})
    if len(classes) < 2:
        what = "one class folder" if request.labels is None else "one class"
        raise DataError(f"{root.name}: has {what}, {classes[0]}; allowed: two or more ({_LAYOUTS})")
    known = [file.path.relative_to(root).as_posix() for file in files]
    held = [] if request.labels is None else [request.labels.name, str(request.labels)]
    account = Account(left_out=other_files(root, [*known, *held]), root=root)
    return _Folder(root, _limited(train, request), _limited(test, request), classes, account)


def _outline(folder: _Folder, reading: Reading) -> LoadedData:
    """Both sets without their pixels."""
    domains = [] if folder.test else sorted({file.domain for file in folder.train} - {""})
    train, test = (_image_set(files, folder.classes, domains) for files in (folder.train, folder.test))
    if any(file.person for file in folder.train):
        whose = numbered(*([file.person for file in files] for files in (folder.train, folder.test)))
        train, test = (replace(each, groups=numbers) for each, numbers in zip((train, test), whose, strict=True))
    account = folder.account.adding(notes=in_words(folder.places, folder.root, reading))
    return LoadedData(train, test if folder.test else None, f"folder {folder.root.name}", account)


def _labelled(root: Path, request: DataRequest) -> list[_File]:
    """Every image of a folder, at any depth, with the class that the table gives it."""
    assert request.labels is not None
    beside = root / request.labels
    table = beside if beside.exists() else find(request.labels, request.base, "data.labels")
    paths = {path.relative_to(root).as_posix(): path for path in sorted(_images_below(root))}
    if not paths:
        raise DataError(f"{root.name}: no images in it ({endings()}); {lies_there(root)}")
    if request.label_column is not None and not isinstance(request.label_column, str):
        raise PlanError(
            f"data.label_column: {request.label_column} given; allowed: the name of a column of the CSV"
        )
    person = None if request.groups is None or PERSON in request.groups else request.groups
    rows = read_labels(table, paths, Columns(request.file_column, request.label_column, person))
    tops = {name: name.split("/")[0] if "/" in name else "" for name in paths}
    sited = "" not in tops.values() and not set(tops.values()) <= _PARTS
    return [_File(path, tops[name] if sited else "", *rows[name]) for name, path in paths.items()]


def _with_persons(files: list[_File], root: Path, request: DataRequest) -> list[_File]:
    """The files with whose they are, where the plan gives a pattern for it."""
    if request.groups is None or (request.labels is not None and PERSON not in request.groups):
        return files
    pattern = PathPattern(request.groups)
    names = pattern.names([file.path.relative_to(root).as_posix() for file in files], root.name)
    return [replace(file, person=name) for file, name in zip(files, names, strict=True)]


def _with_frames(files: list[_File], root: Path, request: DataRequest) -> list[_File]:
    """Every picture of the files; where nobody says whose they are, those of a file are one person's."""
    if request.frames != "each":
        return files
    by_path = {file.path: file for file in files}
    places = places_in(list(by_path), root, _reading(request))
    pictures = [replace(by_path[place.path], frame=place.frame) for place in places]
    if request.groups is not None:
        return pictures
    return [replace(each, person=each.path.relative_to(root).as_posix()) for each in pictures]


def _reading(request: DataRequest) -> Reading:
    return Reading(request.size, request.bits, request.frames)


def _files(root: Path) -> list[_File]:
    """Every image with its class and, in the layout of two levels, its domain."""
    tops = _folders(root)
    if not tops:
        raise DataError(f"{root.name}: has no folders in it; allowed: {_LAYOUTS}")
    flat = [top for top in tops if _images_in(top)]
    deep = [top for top in tops if any(_images_in(folder) for folder in _folders(top))]
    if flat and deep:
        raise DataError(
            f"{root.name}: {flat[0].name} holds images, but {deep[0].name} holds folders of images; "
            f"allowed: {_LAYOUTS}"
        )
    if deep:
        found = [
            _File(path, domain.name, label.name)
            for domain in deep
            for label in _folders(domain)
            for path in _images_in(label)
        ]
    else:
        found = [_File(path, "", label.name) for label in flat for path in _images_in(label)]
    if not found:
        raise DataError(
            f"{root.name}: no images in its folders; {lies_there(root)}; allowed: {_LAYOUTS}, of images "
            f"({endings()})"
        )
    return found


def _folders(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    for path in found:
        if encodable(path.name) != path.name:
            raise DataError(
                f"{encodable(str(path))}: its name is not UTF-8, and would name a class; allowed: rename it"
            )
    return found


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if is_image(path))


def _images_below(root: Path) -> Iterator[Path]:
    """Images at any depth, through no links to folders.

    Raises:
        DataError: Folders lie deeper inside each other than is searched.
    """
    left = [(root, 0)]
    while left:
        folder, depth = left.pop()
        if depth > limits.FOLDERS_DEEP:
            raise DataError(f"{root.name}: has more than {limits.FOLDERS_DEEP} folders inside each other")
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
                left.append((path, depth + 1))
            elif is_image(path):
                yield path


def _limited(files: list[_File], request: DataRequest) -> list[_File]:
    """Draw before reading, so that a limit also limits what is decoded."""
    if request.limit is None or len(files) <= request.limit:
        return files
    (labels,), rng = numbered([file.label for file in files]), np.random.default_rng(request.seed)
    if request.groups is None:
        return [files[i] for i in stratified_sample(labels, request.limit, rng)]
    (persons,) = numbered([file.person for file in files])
    return [files[i] for i in whole_persons(labels, persons, request.limit, rng)]


def _image_set(files: Sequence[_File], classes: list[str], domains: list[str]) -> ImageSet:
    position = {label: number for number, label in enumerate(classes)}
    return without_pixels(
        np.array([position[file.label] for file in files], dtype=np.int64),
        tuple(classes),
        np.array([domains.index(file.domain) for file in files], dtype=np.int64) if domains else None,
        tuple(domains),
    )


def _with(images: Images, records: ImageSet) -> ImageSet:
    return replace(records, images=images)
