"""Labelled images in memory: what every data set becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.account import NOTHING_SAID, Account
from fedassay.support.errors import DataError
from fedassay.support.hashing import digest_arrays

NO_PICTURES = "this needs images, and data.features brought features alone; allowed: images beside them"
"""Message where images are needed and only features are known."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A set of labelled images; a record is an image with its label. May be empty.

    Attributes:
        images: (n, height, width, channels) uint8, channels last.
        labels: (n,) int64, positions in `class_names`.
        class_names: One name per class, those without a record included.
        domains: (n,) int64, positions in `domain_names`; None where the set has no domains.
        domain_names: One name per domain.
        groups: (n,) int64; whom each record is of. No two roles, and no two clients, share a person. None: each
            record is of a person of its own.
        features: (n, d) float32, computed elsewhere; None: a backbone computes them of the images.
        together: (n,) int64; records of one number are in one role, though they are of several persons, such as
            neighbouring patches of a picture. None: nothing but persons and identical images belongs together.
        role: The `fedassay.data.roles.Role` of all records; None: they have none yet. Only who gives roles
            out sets it: what is computed from `public` records alone is kept as public.
        attributes: Sensitive attributes that the plan names (`data.attributes`), each (n,) int64 with its values
            numbered from 0. No method reads them.

    Raises:
        ValueError: Shapes or types are others than these, or a label has no name.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    domains: NDArray[np.int64] | None = None
    domain_names: tuple[str, ...] = ()
    groups: NDArray[np.int64] | None = None
    features: NDArray[np.float32] | None = None
    together: NDArray[np.int64] | None = None
    role: str | None = None
    attributes: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4:
            raise ValueError(f"images are {_describe(self.images)}; must be uint8 (n, height, width, channels)")
        _check_positions("labels", self.labels, len(self.images), len(self.class_names))
        if self.domains is not None:
            _check_positions("domains", self.domains, len(self.images), len(self.domain_names))
        for what, numbers in (("groups", self.groups), ("together", self.together), *self.attributes.items()):
            if numbers is not None and (numbers.dtype != np.int64 or numbers.shape != (len(self.images),)):
                raise ValueError(f"{what} are {_describe(numbers)}; must be int64 ({len(self.images)},)")
        if self.features is not None and (self.features.ndim != 2 or len(self.features) != len(self.images)):
            raise ValueError(f"features are {_describe(self.features)}; must be ({len(self.images)}, d)")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        height, width, channels = self.images.shape[1:]
        return height, width, channels

    @property
    def classes(self) -> int:
        """The number of classes, those without a record included."""
        return len(self.class_names)

    def take(self, indices: NDArray[np.integer[Any]] | NDArray[np.bool_]) -> ImageSet:
        """The records at `indices` (integers or a mask), in that order, as a copy."""
        return ImageSet(
            self.images[indices],
            self.labels[indices],
            self.class_names,
            None if self.domains is None else self.domains[indices],
            self.domain_names,
            None if self.groups is None else self.groups[indices],
            None if self.features is None else self.features[indices],
            None if self.together is None else self.together[indices],
            self.role,
            {name: values[indices] for name, values in self.attributes.items()},
        )

    @property
    def pictures(self) -> bool:
        """Whether there are images, and not what stands for them where only features are known."""
        return are_pictures(self.image_shape)

    def digest(self) -> str:
        """Content hash of images and of all that is known of each record, 64 hex digits."""
        arrays: dict[str, NDArray[Any] | None] = {
            "images": self.images,
            "labels": self.labels,
            "domains": self.domains,
            "groups": self.groups,
            "features": self.features,
            "together": self.together,
            **{f"attribute {name}": values for name, values in self.attributes.items()},
        }
        return digest_arrays({name: array for name, array in arrays.items() if array is not None})


@dataclass(frozen=True, eq=False)
class LoadedData:
    """Result of a data set's loader.

    Attributes:
        train: The records that the roles are drawn from.
        test: The official test set, where the data set has one; its groups number the same persons.
        source: Origin of the records, for the record and the report.
        account: Account of the user's own files, read and not read; empty for data sets that are known by name.
    """

    train: ImageSet
    test: ImageSet | None
    source: str
    account: Account = NOTHING_SAID


def are_pictures(image_shape: tuple[int, int, int]) -> bool:
    """Whether images of this shape are images; what stands for them where there are none is one pixel high."""
    return image_shape[0] > 1


def need_pictures(image_shape: tuple[int, int, int]) -> None:
    """Refuse what needs images where only features are known.

    Raises:
        DataError: There are no images.
    """
    if not are_pictures(image_shape):
        raise DataError(NO_PICTURES)


def _check_positions(what: str, values: NDArray[np.int64], records: int, names: int) -> None:
    if values.dtype != np.int64 or values.shape != (records,):
        raise ValueError(f"{what} are {_describe(values)}; must be int64 ({records},)")
    if records and not (values.min() >= 0 and values.max() < names):
        raise ValueError(f"{what} span {values.min()}..{values.max()}; {names} names are given")


def _describe(array: NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"
