"""How large a plan's work is, found without loading or downloading anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedassay.backbones.base import BackboneSize
from fedassay.backbones.torchvision_models import MEASURED
from fedassay.contracts.sizes import Sizes
from fedassay.data.loading import DataSize
from fedassay.data.npz import declared
from fedassay.plan.schema import Plan
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find
from fedassay.support.registry import entries, size_of


def sizes_of(plan: Plan, base: Path) -> Sizes | str:
    """The sizes of a plan, or in words what they cannot be known from.

    An `npz` file's header is read where the file is there; images in folders are not counted.
    """
    known = size_of("dataset", plan.data.name)
    if known is None and plan.data.path is not None:
        known = _of_npz(Path(plan.data.path), base)
    if not isinstance(known, DataSize):
        return f"the number and size of the images of {plan.data.name} is not known without reading them"
    backbone = _backbone(plan, known)
    if isinstance(backbone, str):
        return backbone
    records, test = (
        count if plan.data.limit is None else min(count, plan.data.limit) for count in (known.records, known.test)
    )
    shares = plan.data.split.shares(test_set=bool(test))
    side = plan.data.size
    image = known.image if side is None else (side, side, known.image[2])
    return Sizes(
        private=round(records * shares["private"]),
        attacker=round(records * shares["attacker"] * plan.threat.attacker_share),
        public=round(records * shares["public"]),
        test=test or round(records * shares.get("test", 0.0)),
        control=round(records * shares["control"]),
        clients=plan.clients.count,
        classes=known.classes,
        image=image,
        width=backbone[0],
        backbone=backbone[1],
    )


def _backbone(plan: Plan, known: DataSize) -> tuple[int, float] | str:
    """Features, and operations on one image at the plan's input size."""
    name = plan.backbone.name
    own = size_of("backbone", name) if name in entries("backbone") else MEASURED.get(name)
    if not isinstance(own, BackboneSize):
        return f"the size of backbone {name} is not among those measured"
    height, width, channels = known.image
    side = plan.backbone.input_size or own.default or max(height, width)
    features = height * width * channels if own.features is None else own.features
    return features, own.operations * (side / own.side) ** 2


def _of_npz(path: Path, base: Path) -> DataSize | None:
    """Sizes from the headers of an archive of arrays; None where it is absent or is none."""
    try:
        shapes, labels = declared(find(path, base))
    except (DataError, PlanError):
        return None
    images = shapes.get("x_train") or shapes.get("x")
    if images is None or len(images) < 3 or labels is None:
        return None
    image = (images[1], images[2], images[3] if len(images) > 3 else 1)
    return DataSize(images[0], shapes.get("x_test", (0,))[0], image, len(np.unique(labels)))
