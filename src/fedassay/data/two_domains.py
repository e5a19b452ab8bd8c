"""Two embedded data sets of two domains: one of the same classes that look different, one of different things."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedassay.data.digits import digits
from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import DataRequest, DataSize, allow_groups, allow_only, resized
from fedassay.data.photographs import SIDE, photographs
from fedassay.support.registry import register
from fedassay.support.types import Images

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@register("dataset", "photographs_inverted", size=DataSize(1_586, 0, (32, 32, 3), 10))
def photographs_inverted(request: DataRequest) -> LoadedData:
    """Patches of ten photographs, half in colour, half in inverted grey: 1,586 of 32x32 in 10 classes (embedded).

    `photographs` in two domains, `colour` and `inverted`, for `clients.partition: domains` and `data.test_domain`:
    every other region of a photograph is made grey and inverted, so that no patch is in both.
    """
    allow_only(request, "groups")
    named = allow_groups(request, "region")
    train = photographs(replace(request, name="photographs", groups="region")).train
    assert train.groups is not None
    domain = _every_other(train)
    images = train.images.copy()
    images[domain == 1] = 255 - _grey(images[domain == 1])
    train = replace(
        train,
        images=images,
        domains=domain,
        domain_names=("colour", "inverted"),
        groups=train.groups if named else None,
    )
    return LoadedData(train, None, "photographs of scikit-image and scikit-learn in two domains, embedded")


@register("dataset", "photographs_and_digits", size=DataSize(3_383, 0, (32, 32, 1), 20))
def photographs_and_digits(request: DataRequest) -> LoadedData:
    """Grey patches of ten photographs and handwritten digits: 3,383 of 32x32 in 20 classes (embedded).

    `photographs` and `digits` in two domains that share no class, for `clients.partition: domains`. Digits are
    resized from 8x8 (Lanczos). The patches of one region are always in one role.
    """
    allow_only(request)
    pictures = photographs(replace(request, name="photographs")).train
    written = resized(digits(replace(request, name="digits")).train, SIDE)
    assert pictures.together is not None
    alone = pictures.together.max() + 1 + np.arange(len(written))
    train = ImageSet(
        np.concatenate([_grey(pictures.images)[..., :1], written.images]),
        np.concatenate([pictures.labels, written.labels + pictures.classes]),
        (*pictures.class_names, *written.class_names),
        domains=np.repeat([0, 1], [len(pictures), len(written)]),
        domain_names=("photographs", "digits"),
        together=np.concatenate([pictures.together, alone]),
    )
    return LoadedData(train, None, "photographs and digits of scikit-image and scikit-learn, embedded")


def _every_other(train: ImageSet) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """0 or 1 for each patch, by its region's number within its photograph, in turn."""
    domain = np.zeros(len(train), np.int64)
    assert train.groups is not None
    for label in range(train.classes):
        own = train.labels == label
        domain[own] = np.unique(train.groups[own], return_inverse=True)[1] % 2
    return domain


def _grey(images: Images) -> Images:
    """Luma, in all three channels."""
    luma = np.rint(images.astype(np.float32) @ _LUMA).astype(np.uint8)
    return np.repeat(luma[..., np.newaxis], 3, axis=3)
