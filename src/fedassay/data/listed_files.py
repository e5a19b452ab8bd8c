"""Data sets whose files somebody else's lists or folders name: looked at first, decoded afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedassay.data.image_files import Reading, is_image, read_images, shared_shape
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest
from fedassay.data.outline import Outline, without_pixels
from fedassay.data.sampling import stratified_sample
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.paths import data_root, find, root_in_words
from fedassay.support.reading import regular_size


@dataclass(frozen=True)
class Picture:
    """One file of a data set.

    Attributes:
        path: An image file.
        label: Position among the classes.
        domain: Position among the domains.
        group: Whom it is of.
    """

    path: Path
    label: int
    domain: int = 0
    group: int = 0


@dataclass(frozen=True)
class Listed:
    """A data set before anything is decoded.

    Attributes:
        root: Its folder; errors name files from there.
        train: Files of the training set, in order.
        test: Files of the official test set; empty where there is none.
        classes: Names of the classes.
        domains: Names of the domains; empty where there are none.
        grouped: Whether `Picture.group` says anything.
    """

    root: Path
    train: Sequence[Picture]
    test: Sequence[Picture]
    classes: tuple[str, ...]
    domains: tuple[str, ...] = ()
    grouped: bool = False


Lister = Callable[[DataRequest], Listed]
"""Finds the files of a data set."""


def outline_of(listed: Listed, request: DataRequest) -> Outline:
    """What lists and the images' headers tell; no image is decoded.

    Raises:
        DataError: There are no files, one is no image, or sizes differ and `size` is not given.
    """
    drawn = _limited(listed, request)
    shape = shared_shape(
        [picture.path for picture in (*drawn.train, *drawn.test)], drawn.root, Reading(request.size)
    )
    return Outline(_without_pixels(drawn), shape)


def loaded(listed: Listed, request: DataRequest) -> LoadedData:
    """The images of the files.

    Raises:
        DataError: As `outline_of`, or an image is broken.
    """
    drawn = _limited(listed, request)
    images = read_images(
        [picture.path for picture in (*drawn.train, *drawn.test)], drawn.root, Reading(request.size)
    )
    data = _without_pixels(drawn)
    split = len(drawn.train)
    test = None if data.test is None else replace(data.test, images=images[split:])
    return LoadedData(replace(data.train, images=images[:split]), test, data.source)


def home(request: DataRequest, names: Sequence[str], origin: str) -> Path:
    """The folder of a data set: `data.path`, or one of its usual names under `data.root`.

    Args:
        request: What the plan says.
        names: Usual names, the first that is there is taken.
        origin: Where the data set is published, for the error.

    Raises:
        DataError: There is no such folder.
    """
    if request.path is not None:
        found = find(request.path, request.base, "data.path")
        if not found.is_dir():
            raise DataError(f"data.path: {found.name} is a file; allowed: the folder of {request.name}")
        return found
    root = data_root(request.root, request.base)
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise DataError(
        f"data: {request.name} is not in {root_in_words(request.root, request.base)}: no folder "
        f"{' or '.join(names)}; allowed: unpack it there, or name its folder in data.path ({origin})"
    )


def text_of(path: Path) -> str:
    """A list that a data set brings along.

    Raises:
        DataError: It is missing, too large, or no text.
    """
    if not path.is_file():
        raise DataError(f"{path.parent.name}/{path.name} does not exist; allowed: the data set as it is published")
    regular_size(path, limits.TABLE_BYTES)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path.parent.name}/{path.name}: is not UTF-8 ({error.reason})") from None


def in_folders(root: Path, kept: Callable[[str], bool] = lambda _: True) -> dict[str, list[Path]]:
    """The images of each folder of a folder, folders and images in the order of their names.

    Args:
        root: A folder of class folders.
        kept: Which folders are classes, by name.

    Raises:
        DataError: There is no such folder.
    """
    if not root.is_dir():
        raise DataError(f"{root.parent.name}/{root.name} does not exist; allowed: the data set as it is published")
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    return {
        folder.name: sorted(path for path in folder.iterdir() if is_image(path))
        for folder in folders
        if kept(folder.name)
    }


def of_lists(root: Path, rows: Iterable[tuple[str, int]], where: str) -> list[Picture]:
    """Files that a list names by their path below a folder, with their labels.

    Raises:
        DataError: A file leads out of the folder or is not there.
    """
    found = []
    for name, label in rows:
        path = root / name
        if ".." in Path(name).parts or Path(name).is_absolute() or not path.is_file():
            raise DataError(f"{where}: names {name[:100]!r}, which is not in {root.name}")
        found.append(Picture(path, label))
    return found


def _limited(listed: Listed, request: DataRequest) -> Listed:
    """Draw before reading, so that a limit and a choice of classes also limit what is decoded."""
    if not listed.train:
        raise DataError(f"{listed.root.name}: holds no images; allowed: the data set as it is published")
    if request.classes is not None and request.features is None:
        kept = [number for number, name in enumerate(listed.classes) if name in request.classes]
        train, test = ([each for each in part if each.label in kept] for part in (listed.train, listed.test))
        # Where no name is one of the classes, that is said of all of them.
        listed = replace(listed, train=train, test=test) if train else listed
    if request.limit is None:
        return listed
    return replace(
        listed,
        train=_drawn(listed.train, request.limit, request.seed),
        test=_drawn(listed.test, request.limit, request.seed),
    )


def _drawn(pictures: Sequence[Picture], limit: int, seed: int | None) -> list[Picture]:
    labels = np.array([picture.label for picture in pictures], dtype=np.int64)
    return [pictures[i] for i in stratified_sample(labels, limit, np.random.default_rng(seed))]


def _without_pixels(listed: Listed) -> LoadedData:
    train, test = (_set(part, listed) for part in (listed.train, listed.test))
    return LoadedData(train, test if listed.test else None, f"folder {listed.root.name}")


def _set(pictures: Sequence[Picture], listed: Listed) -> ImageSet:
    def column(values: Iterable[int]) -> NDArray[np.int64]:
        return np.array(list(values), dtype=np.int64)

    domains = column(picture.domain for picture in pictures) if listed.domains else None
    found = without_pixels(column(picture.label for picture in pictures), listed.classes, domains, listed.domains)
    return replace(found, groups=column(picture.group for picture in pictures)) if listed.grouped else found
