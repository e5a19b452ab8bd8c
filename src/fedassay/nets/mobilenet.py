"""MobileNetV2 (Sandler et al. 2018): the network of Yu et al. 2026 on CelebA, as torchvision builds it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedassay.support.torchvision import import_torchvision

MOBILENET_V2_WIDTH = 1280
"""Features under the classifier."""


class MobileNetV2Features(nn.Module):
    """From images (n, channels, height, width), in [-1, 1], to features (n, outputs).

    Args:
        channels: Channels of the images.
        outputs: 1280 are the features themselves; another number comes from a linear layer.
    """

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.net: Any = import_torchvision().models.mobilenet_v2(weights=None)
        if channels != 3:
            self.net.features[0][0] = nn.Conv2d(channels, 32, 3, stride=2, padding=1, bias=False)
        own = outputs == MOBILENET_V2_WIDTH
        self.net.classifier = nn.Identity() if own else nn.Linear(MOBILENET_V2_WIDTH, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Features."""
        features: Tensor = self.net(images)
        return features
