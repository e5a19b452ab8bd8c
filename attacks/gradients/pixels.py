"""Relation of a layer's inputs to the image: its pixels under a public map, or outputs of earlier layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedassay.support.types import Images, Matrix

Shape = tuple[int, int, int]


class Before(nn.Module):
    """Inputs of one layer of a network, from float images in [0, 1], shape (n, C, H, W).

    Args:
        network: From images, 0 to 255.
        layer: Name of a module in it.
    """

    def __init__(self, network: nn.Module, layer: str) -> None:
        super().__init__()
        self.network, self.layer = network, layer

    def forward(self, images: Tensor) -> Tensor:
        """The inputs, shape (n, d)."""
        caught: list[Tensor] = []
        hook = self.network.get_submodule(self.layer).register_forward_pre_hook(
            lambda _module, given: caught.append(given[0])
        )
        try:
            self.network(images * 255)
        finally:
            hook.remove()
        return caught[0].flatten(1)


@dataclass(frozen=True)
class PixelMap:
    """Inputs of a layer that are pixels: input = offset + scale * pixel, in the order of (C, H, W).

    Attributes:
        offset: Of a black image, shape (d,) or a number.
        scale: Of a white image over that, shape (d,) or a number.
        shape: Height, width, channels.
    """

    offset: Matrix | float
    scale: Matrix | float
    shape: Shape

    def images(self, inputs: Matrix) -> Images:
        """Images (n, H, W, C) of inputs (n, d), rounded to bytes."""
        height, width, channels = self.shape
        pixels = (inputs - self.offset) / self.scale * 255
        whole = np.rint(np.nan_to_num(pixels).clip(0, 255)).astype(np.uint8)
        return np.ascontiguousarray(whole.reshape(-1, channels, height, width).transpose(0, 2, 3, 1))


def pixel_map(network: nn.Module, layer: str, shape: Shape) -> PixelMap | None:
    """The map to a layer's inputs where it takes every pixel by itself; None where earlier layers mix them.

    A black, a white and a random image tell.
    """
    height, width, channels = shape
    size = (1, channels, height, width)
    random = torch.rand(size, generator=torch.Generator().manual_seed(0))
    probes = torch.cat([torch.zeros(size), torch.ones(size), random])
    with torch.no_grad():
        black, white, seen = Before(network, layer)(probes.to(next(network.parameters()).device)).double().cpu()
    if len(black) != random.numel() or bool((white == black).any()):
        return None
    away = (seen - black - (white - black) * random.flatten()).abs().max()
    if float(away) > 1e-4 * float((white - black).abs().max()):
        return None
    return PixelMap(black.numpy(), (white - black).numpy(), shape)


def guessed_map(inputs: Matrix, known: Shape | None) -> PixelMap | None:
    """The map where no network is known, by what inputs lie between; None where they cannot be an image.

    Args:
        inputs: Shape (n, d).
        known: Height, width and channels of the images, where anything says so.
    """
    width = inputs.shape[1]
    shape = known if known is not None and int(np.prod(known)) == width else _square(width)
    if shape is None or not len(inputs):
        return None
    low, high = float(inputs.min()), float(inputs.max())
    for least, most, offset, scale in ((0, 1, 0.0, 1.0), (-1, 1, -1.0, 2.0), (0, 255, 0.0, 255.0)):
        slack = 0.02 * (most - least)
        if low > least - slack and high < most + slack:
            return PixelMap(offset, scale, shape)
    return PixelMap(low, max(high - low, 1e-12), shape)


def _square(width: int) -> Shape | None:
    for channels in (1, 3):
        side = round((width / channels) ** 0.5)
        if side * side * channels == width:
            return (side, side, channels)
    return None
