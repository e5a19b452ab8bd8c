"""Data sets of files named by published lists or folders: looked at first, decoded afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.data.account import NOTHING_SAID, Account
from fedassay.data.groups import numbered
from fedassay.data.image_files import Reading, in_words, is_image, read_images, shared_shape
from fedassay.data.image_header import Place
from fedassay.data.images import LoadedData
from fedassay.data.loading import DataRequest
from fedassay.data.outline import Outline, without_pixels
from fedassay.data.sampling import stratified_sample, whole_persons
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.paths import data_root, find, root_in_words
from fedassay.support.reading import regular_size


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of a data set.

    Attributes:
        path: An image file.
        label: Its class.
        domain: Its domain; empty where there are none.
        person: Its person; empty where unknown.
        frame: Number of the picture in the file.
    """

    path: Path
    label: str
    domain: str = ""
    person: str = ""
    frame: int = 0


@dataclass(frozen=True)
class Listed:
    """A data set before anything is decoded.

    Attributes:
        root: Its folder; errors name files from there.
        train: Pictures of the training set, in order.
        test: Pictures of the official test set; empty where there is none.
        classes: Names of the classes, in order.
        domains: Names of the domains, in order; empty: they are those that pictures have.
        account: Account of the files that were read and of those left out.
        proposals: As `Outline.proposals`.
    """

    root: Path
    train: Sequence[Picture]
    test: Sequence[Picture]
    classes: tuple[str, ...]
    domains: tuple[str, ...] = ()
    account: Account = NOTHING_SAID
    proposals: Mapping[str, Any] = field(default_factory=dict)

    @property
    def places(self) -> list[Place]:
        """Places of the pictures of both sets."""
        return [Place(picture.path, picture.frame) for picture in (*self.train, *self.test)]


def of_files(lister: Callable[[DataRequest], Listed]) -> Callable[[DataRequest], LoadedData]:
    """The loader of a data set, from the function that finds its files; its `size` is the data set's outline."""

    def outline(request: DataRequest) -> Outline:
        return outline_of(lister(request), request)

    @wraps(lister)
    def load(request: DataRequest) -> LoadedData:
        listed = _limited(lister(request), request)
        images = read_images(listed.places, listed.root, _reading(request))
        data, split = without_images(listed, request), len(listed.train)
        test = None if data.test is None else replace(data.test, images=images[split:])
        return replace(data, train=replace(data.train, images=images[:split]), test=test)

    vars(load)["size"] = outline
    return load


def outline_of(listed: Listed, request: DataRequest) -> Outline:
    """Outline from lists and the images' headers; some images are decoded.

    Raises:
        DataError: There are no files, one is no image, or sizes differ and `size` is not given.
    """
    drawn = _limited(listed, request)
    shape = shared_shape(drawn.places, drawn.root, _reading(request))
    return Outline(without_images(drawn, request), shape, listed.proposals)


def without_images(listed: Listed, request: DataRequest) -> LoadedData:
    """Both sets without their pixels."""
    both, classes = (listed.train, listed.test), {name: number for number, name in enumerate(listed.classes)}
    domains = domains_of(listed)
    persons = numbered(*([picture.person for picture in part] for part in both))
    sets = []
    for part, whose in zip(both, persons, strict=True):
        labels = np.array([classes[picture.label] for picture in part], np.int64)
        where = np.array([domains.index(picture.domain) for picture in part], np.int64)
        found = without_pixels(labels, listed.classes, *((where, domains) if len(domains) > 1 else ()))
        known = any(picture.person for picture in listed.train)
        sets.append(replace(found, groups=whose) if known else found)
    account = listed.account.adding(notes=in_words(listed.places, listed.root, _reading(request)))
    return LoadedData(sets[0], sets[1] if listed.test else None, f"folder {listed.root.name}", account)


def domains_of(listed: Listed) -> tuple[str, ...]:
    """Return the names of the domains, in order: those that are declared, else those that pictures have."""
    return listed.domains or tuple(sorted({each.domain for part in (listed.train, listed.test) for each in part}))


def _reading(request: DataRequest) -> Reading:
    return Reading(request.size, request.bits, request.frames)


def home(request: DataRequest, names: Sequence[str], origin: str) -> Path:
    """The folder of a data set: `data.path`, or one of its usual names under `data.root`.

    Args:
        request: The plan's request.
        names: Usual names, the first that is there is taken.
        origin: Address where the data set is published, for the error.

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
        f"{' or '.join(names)}; allowed: unpack it there ({origin}), or with data.name: {request.name} name its "
        "folder in data.path"
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


def rows_of(path: Path, first: int = 1) -> Iterator[tuple[str, list[str]]]:
    """The words of each line of a list from one on, and where it stands, for errors; comments are left out.

    Raises:
        DataError: As `text_of`.
    """
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if number >= first and line.split() and not line.startswith("#"):
            yield f"{path.name}, line {number}: {line[:60]!r}", line.split()


def in_folders(root: Path, kept: Callable[[str], bool] = lambda _: True) -> dict[str, list[Path]]:
    """The images of each folder of a folder, folders and images in the order of their names.

    Args:
        root: A folder of class folders.
        kept: Folders that are classes, by name.

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


def of_lists(root: Path, rows: Iterable[tuple[str, str]], where: str) -> list[Picture]:
    """Files that a list names by their path below a folder, with their classes.

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
    """Draw before reading, so that a limit and a choice of classes or domains limit what is decoded."""
    if not listed.train:
        raise DataError(f"{listed.root.name}: holds no images; allowed: the data set as it is published")
    if request.classes is not None and request.features is None:
        kept = [[each for each in part if each.label in request.classes] for part in (listed.train, listed.test)]
        # Where no name is one of the classes, that is said of all of them.
        listed = replace(listed, train=kept[0], test=kept[1]) if kept[0] else listed
    if request.domains is not None and request.features is None:
        kept = [[each for each in part if each.domain in request.domains] for part in (listed.train, listed.test)]
        domains = domains_of(listed)
        listed = replace(listed, train=kept[0], test=kept[1], domains=domains) if kept[0] else listed
    return replace(listed, train=_drawn(listed.train, request), test=_drawn(listed.test, request))


def _drawn(pictures: Sequence[Picture], request: DataRequest) -> Sequence[Picture]:
    """At most as many as the plan allows, persons whole."""
    if request.limit is None or len(pictures) <= request.limit:
        return pictures
    rng = np.random.default_rng(request.seed)
    (labels,), (persons,) = (numbered([getattr(each, key) for each in pictures]) for key in ("label", "person"))
    if not any(picture.person for picture in pictures):
        return [pictures[row] for row in stratified_sample(labels, request.limit, rng)]
    return [pictures[row] for row in whole_persons(labels, persons, request.limit, rng)]
