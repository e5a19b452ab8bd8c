"""Features that were computed elsewhere: `data.features`, an archive that stands in place of a backbone.

Beside a data set of images, row i of `features` is training record i and row i of `test_features` test record i,
in the order in which the data set gives them. On its own (the data set `precomputed_features`) the archive brings
labels as well, and images where there are any. Without images, records are identified by their features: the bytes
of these stand where images would.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from fedassay.data.archive import Archive
from fedassay.data.feature_archive import (
    classes_of,
    image_of,
    opened,
    outline_of_part,
    parts_of,
    read_part,
    with_attributes,
)
from fedassay.data.images import LoadedData
from fedassay.data.loading import LABEL, DataRequest, allow_only
from fedassay.data.outline import Outline
from fedassay.support.errors import PlanError
from fedassay.support.paths import find
from fedassay.support.registry import register


def outline_of_features(request: DataRequest) -> Outline:
    """Outline of an archive of features, from its headers and labels; no feature and no image is read.

    Raises:
        PlanError: As `precomputed_features`.
        DataError: As `precomputed_features`, apart from values that are not finite.
    """
    with _opened(request) as archive:
        names, parts = classes_of(archive), parts_of(archive)
        sets = with_attributes(archive, parts, [outline_of_part(archive, part, names) for part in parts])
        images = archive.headers.get("images")
        image = (
            (1, 4 * archive.headers["features"].shape[1], 1) if images is None else image_of(archive, "images")[1:]
        )
        return Outline(LoadedData(sets[0], sets[1] if len(sets) > 1 else None, f"file {archive.where}"), image)


@register("dataset", "precomputed_features", size=outline_of_features)
def precomputed_features(request: DataRequest) -> LoadedData:
    """Features of your own (`data.features`, an .npz: features, labels; images and groups where there are any).

    `features` is (n, d) of floating-point numbers, `labels` (n,) whole numbers, which are numbered anew in
    ascending order. `images`, uint8 (n, height, width) or (n, height, width, channels), are what the features
    were computed of: attacks that reconstruct images need them, and without them say so and are not run. `groups`
    (n,) are whole numbers: records of one number are one person's. The names of `attributes` are arrays (n,) of
    whole numbers or names. `test_features`, `test_labels` (and so on) are the official test set. Methods that
    train networks on images need images, those on frozen features do not.

    Raises:
        PlanError: No `data.features` is given, or a key that has no meaning here.
        DataError: The file is missing, broken, or rows do not match.
    """
    with _opened(request) as archive:
        names, parts = classes_of(archive), parts_of(archive)
        sets = [read_part(archive, part, outline_of_part(archive, part, names)) for part in parts]
        sets = with_attributes(archive, parts, sets)
        return LoadedData(sets[0], sets[1] if len(sets) > 1 else None, f"file {archive.where}")


def _opened(request: DataRequest) -> AbstractContextManager[Archive]:
    allow_only(request, "features")
    if request.features is None:
        raise PlanError("data.features: not given; data set precomputed_features needs the path of an .npz file")
    own = tuple(name for name in request.attributes if name != LABEL)
    return opened(find(request.features, request.base, "data.features"), own)
