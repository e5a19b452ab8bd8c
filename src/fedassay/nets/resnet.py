"""ResNet-16 for images of 32x32: what FedDiff's server trains (Mendieta et al. 2025, section 3.1).

The paper gives 16 layers, 6.44 million parameters and 479.92 MFLOPs. A CIFAR-style ResNet-18 (He et al. 2016)
without its last block has just these: blocks 2, 2, 2, 1 of 64 to 512 channels after a 3x3 stem.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedassay.backbones.base import initialised
from fedassay.support.torchvision import import_torchvision

_BLOCKS = [2, 2, 2, 1]


class ResNet16(nn.Module):
    """From images (n, channels, height, width), 0 to 255, to class scores (n, C).

    Batch normalisation is fine here: the server trains on what clients have released.
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        resnet = import_torchvision().models.resnet
        net: Any = resnet.ResNet(resnet.BasicBlock, _BLOCKS, num_classes=classes)
        net.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        net.maxpool = nn.Identity()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.net(images.float() / 127.5 - 1)
        return scores


def build_resnet16(channels: int, classes: int, seed: int) -> ResNet16:
    """A fresh network, initialised from `seed` alone."""
    return initialised(lambda: ResNet16(channels, classes), seed)
