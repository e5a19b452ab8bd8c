"""From images in [0, 1] to a network's own input: resized, cropped, normalised, inside the network's gradient.

Preprocessing is part of a backbone's identity: its fingerprint, under which features are cached, covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.backbones.preprocessing import AS_IT_IS, Interpolation, Preprocessing
from fedassay.support.errors import PlanError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Input:
    """The input that a network was trained on, used where the plan does not set another.

    Attributes:
        size: Height and width that images are resized to, of the shorter side where they are cropped; None: as
            they are.
        channels: Channels of the network: grey images are repeated over three; None: as they are.
        mean: Per channel, in the network's order and scale.
        std: Like `mean`.
        crop: See `Preprocessing`; None: images are resized to a square.
        interpolation: See `Preprocessing`.
        scale: Multiplies the [0, 1] range before `mean` is subtracted; ignored where a plan gives its own mean.
        bgr: Whether the network expects blue, green, red.
    """

    size: int | None = None
    channels: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop: int | None = None
    interpolation: Interpolation = "bilinear"
    scale: float = 1.0
    bgr: bool = False


class Preprocess(nn.Module):
    """Images in [0, 1] to a network's own input; differentiable.

    Grey images are repeated over three channels where the network wants them. Images are resized to a square (a
    rectangle changes its proportions), or with `crop` by their shorter side, with a square cut out of the middle.
    Then they are scaled and normalised.

    Args:
        size: Height and width, or with `crop` the shorter side; None: as they are.
        channels: Channels of the network; None: as they are.
        mean: Per channel, subtracted after scaling.
        std: Per channel, divided by.
        scale: Multiplies the [0, 1] range.
        bgr: The network wants blue, green, red; `mean` and `std` are in this order then.
        crop: Side of the square in the middle; None: nothing is cut away.
        interpolation: Interpolation of resized images.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        size: int | None = None,
        channels: int | None = None,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        scale: float = 1.0,
        bgr: bool = False,
        *,
        crop: int | None = None,
        interpolation: Interpolation = "bilinear",
    ) -> None:
        super().__init__()
        self.size, self.channels, self.scale, self.bgr = size, channels, scale, bgr
        self.crop, self.interpolation = crop, interpolation
        self.asked = AS_IT_IS
        self.normalised = bool(mean)
        if self.normalised:
            self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
            self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) in [0, 1] to the network's input."""
        if self.channels is not None and images.shape[1] == 1:
            images = images.expand(-1, self.channels, -1, -1)
        if self.size is not None:
            images = self._resized(images, self.size)
        if self.crop is not None:
            top, left = (round((side - self.crop) / 2) for side in images.shape[-2:])
            images = images[..., top : top + self.crop, left : left + self.crop]
        if self.bgr:
            images = images.flip(1)
        return (images * self.scale - self.mean) / self.std if self.normalised else images

    def _resized(self, images: Tensor, size: int) -> Tensor:
        height, width = images.shape[-2:]
        wanted = (size, size)
        if self.crop is not None:
            # As torchvision's `Resize` rounds: down.
            short = min(height, width)
            wanted = (int(size * height / short), int(size * width / short))
        if (height, width) == wanted:
            return images
        if self.interpolation == "nearest":
            return functional.interpolate(images, size=wanted, mode="nearest-exact")
        resized = functional.interpolate(
            images, size=wanted, mode=self.interpolation, antialias=True, align_corners=False
        )
        # Cubic curves overshoot; files of 8 bits a channel, which networks were trained on, cannot.
        return resized.clamp(0, 1) if self.interpolation == "bicubic" else resized

    def extra_repr(self) -> str:
        """Everything that shapes the input but mean and deviation, so that it is part of the fingerprint."""
        text = f"size={self.size}, channels={self.channels}, scale={self.scale}, bgr={self.bgr}"
        if self.crop is not None:
            text += f", crop={self.crop}"
        return text if self.interpolation == "bilinear" else f"{text}, interpolation={self.interpolation}"

    def in_words(self) -> str:
        """The preprocessing of images, in words for the record."""
        steps = []
        if self.size is not None:
            side = f"shorter side to {self.size}" if self.crop is not None else f"to {self.size}x{self.size}"
            steps.append(f"resized, {side} pixels, {self.interpolation}")
        if self.crop is not None:
            steps.append(f"{self.crop}x{self.crop} in the middle")
        if self.bgr:
            steps.append("blue, green, red")
        if self.normalised:
            scaled = "" if self.scale == 1 else f" times {self.scale:g}"
            mean, std = (
                ", ".join(f"{value:.6g}" for value in part.flatten().tolist()) for part in (self.mean, self.std)
            )
            steps.append(f"[0, 1]{scaled} minus ({mean}), divided by ({std})")
        return "; ".join(steps) or "[0, 1] as it is"


def preprocess(
    name: str, asked: Preprocessing, input_size: int | None, images: tuple[int, int, int], own: Input
) -> Preprocess:
    """Return the preprocessing of a backbone: the plan's settings, with the network's own as defaults.

    Args:
        name: The backbone, for errors.
        asked: The plan's keys.
        input_size: The plan's; None: the network's own.
        images: Height, width and channels of the images.
        own: The input that the network was trained on.

    Raises:
        PlanError: Means for another number of channels, or a crop that is larger than the images.
    """
    channels = own.channels or images[2]
    asked.check(name, channels)
    size, crop = input_size or own.size, asked.crop or own.crop
    smallest = min(images[:2]) if size is None else size
    if crop is not None and crop > smallest:
        key = "crop" if asked.crop else "input_size"
        raise PlanError(
            f"backbone.{key}: {asked.crop or input_size} given; {name} cuts {crop} pixels out of images of "
            f"{smallest}, allowed: a crop up to the input size"
        )
    mean, std, scale = own.mean, own.std, own.scale
    if asked.mean is not None and asked.std is not None:
        mean, std = (given * (channels // len(given)) for given in (asked.mean, asked.std))
        mean, std, scale = (mean[::-1], std[::-1], 1.0) if own.bgr else (mean, std, 1.0)
    interpolation = asked.interpolation or own.interpolation
    made = Preprocess(size, own.channels, mean, std, scale, own.bgr, crop=crop, interpolation=interpolation)
    made.asked = asked
    return made
