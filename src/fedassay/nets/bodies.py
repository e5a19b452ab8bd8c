"""Client bodies: small networks from images to a given number of features, of several architectures.

A body is the part of a network that a client keeps for itself in federated representation learning; all clients
must agree only on the number of its outputs. No layer but those of the bodies in `MIXING` mixes records, so every
other body may be trained with differential privacy.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, Self, assert_never

from pydantic import Field, model_validator
from torch import Tensor, nn

from fedassay.backbones.base import initialised
from fedassay.nets.mobilenet import MOBILENET_V2_WIDTH, MobileNetV2Features
from fedassay.nets.resnet import RESNET16_WIDTH, ResNet16Features
from fedassay.support.errors import PlanError
from fedassay.support.types import Frozen

BodyName = Literal[
    "linear",
    "mlp",
    "mlp_deep",
    "cnn",
    "lenet_mnist",
    "lenet_cifar",
    "lenet_cifar_small",
    "resnet16",
    "resnet16_group",
    "mobilenet_v2",
]
"""The available bodies; `BodySpec` describes each."""

MIXING: frozenset[BodyName] = frozenset({"resnet16", "mobilenet_v2"})
"""Bodies with batch normalisation."""

_OWN_WIDTH: dict[BodyName, int] = {
    "resnet16": RESNET16_WIDTH,
    "resnet16_group": RESNET16_WIDTH,
    "mobilenet_v2": MOBILENET_V2_WIDTH,
}
_HIDDEN: dict[BodyName, int] = {"mlp": 128, "mlp_deep": 128, "cnn": 64}


class BodySpec(Frozen):
    """One body of a plan.

    Attributes:
        name: Its architecture. `linear`: one layer. `mlp`: two layers. `mlp_deep`: three. `cnn`: two 3x3
            convolutions, for images of any size. `lenet_mnist`, `lenet_cifar`: Yu et al. 2026, table A.1 (without
            dropout), for images of 16 pixels or more. `lenet_cifar_small`: the latter without its second fully
            connected layer, as in the paper's experiment with flexible architectures. `resnet16`: Mendieta et al.
            2025, section 3.1, of 6.44 million parameters at 32x32, for images of 16 pixels or more.
            `resnet16_group`: the same with group in place of batch normalisation, which DP-SGD needs.
            `mobilenet_v2`: Sandler et al. 2018, for images of 32 pixels or more. `linear` to `cnn` are small, for
            small machines.
        hidden: Width of the hidden layers of `mlp`, `mlp_deep` and `cnn`; None: 128, 128 and 64.
        width: Number of features m that the body is meant for; None: the number of the method.
    """

    name: BodyName
    hidden: int | None = Field(default=None, ge=1)
    width: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _hidden_where_there_is_one(self) -> Self:
        if self.hidden is not None and self.name not in _HIDDEN:
            raise ValueError(f"{self.name} has no hidden width to set; allowed with {', '.join(_HIDDEN)}")
        return self


def read_bodies(given: object) -> object:
    """Convert a plan's list of bodies, written as a name, a mapping, or a list of either."""
    entries = given if isinstance(given, list | tuple) else [given]
    return tuple({"name": entry} if isinstance(entry, str) else entry for entry in entries)


def build_body(spec: BodySpec, image_shape: tuple[int, int, int], outputs: int, seed: int) -> nn.Module:
    """Make a body, initialised from `seed` alone.

    Args:
        spec: The body to build.
        image_shape: Height, width and channels of the images.
        outputs: Number of features that come out, at least 1.
        seed: Seed of the initialisation.

    Returns:
        A module from images (n, channels, height, width), 0 to 255, to features (n, outputs), any sign.

    Raises:
        PlanError: Images of this size do not fit through the body.
    """
    trunk = initialised(lambda: _make(spec, image_shape, outputs), seed)
    return nn.Sequential(_Centre(), trunk)


class _Centre(nn.Module):
    """0 to 255, of any type, to [-1, 1] in float32."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 127.5 - 1


def _make(spec: BodySpec, image_shape: tuple[int, int, int], outputs: int) -> nn.Module:
    height, width, channels = image_shape
    hidden = spec.hidden or _HIDDEN.get(spec.name, 0)
    pixels = height * width * channels
    match spec.name:
        case "linear":
            return nn.Sequential(nn.Flatten(), nn.Linear(pixels, outputs))
        case "mlp":
            return _perceptron(pixels, hidden, outputs)
        case "mlp_deep":
            return _perceptron(pixels, hidden, hidden, outputs)
        case "cnn":
            return nn.Sequential(
                nn.Conv2d(channels, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                _perceptron(32 * (height // 4) * (width // 4), hidden, outputs),
            )
        case "lenet_mnist":
            return _lenet(image_shape, (10, 20), (outputs,))
        case "lenet_cifar":
            return _lenet(image_shape, (6, 16), (120, outputs))
        case "lenet_cifar_small":
            return _lenet(image_shape, (6, 16), (outputs,))
        case "resnet16" | "resnet16_group":
            _check_side(spec.name, height, width, 16)
            return ResNet16Features(channels, outputs, "batch" if spec.name == "resnet16" else "group")
        case "mobilenet_v2":
            _check_side(spec.name, height, width, 32)
            return MobileNetV2Features(channels, outputs)
        case _:
            assert_never(spec.name)


def _check_side(name: BodyName, height: int, width: int, least: int) -> None:
    if min(height, width) < least:
        raise PlanError(
            f"bodies: {name} does not take images of {height}x{width}; allowed: {least}x{least} or larger, or "
            "another body"
        )


def features_of(spec: BodySpec, width: int) -> int:
    """Features of a body under a head of its own: its natural number where it has one.

    Args:
        spec: The body.
        width: m of the method, the head's bias counted as one.
    """
    if spec.width is None and spec.name in _OWN_WIDTH:
        return _OWN_WIDTH[spec.name]
    return (spec.width or width) - 1


def _perceptron(*widths: int) -> nn.Sequential:
    """Fully connected layers of these widths, with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _lenet(image_shape: tuple[int, int, int], maps: tuple[int, int], widths: tuple[int, ...]) -> nn.Sequential:
    """Two 5x5 convolutions, each halved by pooling, then fully connected layers."""
    height, width, channels = image_shape
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    if min(rows, columns) < 1:
        raise PlanError(
            f"bodies: a lenet does not take images of {height}x{width}; allowed: 16x16 or larger, or another body"
        )
    return nn.Sequential(
        nn.Conv2d(channels, maps[0], 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(maps[0], maps[1], 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _perceptron(maps[1] * rows * columns, *widths),
    )
