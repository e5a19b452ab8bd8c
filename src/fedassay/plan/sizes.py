"""Size of a plan's work, found without decoding an image or downloading anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedassay.backbones.base import BackboneSize
from fedassay.backbones.torchvision_models import MEASURED
from fedassay.contracts.sizes import Sizes
from fedassay.data.feature_archive import width_of
from fedassay.data.loading import DataSize
from fedassay.plan.own_images import (
    RoleSizes,
    data_seeds,
    outline,
    outline_of,
    published_size,
    request_of,
    role_sizes,
)
from fedassay.plan.schema import Plan
from fedassay.support.errors import FedassayError
from fedassay.support.paths import find
from fedassay.support.registry import entries, size_of


def sizes_of(plan: Plan, base: Path) -> Sizes | str:
    """The sizes of a plan, or in words what they cannot be known from.

    Of the user's own images names, labels and headers are read.
    """
    known = published_size(plan.data.name)
    if known is not None:
        known = _of_classes(known, plan.data.classes)
        image, classes = known.image, known.classes
        if plan.data.size is not None:
            image = (plan.data.size, plan.data.size, image[2])
        roles = _published_roles(plan, known)
    else:
        try:
            found = outline_of(plan, base)
            if found is None:
                return f"the number and size of the images of {plan.data.name} is not known without reading them"
            image, classes, roles = found.image, found.data.train.classes, role_sizes(plan.data, found)
        except FedassayError as error:
            return str(error)
    backbone = backbone_size(plan, image)
    if isinstance(backbone, str):
        return backbone
    if plan.data.features is not None:
        try:
            backbone = width_of(find(plan.data.features, base, "data.features")), 0.0
        except FedassayError as error:
            return str(error)
    return Sizes(
        private=roles.private,
        attacker=round(roles.attacker * plan.threat.attacker_share),
        public=roles.public,
        test=roles.test,
        control=roles.control,
        clients=plan.clients.count,
        classes=classes,
        image=image,
        width=backbone[0],
        backbone=backbone[1],
    )


def training_records(plan: Plan, base: Path) -> tuple[int, int] | str:
    """Training images of a plan's data set without its limit, and their classes; or why they are not known."""
    known = published_size(plan.data.name)
    if known is not None:
        known = _of_classes(known, plan.data.classes)
        return known.records, known.classes
    whole = plan.data.model_copy(update={"limit": None})
    try:
        found = outline(request_of(whole, base, data_seeds(plan.seeds[0])))
    except FedassayError as error:
        return str(error)
    if found is None:
        return f"the number of images of {plan.data.name} is not known without reading them"
    return len(found.data.train), found.data.train.classes


def _of_classes(known: DataSize, classes: tuple[str, ...] | None) -> DataSize:
    """The size of a part of a data set, as if all of its classes had as many records."""
    if classes is None:
        return known
    share = min(1.0, len(set(classes)) / known.classes)
    records, test = (round(share * count) for count in (known.records, known.test))
    return replace(known, records=records, test=test, classes=round(share * known.classes))


def _published_roles(plan: Plan, known: DataSize) -> RoleSizes:
    records, test = (
        count if plan.data.limit is None else min(count, plan.data.limit) for count in (known.records, known.test)
    )
    official = plan.data.roles == "official"
    shares = plan.data.split.shares(test_set=bool(test), official=official)
    return RoleSizes(
        private=round((test if official else records) * shares["private"]),
        attacker=round(records * shares["attacker"]),
        public=round(records * shares["public"]),
        test=round(records * shares.get("test", 0.0)) if official or not test else test,
        control=round(records * shares["control"]),
    )


def backbone_size(plan: Plan, image: tuple[int, int, int]) -> tuple[int, float] | str:
    """Features, and operations on one image at the plan's input size."""
    if plan.data.features is not None:
        return 0, 0.0  # nothing is computed; how many there are stands in the file
    name = plan.backbone.name
    own = size_of("backbone", name) if name in entries("backbone") else MEASURED.get(name)
    if not isinstance(own, BackboneSize):
        return f"the size of backbone {name} is not among those measured"
    height, width, channels = image
    side = plan.backbone.input_size or own.default or max(height, width)
    features = height * width * channels if own.features is None else own.features
    return features, own.operations * (side / own.side) ** 2
