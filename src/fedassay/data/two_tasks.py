"""Two published data sets as two domains that share no class: one client's task, and another's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import unwrap

from fedassay.data.images import LoadedData
from fedassay.data.listed_files import Listed, of_files
from fedassay.data.loading import DataRequest, allow_only
from fedassay.data.object_sets import caltech101, food101, oxford_pets, stanford_cars
from fedassay.support.paths import data_root
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
