"""Skip networks that represent images by their weights: the deep image prior, many images at once.

A convolutional encoder-decoder maps fixed noise to an image; fitting its weights to one observation gives natural
images before it gives noise (Ulyanov, Vedaldi and Lempitsky 2018, "Deep image prior", section 2 and the
supplementary material: down- and upsampling levels joined by narrow skips). Here every image has a network of its
own. The networks sit side by side as the groups of grouped convolutions, and normalisation is by channel, so that
images are independent of each other.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

_SLOPE = 0.2
_SKIP = 4
_SMALLEST = 4


class DeepImagePrior(nn.Module):
    """One skip network for each of `count` images.

    Args:
        count: Images, n.
        image_shape: Height, width and channels.
        channels: Channels of every level.
        levels: Times that the resolution is halved; fewer where the image would get smaller than 4 pixels.
        depth: Channels of the noise that goes in.
        generator: Draws the noise, uniform in [0, 0.1]. Weights are drawn from torch's global generator.
    """

    noise: Tensor

    def __init__(
        self,
        count: int,
        image_shape: tuple[int, int, int],
        *,
        channels: int,
        levels: int,
        depth: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        height, width, colours = image_shape
        while levels > 1 and min(height, width) >> levels < _SMALLEST:
            levels -= 1
        self.count = count
        self.register_buffer("noise", 0.1 * torch.rand(1, count * depth, height, width, generator=generator))
        self.skips, self.downs, self.ups = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for level in range(levels):
            inputs = channels if level else depth
            self.skips.append(_block(count, inputs, _SKIP, kernel=1))
            down = _block(count, inputs, channels, kernel=3, stride=2)
            self.downs.append(nn.Sequential(down, _block(count, channels, channels, kernel=3)))
            joined = nn.BatchNorm2d(count * (channels + _SKIP), track_running_stats=False)
            up = _block(count, channels + _SKIP, channels, kernel=3)
            self.ups.append(nn.Sequential(joined, up, _block(count, channels, channels, kernel=1)))
        self.last = _convolution(count, channels, colours, kernel=1)

    def forward(self) -> Tensor:
        """The images, shape (n, C, H, W), in (0, 1)."""
        hidden, skipped = self.noise, []
        for skip, down in zip(self.skips, self.downs, strict=True):
            skipped.append(skip(hidden))
            hidden = down(hidden)
        for up, beside in zip(reversed(self.ups), reversed(skipped), strict=True):
            size = beside.shape[-2:]
            grown = functional.interpolate(hidden, size=size, mode="bilinear", align_corners=False)
            hidden = up(self._join(grown, beside))
        image = torch.sigmoid(self.last(hidden))
        return image.reshape(self.count, -1, *image.shape[-2:])

    def _join(self, first: Tensor, second: Tensor) -> Tensor:
        """Concatenate channels network by network: the groups must stay together."""
        size = first.shape[-2:]
        parts = [part.reshape(self.count, -1, *size) for part in (first, second)]
        return torch.cat(parts, dim=1).reshape(1, -1, *size)


def _convolution(count: int, inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    mode: Literal["reflect", "zeros"] = "reflect" if kernel > 1 else "zeros"
    return nn.Conv2d(count * inputs, count * outputs, kernel, stride, kernel // 2, groups=count, padding_mode=mode)


def _block(count: int, inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        _convolution(count, inputs, outputs, kernel=kernel, stride=stride),
        # One image of every network is all there is: statistics over its positions, always.
        nn.BatchNorm2d(count * outputs, track_running_stats=False),
        nn.LeakyReLU(_SLOPE),
    )
