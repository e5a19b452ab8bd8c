"""Spaces in which a copy that was mirrored, shifted or recoloured stays close to its original.

Pixel distance takes such a copy for another image. A space has an embedding of unit length, in which distance is a
monotone function of a correlation, and alterations; each image is shown in the alteration that fits best:

- `aligned`: pixels, each channel less its mean and over its spread, so that brightness, contrast and the weight of
  a channel drop out; images are reduced to 32 pixels, mirrored, and shifted by up to a tenth of a side.
- `backbone`: features under the plan's backbone, less their mean over the records; images are mirrored.
- `lpips`: mean activations of every stage of the LPIPS network of the plan, as `backbone`.

Copy detection by similarity of features, calibrated by what neighbours show, is that of Pizzi et al., "A
Self-Supervised Descriptor for Image Copy Detection", 2022; Somepalli et al., "Diffusion Art or Digital Forgery?",
2023, hold generators against training images by it. No descriptor that was trained to detect copies comes with
this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedassay.contracts.audit import AuditContext
from fedassay.support.errors import NotRunError
from fedassay.support.types import Floats, Images

Shown = NDArray[Any]
"""Altered images as a space embeds them: (n, H, W, C), uint8, or pixels in [0, 1] in the space `aligned`."""

SpaceName = Literal["aligned", "backbone", "lpips"]
"""The spaces that there are."""

_LONGEST = 32
"""Side to which images are reduced before they are aligned."""
_SHIFTED = 10
"""A tenth of a side is the largest shift."""
_FLAT = 1e-3
"""Spread of a channel, of pixels in [0, 1], under which it counts as flat."""


@dataclass(frozen=True)
class Space:
    """Space that altered copies are searched in.

    Attributes:
        name: Name in the plan.
        words: Its description, for a reason.
        embed: Images (n, H, W, C) to vectors (n, d).
        alterations: The images as they are, and altered in every way that is tried, each (n, H, W, C).
        centred: Whether the mean over the records is taken off before vectors are scaled to unit length.
    """

    name: SpaceName
    words: str
    embed: Callable[[Any], Floats]
    alterations: Callable[[Images], Iterator[Shown]]
    centred: bool


def space_named(name: SpaceName, context: AuditContext) -> Space:
    """The space of a plan.

    Raises:
        NotRunError: It takes a network that the plan does not have.
    """
    if name == "aligned":
        return Space(
            name, "pixels mirrored, shifted and without brightness and contrast", standardised, moved, False
        )
    if name == "backbone":
        return Space(name, "features of the plan's backbone", context.data.encode, mirrored, True)
    network = context.similarity.lpips
    if network is None:
        raise NotRunError(f"altered copies are looked for by LPIPS: {context.similarity.remark}")
    return Space(name, "activations of the LPIPS network", network.embed, mirrored, True)


def reduced(images: Images) -> NDArray[np.float32]:
    """Pixels in [0, 1] of images reduced by area to a longer side of at most 32: (n, h, w, C)."""
    planes = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 255
    longest = max(planes.shape[2:])
    if longest > _LONGEST:
        size = [max(1, round(side * _LONGEST / longest)) for side in planes.shape[2:]]
        planes = functional.interpolate(planes, size=size, mode="area")
    return np.asarray(planes.permute(0, 2, 3, 1).numpy(), np.float32)


def standardised(images: Shown) -> Floats:
    """Each channel less its mean over its spread, as one vector an image, (n, d)."""
    pixels = images if images.dtype == np.float32 else reduced(images)
    channels = pixels.reshape(len(pixels), -1, pixels.shape[3])
    centred = channels - channels.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.square(centred).mean(axis=1, keepdims=True))
    return np.asarray((centred / (spread + _FLAT)).reshape(len(pixels), -1), np.float32)


def moved(images: Images) -> Iterator[Shown]:
    """Images, reduced, mirrored or not, and shifted by every whole number of pixels; edges are repeated."""
    pixels = reduced(images)
    height, width = pixels.shape[1:3]
    down, across = (max(1, side // _SHIFTED) for side in (height, width))
    wide = np.pad(pixels, ((0, 0), (down, down), (across, across), (0, 0)), mode="edge")
    for shown in (wide, wide[:, :, ::-1]):
        for top in range(2 * down + 1):
            for left in range(2 * across + 1):
                yield shown[:, top : top + height, left : left + width]


def mirrored(images: Images) -> Iterator[Shown]:
    """Images as they are, and mirrored."""
    yield images
    yield np.ascontiguousarray(images[:, :, ::-1])


def altered(images: Images, rng: np.random.Generator) -> Images:
    """Each image mirrored, shifted by a tenth of its sides, or recoloured, by turns: what a control gives back.

    Args:
        images: Shape (n, H, W, C), uint8.
        rng: Of directions and colours: a gain of 0.6 to 1.4 and an offset of 40 at most for each channel.
    """
    out = images.copy()
    out[::3] = images[::3, :, ::-1]
    height, width = images.shape[1:3]
    down, across = (max(1, side // _SHIFTED) for side in (height, width))
    for place in range(1, len(images), 3):
        top, left = (int(rng.choice([0, 2 * step])) for step in (down, across))
        wide = np.pad(images[place], ((down, down), (across, across), (0, 0)), mode="edge")
        out[place] = wide[top : top + height, left : left + width]
    part = images[2::3]
    shape = (len(part), 1, 1, images.shape[3])
    coloured = part * rng.uniform(0.6, 1.4, shape) + rng.uniform(-40, 40, shape)
    out[2::3] = np.clip(np.rint(coloured), 0, 255).astype(np.uint8)
    return out
