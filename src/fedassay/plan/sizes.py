"""How large a plan's work is, told without decoding an image or downloading anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedassay.contracts.sizes import Sizes
from fedassay.plan.own_images import RoleSizes, data_seeds, outline, request_of, role_sizes
from fedassay.plan.schema import Plan
from fedassay.support.errors import FedassayError


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
    "small_cnn_rectified": (256, 1.9e7, 28),
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

    Of the user's own images names, labels and headers are read.
    """
    known = _PUBLISHED.get(plan.data.name)
    if known is not None:
        image, classes = known.image, known.classes
        if plan.data.size is not None:
            image = (plan.data.size, plan.data.size, image[2])
        roles = _published_roles(plan, known)
    else:
        try:
            found = outline(request_of(plan.data, base, data_seeds(plan.seeds[0])))
            if found is None:
                return f"the number and size of the images of {plan.data.name} is not known without reading them"
            image, classes, roles = found.image, found.data.train.classes, role_sizes(plan.data, found)
        except FedassayError as error:
            return str(error)
    backbone = _backbone(plan, image)
    if isinstance(backbone, str):
        return backbone
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


def _published_roles(plan: Plan, known: Published) -> RoleSizes:
    records, test = (
        count if plan.data.limit is None else min(count, plan.data.limit) for count in (known.records, known.test)
    )
    shares = plan.data.split.shares(test_set=bool(test))
    return RoleSizes(
        private=round(records * shares["private"]),
        attacker=round(records * shares["attacker"]),
        public=round(records * shares["public"]),
        test=test or round(records * shares.get("test", 0.0)),
        control=round(records * shares["control"]),
    )


def _backbone(plan: Plan, image: tuple[int, int, int]) -> tuple[int, float] | str:
    """Features, and operations on one image at the plan's input size."""
    name, side = plan.backbone.name, plan.backbone.input_size
    height, width, channels = image
    if name == "pixels":
        return height * width * channels, 0.0
    if name not in _BACKBONES:
        return f"the size of backbone {name} is not among those measured"
    features, operations, at = _BACKBONES[name]
    taken = side or _DEFAULT_INPUT.get(name) or max(height, width)
    return features, operations * (taken / at) ** 2
