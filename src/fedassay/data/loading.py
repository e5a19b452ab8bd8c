"""From the plan's `data` section to images in memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedassay.data.domains import only_domains
from fedassay.data.feature_archive import with_features
from fedassay.data.groups import check_several
from fedassay.data.images import ImageSet, LoadedData, are_pictures
from fedassay.data.presence import Uncertain
from fedassay.data.sampling import stratified_sample, whole_persons
from fedassay.data.spellings import listed
from fedassay.support import limits
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find
from fedassay.support.registry import lookup

MIN_SIDE = 7
"""Smallest height and width accepted: the window of SSIM is 7 x 7 pixels."""

MAX_SIDE = 1024
"""Largest height and width accepted, after `size`: all pairs of images are compared, pixel by pixel."""
MAX_CLASSES = 10_000
"""Most classes accepted."""
MANY_CLASSES = 100
"""From so many classes on, there must be two records a class on average: else they are numbers, not classes."""

LABEL = "label"
"""The attribute that is the class itself, which every data set has."""

_NAMED = 20
"""Number of classes that an error names before it counts the rest."""

Source = Literal[
    "root",
    "path",
    "labels",
    "file_column",
    "label_column",
    "features",
    "groups",
    "sites",
    "layout",
    "label",
    "uncertain",
    "incomplete",
    "bits",
    "frames",
]


@dataclass(frozen=True)
class DataSize:
    """Size of a data set that is known by its name.

    Attributes:
        records: Number of training records.
        test: Number of official test records; 0 where there are none.
        image: Height, width, channels.
        classes: Number of classes.
    """

    records: int
    test: int
    image: tuple[int, int, int]
    classes: int


@dataclass(frozen=True)
class DataRequest:
    """Request of a plan for its data.

    Attributes:
        name: Registered name of the data set.
        root: Folder where published data sets are or go; None: environment FEDASSAY_DATA, else the user's own.
        path: File or folder of the user's own (`npz`, `image_folder`).
        limit: Keep at most so many records, of the training set and of the official test set
            each; a seeded draw, stratified by class.
        seed: Seed of that draw, and of a data set that is generated; None: drawn from the system.
        base: Folder of the plan; relative paths are looked up beside it first.
        size: Height and width that images are resized to (Lanczos; proportions change, nothing is cropped
            away); None: as they are.
        labels: CSV of labels of an `image_folder`; None: its folders are the classes.
        file_column: Column of file names in it; None: it is found.
        label_column: Column of labels in it, or number of the column of an `npz`'s labels; None: it is found.
        features: Archive of features that were computed elsewhere; None: a backbone computes them.
        classes: Names of the classes that are kept; None: all.
        domains: Names of the domains that are kept; None: all.
        groups: Source of the records' persons: an array, a column or several, a pattern of paths, or a name that
            the data set knows; None: each record is of a person of its own.
        sites: Column of sites in the table; None: folders named like sites are.
        layout: Kind of each level of folders; None: found from their names.
        label: One label of several that a record may have; its presence is the class. None: labels are classes.
        uncertain: Treatment of records that do not say whether they have it; None: there must be none.
        incomplete: Whether images without a row or a label, rows without an image, and files that cannot be read
            are refused or left out.
        attributes: Names of sensitive attributes: arrays of the archive, or `label` for the classes themselves.
        bits: Actual bits of the values of images that declare more; None: the declared bits.
        frames: Pictures that are taken of a file of several, `first` or `each`; None: each file must have one.
        download: Whether published files that are not there may be downloaded.
    """

    name: str
    root: Path | None
    path: Path | None
    limit: int | None
    seed: int | None
    base: Path
    size: int | None = None
    labels: Path | None = None
    file_column: str | None = None
    label_column: str | int | tuple[str, ...] | None = None
    groups: str | Sequence[str] | None = None
    sites: str | None = None
    layout: str | None = None
    label: str | None = None
    uncertain: Uncertain | None = None
    incomplete: Literal["refuse", "leave_out"] = "refuse"
    features: Path | None = None
    classes: tuple[str, ...] | None = None
    domains: tuple[str, ...] | None = None
    download: bool = True
    attributes: tuple[str, ...] = ()
    bits: int | None = None
    frames: Literal["first", "each"] | None = None

    @property
    def group(self) -> str | None:
        """Source of the records' persons, where only one name is possible.

        Raises:
            PlanError: Several are given.
        """
        if self.groups is None or isinstance(self.groups, str):
            return self.groups
        raise PlanError(f"data.groups: {', '.join(self.groups)} given; data set {self.name} takes one name alone")

    def unlimited(self) -> DataRequest:
        """Request to the loader: everything, where the limit applies to those that other keys leave."""
        if self.features is None and self.classes is None and self.domains is None:
            return self
        return dataclasses.replace(self, limit=None)


def load(request: DataRequest) -> LoadedData:
    """Load the data set that the plan names.

    Returns:
        The images, after `limit`.

    Raises:
        PlanError: No such data set, or a key that it does not take.
        DataError: A file is missing, broken or not what the data set is.
    """
    check_request(request)
    loader: Callable[[DataRequest], LoadedData] = lookup("dataset", request.name)
    data = loader(request.unlimited())
    if request.features is not None and data.train.features is None:
        own = tuple(name for name in request.attributes if name != LABEL and name not in data.train.attributes)
        data = with_features(data, find(request.features, request.base, "data.features"), own)
    if request.classes is not None:
        data = only_classes(data, request.classes)
    if request.domains is not None:
        data = only_domains(data, request.domains)
    data = with_attributes(data, request.attributes)
    if request.size is not None:
        data = dataclasses.replace(
            data,
            train=resized(data.train, request.size),
            test=None if data.test is None else resized(data.test, request.size),
        )
    check_usable(data.train, data.train.image_shape, data.source, features=request.features is not None)
    data = dataclasses.replace(data, account=data.account.adding(notes=_untaught(data)))
    if request.limit is None:
        return data
    return dataclasses.replace(
        data,
        train=limited(data.train, request.limit, request.seed),
        test=None if data.test is None else limited(data.test, request.limit, request.seed),
    )


def _untaught(data: LoadedData) -> Iterator[str]:
    """Yield a note on the classes that the test set alone has."""
    test = data.test
    strange = [] if test is None else np.setdiff1d(test.labels, data.train.labels).tolist()
    if test is not None and strange:
        names = listed(test.class_names[label] for label in strange)
        yield f"classes of the test set alone, of which nothing can be learned: {names}"


def with_attributes(data: LoadedData, names: tuple[str, ...]) -> LoadedData:
    """The same data with the class itself as an attribute, where it is one.

    Raises:
        PlanError: A name is no array of the data set, or has one value only.
    """

    def of(records: ImageSet) -> ImageSet:
        held = {name: records.labels if name == LABEL else records.attributes.get(name) for name in names}
        if missing := next((name for name, values in held.items() if values is None), None):
            raise PlanError(
                f"data.attributes: {missing} given, and {data.source} has no such array with one value a record; "
                f"allowed: arrays of an npz or of data.features, and {LABEL}"
            )
        return dataclasses.replace(records, attributes={name: v for name, v in held.items() if v is not None})

    if not names:
        return data
    return dataclasses.replace(data, train=of(data.train), test=None if data.test is None else of(data.test))


def check_request(request: DataRequest) -> None:
    """Refuse numbers that no data set can be read with.

    Raises:
        PlanError: `limit` or `size` is out of range.
    """
    if request.limit is not None and request.limit < 1:
        raise PlanError(f"data.limit: {request.limit} given; allowed: 1 or more")
    if request.size is not None and not MIN_SIDE <= request.size <= MAX_SIDE:
        raise PlanError(
            f"data.size: {request.size} given; allowed: {MIN_SIDE} (the window of SSIM) to {MAX_SIDE} pixels"
        )


def resized(images: ImageSet, size: int) -> ImageSet:
    """The same records as `size` x `size` images.

    Raises:
        PlanError: There are no images.
    """
    if images.image_shape[:2] == (size, size):
        return images
    if not images.pictures:
        raise PlanError(f"data.size: {size} given, but there are features and no images; leave it out")
    from PIL import Image

    channels = images.image_shape[2]
    shape = (len(images), size, size, channels)
    check_bytes(shape, "data.size")
    pixels = np.empty(shape, np.uint8)
    for target, image in zip(pixels, images.images, strict=True):
        picture = Image.fromarray(image[..., 0] if channels == 1 else image)
        small = np.asarray(picture.resize((size, size), Image.Resampling.LANCZOS))
        target[:] = small.reshape(size, size, channels)
    return dataclasses.replace(images, images=pixels)


def check_bytes(shape: tuple[int, ...], where: str) -> None:
    """Refuse images that would not fit, before memory is taken for them.

    Args:
        shape: (n, height, width, channels), of one byte each.
        where: For the error.

    Raises:
        DataError: They take more than `limits.ARRAY_BYTES`.
    """
    if (needed := math.prod(shape)) > limits.ARRAY_BYTES:
        raise DataError(
            f"{where}: {shape[0]:,} images of {shape[1]}x{shape[2]} pixels take {needed / limits.GIB:,.1f} GiB; "
            f"allowed: {limits.ARRAY_BYTES / limits.GIB:.0f} GiB, such as with data.limit or a smaller data.size"
        )


def only_classes(data: LoadedData, names: tuple[str, ...]) -> LoadedData:
    """The records of some classes, which keep their order.

    Raises:
        PlanError: There is no class of one of these names.
    """
    known = data.train.class_names
    if unknown := next((name for name in names if name not in known), None):
        listed = ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")
        raise PlanError(f"data.classes: {unknown!r} given; allowed: names of classes, of {listed}")
    kept = np.array([number for number, name in enumerate(known) if name in names], dtype=np.int64)

    def of(records: ImageSet) -> ImageSet:
        found = records.take(np.isin(records.labels, kept))
        labels = np.searchsorted(kept, found.labels).astype(np.int64)
        return dataclasses.replace(found, labels=labels, class_names=tuple(known[number] for number in kept))

    return dataclasses.replace(data, train=of(data.train), test=None if data.test is None else of(data.test))


def limited(images: ImageSet, limit: int, seed: int | None) -> ImageSet:
    """At most `limit` records of a set, stratified by class, in their order; persons whole or not at all.

    Raises:
        DataError: No person has so few records.
    """
    if len(images) <= limit:
        return images
    rng = np.random.default_rng(seed)
    if images.groups is None:
        return images.take(stratified_sample(images.labels, limit, rng))
    return images.take(whole_persons(images.labels, images.groups, limit, rng))


def allow_only(request: DataRequest, *allowed: Source) -> None:
    """Refuse those of the keys of some data sets that this one has no use for.

    Raises:
        PlanError: One of them is given.
    """
    given: dict[Source, object] = {
        "root": request.root,
        "path": request.path,
        "labels": request.labels,
        "file_column": request.file_column,
        "label_column": request.label_column,
        "groups": request.groups,
        "bits": request.bits,
        "frames": request.frames,
        "sites": request.sites,
        "layout": request.layout,
        "label": request.label,
        "uncertain": request.uncertain,
        "incomplete": request.incomplete if request.incomplete != "refuse" else None,
    }
    # Features may stand beside any data set.
    for key, value in given.items():
        if value is not None and key not in allowed:
            takes = ", ".join(allowed) or f"none of {', '.join(given)}"
            raise PlanError(f"data.{key}: {value} given, but data set {request.name} takes {takes}")


def allow_groups(request: DataRequest, *known: str) -> bool:
    """Whether the persons that a data set knows are asked for.

    Args:
        request: Of the plan.
        known: Names of them in the data set.

    Raises:
        PlanError: Others are asked for.
    """
    if request.group is not None and request.group not in known:
        raise PlanError(f"data.groups: {request.group} given; data set {request.name} knows {', '.join(known)}")
    return request.groups is not None


def check_usable(records: ImageSet, image: tuple[int, int, int], where: str, *, features: bool = False) -> None:
    """Refuse sets that nothing can be measured on.

    Args:
        records: The training set; its images are not looked at.
        image: Height, width and channels of its images.
        where: The data set, for errors.
        features: Features were computed elsewhere, so that there need be no images.

    Raises:
        DataError: No records, images smaller than `MIN_SIDE` or larger than `MAX_SIDE`, fewer than two classes,
            more than `MAX_CLASSES`, labels that are no classes, or all records of one person.
    """
    height, width, channels = image
    pictures = are_pictures(image) or not features
    if len(records) == 0:
        raise DataError(f"{where}: holds no images")
    if pictures and min(height, width) < MIN_SIDE:
        raise DataError(
            f"{where}: images of {height}x{width} pixels; allowed: {MIN_SIDE}x{MIN_SIDE} or larger "
            "(the window of SSIM)"
        )
    if pictures and max(height, width) > MAX_SIDE:
        raise DataError(
            f"{where}: images of {height}x{width} pixels; allowed: up to {MAX_SIDE}x{MAX_SIDE}, to which "
            "data.size resizes them"
        )
    if channels not in (1, 3):
        raise DataError(f"{where}: images with {channels} channels; allowed: 1 (grey) or 3 (red, green, blue)")
    classes = len(np.unique(records.labels))
    if classes < 2:
        raise DataError(f"{where}: all records are of one class; allowed: two classes or more")
    if classes > MAX_CLASSES or (classes > MANY_CLASSES and 2 * classes > len(records)):
        raise DataError(
            f"{where}: {len(records)} records are of {classes} classes; allowed: up to {MAX_CLASSES:,}, of two "
            "records or more on average (labels are classes, not numbers or names of records)"
        )
    check_several(records.groups, where)
