"""How large a plan's work is, found without loading or downloading anything."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedassay.contracts.sizes import Sizes
from fedassay.plan.schema import Plan
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find


@dataclass(frozen=True)
class Published:
    """What is known of a data set by its name: records, official test records, image, classes."""

    records: int
    test: int
    image: tuple[int, int, int]
    classes: int


_PUBLISHED = {
    "fashion_mnist": Published(60_000, 10_000, (28, 28, 1), 10),
    "mnist": Published(60_000, 10_000, (28, 28, 1), 10),
    "cifar10": Published(50_000, 10_000, (32, 32, 3), 10),
    "cifar100": Published(50_000, 10_000, (32, 32, 3), 100),
    "svhn": Published(73_257, 26_032, (32, 32, 3), 10),
    "digits": Published(1_797, 0, (8, 8, 1), 10),
    "lfw_subset": Published(200, 0, (25, 25, 1), 2),
    "photographs": Published(1_586, 0, (32, 32, 3), 10),
    "circle": Published(80, 0, (8, 8, 1), 2),
}

_BACKBONES: dict[str, tuple[int, float, int]] = {
    # name: (features, operations an image, at this input size)
    "small_cnn": (64, 1.9e7, 28),
    "cifar_resnet20": (64, 8.2e7, 32),
    "cifar_resnet56": (64, 2.5e8, 32),
    "squeezenet1_1": (512, 7.0e8, 224),
    "resnet18": (512, 3.6e9, 224),
    "resnet50": (2048, 8.2e9, 224),
    "mobilenet_v2": (1280, 6.0e8, 224),
    "efficientnet_b0": (1280, 7.8e8, 224),
    "vit_b_16": (768, 3.5e10, 224),
}
_DEFAULT_INPUT = {"squeezenet1_1": 64}


def sizes_of(plan: Plan, base: Path) -> Sizes | str:
    """The sizes of a plan, or in words what they cannot be known from.

    An `npz` file's header is read where the file is there; images in folders are not counted.
    """
    known = _PUBLISHED.get(plan.data.name)
    if known is None and plan.data.name == "npz" and plan.data.path is not None:
        known = _of_npz(Path(plan.data.path), base)
    if known is None:
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


def _backbone(plan: Plan, known: Published) -> tuple[int, float] | str:
    """Features, and operations on one image at the plan's input size."""
    name, side = plan.backbone.name, plan.backbone.input_size
    height, width, channels = known.image
    if name == "pixels":
        return height * width * channels, 0.0
    if name not in _BACKBONES:
        return f"the size of backbone {name} is not among those measured"
    features, operations, at = _BACKBONES[name]
    taken = side or _DEFAULT_INPUT.get(name) or max(height, width)
    return features, operations * (taken / at) ** 2


def _of_npz(path: Path, base: Path) -> Published | None:
    """Sizes from the headers of an archive of arrays; None where it is absent or is none."""
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        found = find(path, base)
        with zipfile.ZipFile(found) as archive:
            for name in archive.namelist():
                with archive.open(name) as stream:
                    version = np.lib.format.read_magic(stream)
                    read = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shapes[name.removesuffix(".npy")] = read(stream)[0]
    except (OSError, ValueError, zipfile.BadZipFile, DataError, PlanError):
        return None
    images = shapes.get("x_train") or shapes.get("x")
    if images is None or len(images) < 3:
        return None
    image = (images[1], images[2], images[3] if len(images) > 3 else 1)
    with np.load(found, allow_pickle=False) as arrays:
        labels = arrays["y_train" if "y_train" in shapes else "y"]
    return Published(images[0], shapes.get("x_test", (0,))[0], image, len(np.unique(labels)))
