"""Labelled images of one owner, with their features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.images import are_pictures, need_pictures
from fedassay.support.hashing import digest_arrays
from fedassay.support.types import Bools, Floats, Images, Ints


@dataclass(frozen=True)
class Records:
    """Labelled images of one owner, with their features under the plan's backbone.

    Attributes:
        name: The owner: `client/3`, `test`, `attacker`, `public`.
        images: Shape (n, H, W, C), uint8.
        labels: Shape (n,).
        extract: Computes the features of `images`; called once, when they are first needed.
        groups: Shape (n,): whom each record is of, numbers that mean the same person everywhere in a run.
            None: each record is of a person of its own.
        attributes: Sensitive attributes that a plan names, each of shape (n,), which audits alone read.
    """

    name: str
    images: Images
    labels: Ints
    extract: Callable[[Images], Floats] = field(repr=False, compare=False)
    groups: Ints | None = None
    attributes: Mapping[str, Ints] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width, channels.

        Raises:
            DataError: There are no images, only features.
        """
        height, width, channels = self.images.shape[1:]
        need_pictures((height, width, channels))
        return height, width, channels

    @property
    def pictures(self) -> bool:
        """Whether there are images, and not what stands for them where only features are known."""
        height, width, channels = self.images.shape[1:]
        return are_pictures((height, width, channels))

    @cached_property
    def features(self) -> Floats:
        """Features, shape (n, d), float32."""
        return self.extract(self.images)

    def take(self, indices: Ints, name: str | None = None) -> Records:
        """The records at `indices`; features are taken from this set's, not computed again."""
        chosen = np.asarray(indices, np.int64)
        return Records(
            name or self.name,
            self.images[chosen],
            self.labels[chosen],
            lambda _images: self.features[chosen],
            None if self.groups is None else self.groups[chosen],
            {name: values[chosen] for name, values in self.attributes.items()},
        )

    def relabelled(self, labels: Ints) -> Records:
        """The same images under other labels, shape (n,)."""
        return Records(
            self.name,
            self.images,
            labels.astype(np.int64),
            lambda _images: self.features,
            self.groups,
            self.attributes,
        )

    def among(self, *others: Records) -> Bools:
        """Whether each record's image is also one of the others', shape (n,)."""
        held = {image.tobytes() for each in others for image in each.images}
        return np.array([image.tobytes() in held for image in self.images], np.bool_)

    def without(self, *others: Records) -> Records:
        """The records with an image that none of the others has."""
        return self.take(np.flatnonzero(~self.among(*others)))


def first_of_each(rows: NDArray[Any], labels: Ints) -> Ints:
    """Positions of the rows that no earlier one equals with its label, shape (m,)."""
    places: dict[bytes, int] = {}
    for place, (row, label) in enumerate(zip(rows, labels.tolist(), strict=True)):
        places.setdefault(row.tobytes() + b"%d" % label, place)
    return np.fromiter(places.values(), np.int64)


def joined(name: str, parts: Sequence[Records]) -> Records:
    """Several sets of records as one owner's, in order; features are computed at most once for each part.

    Groups are kept where every part has them; otherwise each record is of a person of its own. So are attributes.
    """
    groups = [part.groups for part in parts if part.groups is not None]
    return Records(
        name,
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        lambda _images: np.concatenate([part.features for part in parts]),
        np.concatenate(groups) if len(groups) == len(parts) else None,
        {
            name: np.concatenate([part.attributes[name] for part in parts])
            for name in (parts[0].attributes if parts else ())
            if all(name in part.attributes for part in parts)
        },
    )


def records_digest(records: Records, features: bool) -> str:
    """SHA-256 over the images and labels of records, and over whom they are of.

    Args:
        records: The records.
        features: Whether their features count as well: where they were not computed of the images here.
    """
    arrays: dict[str, NDArray[Any]] = {"images": records.images, "labels": records.labels}
    if records.groups is not None:
        arrays["groups"] = records.groups
    arrays |= {f"attribute {name}": values for name, values in records.attributes.items()}
    if features:
        arrays["features"] = records.features
    return digest_arrays(arrays)
