"""Encoder and decoder with residual blocks: FedCVAE at the size that FedDiff's authors compare with.

Heinbaugh et al. (ICLR 2023) have a variant with residual blocks; Mendieta et al. 2025 (section 3.1, table 3)
take it with 5.97 million parameters and 79 MFLOPs at 32x32. Neither paper lists its layers. Here are three
blocks (He et al. 2016) each way, 32 to 256 channels at a half to an eighth of the sides, and a dense layer of
`hidden` units: with 502, and 10 classes, the paper's number of parameters. Normalisation is over groups, so that
DP-SGD can train it.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

_CHANNELS = (32, 64, 128, 256)
_GROUPS = 8


class ResidualEncoder(nn.Module):
    """From images and classes to means and logarithms of variances.

    Args:
        image_shape: Height, width and channels.
        classes: C.
        latent: Width of the latent vector.
        hidden: Width of the dense layer.
    """

    def __init__(self, image_shape: tuple[int, int, int], classes: int, latent: int, hidden: int) -> None:
        super().__init__()
        self.image_shape = image_shape
        height, width, channels = image_shape
        self.stem = nn.Conv2d(channels, _CHANNELS[0], 3, padding=1)
        self.blocks = nn.Sequential(*(_Block(before, after, 2) for before, after in pairwise(_CHANNELS)))
        flat = _CHANNELS[-1] * _eighth(height) * _eighth(width)
        self.dense = nn.Sequential(nn.Linear(flat + classes, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))

    def forward(self, given: Tensor) -> Tensor:
        """Rows (n, pixels + C), pixels in [0, 1] and channels first, to (n, 2 * latent)."""
        height, width, channels = self.image_shape
        pixels = height * width * channels
        maps = self.blocks(self.stem(given[:, :pixels].reshape(-1, channels, height, width)))
        found: Tensor = self.dense(torch.cat([maps.flatten(1), given[:, pixels:]], dim=1))
        return found


class ResidualDecoder(nn.Module):
    """From latent vectors and classes to images.

    Args:
        image_shape: Height, width and channels.
        inputs: Width of latent vector and classes together.
        hidden: Width of the dense layer.
    """

    def __init__(self, image_shape: tuple[int, int, int], inputs: int, hidden: int) -> None:
        super().__init__()
        self.image_shape = image_shape
        height, width, channels = image_shape
        self.rows, self.columns = _eighth(height), _eighth(width)
        flat = _CHANNELS[-1] * self.rows * self.columns
        self.dense = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, flat), nn.ReLU())
        self.blocks = nn.ModuleList(_Block(before, after, 1) for before, after in pairwise(reversed(_CHANNELS)))
        self.last = nn.Conv2d(_CHANNELS[0], channels, 3, padding=1)

    def forward(self, given: Tensor) -> Tensor:
        """(n, inputs) to logits of pixels (n, channels * height * width), channels first."""
        height, width, _ = self.image_shape
        maps = self.dense(given).view(-1, _CHANNELS[-1], self.rows, self.columns)
        for block in self.blocks:
            maps = functional.interpolate(block(maps), scale_factor=2.0)
        logits: Tensor = self.last(maps)[:, :, :height, :width].flatten(1)
        return logits


class _Block(nn.Module):
    """Two 3x3 convolutions beside a 1x1 one."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        groups = math.gcd(after, _GROUPS)
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.beside = nn.Conv2d(before, after, 1, stride=stride, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(groups, after) for _ in "12")

    def forward(self, maps: Tensor) -> Tensor:
        found = functional.relu(self.norms[0](self.first(maps)))
        found = self.norms[1](self.second(found)) + self.beside(maps)
        return functional.relu(found)


def _eighth(side: int) -> int:
    """Return the length of a side after three halvings, each rounded up."""
    return -(-side // 8)
