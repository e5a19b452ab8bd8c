"""Two published data sets as two domains that share no class: one client's task, and another's.

They are photographs: Caltech 101, Stanford Cars, Oxford-IIIT Pets and Food-101 as torchvision unpacks them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import unwrap
from pathlib import Path
from typing import Any

from fedassay.data.images import LoadedData
from fedassay.data.listed_files import Listed, Picture, home, in_folders, of_files, of_lists, rows_of, text_of
from fedassay.data.loading import DataRequest, allow_only
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.paths import data_root
from fedassay.support.reading import regular_size
from fedassay.support.registry import register

_Loader = Callable[[DataRequest], LoadedData]


@register("dataset", "caltech101_and_cars")
@of_files
def caltech101_and_cars(request: DataRequest) -> Listed:
    """Caltech 101 and Stanford Cars in two domains, 8,677 + 16,185 photographs in 297 classes (`root`).

    For `clients.partition: domains` (Beitollahi et al. 2024, table 2, task shift). Both lie as `caltech101` and
    `stanford_cars` are read. Caltech 101 has no official test set, so that of the cars joins the training set: the
    test role is `split.test` of both. Images differ in size, so `size` must be given.

    Raises:
        DataError: One of both is not there, or is broken.
    """
    found = _together(request, caltech101, stanford_cars)
    return replace(found, train=[*found.train, *found.test], test=())


@register("dataset", "pets_and_food")
@of_files
def pets_and_food(request: DataRequest) -> Listed:
    """Oxford-IIIT Pets and Food-101 in two domains, 79,430 + 28,919 photographs in 138 classes (`root`).

    For `clients.partition: domains` (Beitollahi et al. 2024, table 2, task shift). Both lie as `oxford_pets` and
    `food101` are read; the test set is that of both. Images differ in size, so `size` must be given.

    Raises:
        DataError: One of both is not there, or is broken.
    """
    return _together(request, oxford_pets, food101)


def _together(request: DataRequest, *loaders: _Loader) -> Listed:
    """Return the files of several data sets, each a domain of its name; classes come in the order of the sets."""
    allow_only(request, "root")
    found: dict[str, Listed] = {}
    for loader in loaders:
        # What `of_files` wraps is the function that finds the files.
        files: Callable[[DataRequest], Listed] = unwrap(loader)
        found[loader.__name__] = files(replace(request, name=loader.__name__))
    train, test = (
        [replace(each, domain=name) for name, listed in found.items() for each in getattr(listed, part)]
        for part in ("train", "test")
    )
    classes = tuple(label for listed in found.values() for label in listed.classes)
    return Listed(data_root(request.root, request.base), train, test, classes, tuple(found))


@register("dataset", "caltech101")
@of_files
def caltech101(request: DataRequest) -> Listed:
    """Caltech 101 (Li et al. 2004): 8,677 images of 101 kinds of things (`root` or `path`).

    Folders `caltech101/101_ObjectCategories/class/image`; `BACKGROUND_Google` is no class. Images differ in size,
    so `size` must be given. There is no official test set.

    Raises:
        DataError: The folder is not there, or an image is broken.
    """
    allow_only(request, "root", "path")
    root = home(request, ("caltech101", "caltech-101"), "Caltech 101, data.caltech.edu")
    folder = root / "101_ObjectCategories"
    classes = in_folders(folder if folder.is_dir() else root, lambda name: name not in _NO_CLASS)
    train = [Picture(path, label) for label, paths in classes.items() for path in paths]
    return Listed(root, train, (), tuple(classes))


@register("dataset", "stanford_cars")
@of_files
def stanford_cars(request: DataRequest) -> Listed:
    """Stanford Cars (Krause et al. 2013): 8,144 + 8,041 photographs of 196 models (`root` or `path`).

    Folder `stanford_cars` with `devkit/cars_meta.mat`, `devkit/cars_train_annos.mat`, `cars_train`, `cars_test`
    and `cars_test_annos_withlabels.mat`; without the last one there is no test set. Images differ in size, so
    `size` must be given.

    Raises:
        DataError: A file is not there, or is broken.
    """
    allow_only(request, "root", "path")
    root = home(request, ("stanford_cars",), "Stanford Cars, as torchvision's StanfordCars reads it")
    devkit, test = root / "devkit", root / "cars_test_annos_withlabels.mat"
    classes = tuple(str(name) for name in _matlab(devkit / "cars_meta.mat", "class_names"))
    annotated = devkit / "cars_train_annos.mat"
    train = of_lists(root / "cars_train", _cars(annotated, classes), annotated.name)
    held = of_lists(root / "cars_test", _cars(test, classes), test.name) if test.exists() else []
    return Listed(root, train, held, classes)


@register("dataset", "oxford_pets")
@of_files
def oxford_pets(request: DataRequest) -> Listed:
    """Oxford-IIIT Pets (Parkhi et al. 2012): 3,680 + 3,669 photographs of 37 breeds (`root` or `path`).

    Folder `oxford-iiit-pet` with `images` and the lists `annotations/trainval.txt` and `annotations/test.txt`.
    Images differ in size, so `size` must be given.

    Raises:
        DataError: A file is not there, or is broken.
    """
    allow_only(request, "root", "path")
    root = home(request, ("oxford-iiit-pet", "oxford_pets"), "Oxford-IIIT Pets, robots.ox.ac.uk/~vgg/data/pets")
    lists = [_pets(root / "annotations" / f"{part}.txt") for part in ("trainval", "test")]
    numbers = {breed: number for rows in lists for breed, number in rows.values()}
    train, test = (
        of_lists(root / "images", [(f"{file}.jpg", breed) for file, (breed, _) in rows.items()], "annotations")
        for rows in lists
    )
    return Listed(root, train, test, tuple(sorted(numbers, key=numbers.__getitem__)))


@register("dataset", "food101")
@of_files
def food101(request: DataRequest) -> Listed:
    """Food-101 (Bossard et al. 2014): 75,750 + 25,250 photographs of 101 dishes (`root` or `path`).

    Folder `food-101` with `images/class/image` and the lists `meta/train.json` and `meta/test.json`. Images differ
    in size, so `size` must be given.

    Raises:
        DataError: A file is not there, or is broken.
    """
    allow_only(request, "root", "path")
    root = home(request, ("food-101", "food101"), "Food-101, data.vision.ee.ethz.ch/cvl/datasets_extra/food-101")
    lists = [_meals(root / "meta" / f"{part}.json") for part in ("train", "test")]
    classes = sorted({name for rows in lists for name in rows})
    train, test = (
        of_lists(root / "images", [(f"{file}.jpg", name) for name in sorted(rows) for file in rows[name]], "meta")
        for rows in lists
    )
    return Listed(root, train, test, tuple(classes))


_NO_CLASS = {"BACKGROUND_Google", "Annotations"}


def _cars(path: Path, classes: Sequence[str]) -> list[tuple[str, str]]:
    """Names and classes of annotated photographs; the files count classes from 1."""
    try:
        rows = [(str(row["fname"]), int(row["class"])) for row in _matlab(path, "annotations")]
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise DataError(f"{path.name}: annotations have no fname and class ({error})") from None
    if not all(1 <= number <= len(classes) for _, number in rows):
        raise DataError(f"{path.name}: holds a class outside 1 to {len(classes)}")
    return [(name, classes[number - 1]) for name, number in rows]


def _matlab(path: Path, name: str) -> list[Any]:
    from scipy.io import loadmat

    if not path.is_file():
        raise DataError(f"{path.parent.name}/{path.name} does not exist; allowed: the data set as it is published")
    regular_size(path, limits.TABLE_BYTES)
    try:
        content = loadmat(path, squeeze_me=True)
        return list(content[name])
    except Exception as error:  # noqa: BLE001 - scipy's reader raises whatever it runs into
        raise DataError(f"{path.name}: cannot be read as a list of {name} ({error})") from None


def _pets(path: Path) -> dict[str, tuple[str, int]]:
    """The files of a list, to breed and its number: `Abyssinian_100 1 1 1`."""
    found = {}
    for where, words in rows_of(path):
        if len(words) < 2 or not words[1].isdecimal():
            raise DataError(f"{where}; allowed: a file's name and its class")
        found[words[0]] = (words[0].rpartition("_")[0], int(words[1][:9]))
    return found


def _meals(path: Path) -> dict[str, list[str]]:
    """The files of each class."""
    try:
        content = json.loads(text_of(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path.name}: is no JSON ({error})") from None
    if not isinstance(content, dict) or not all(
        isinstance(files, list) and all(isinstance(file, str) for file in files) for files in content.values()
    ):
        raise DataError(f"{path.name}: allowed: classes, each with a list of files")
    return content
