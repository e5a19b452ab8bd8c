"""ResNet-16 for images of 32x32: the classifiers of Mendieta et al. 2025, of clients and of the server.

The paper gives 16 layers, 6.44 million parameters and 479.92 MFLOPs (section 3.1, table 3). A CIFAR-style
ResNet-18 (He et al. 2016) without its last block has these: blocks 2, 2, 2, 1 of 64 to 512 channels after a 3x3
stem.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Literal

from torch import Tensor, nn

from fedassay.backbones.base import initialised
from fedassay.support.torchvision import import_torchvision

_BLOCKS = [2, 2, 2, 1]
_GROUPS = 32
"""Groups of a group normalisation; Opacus's `ModuleValidator` puts as many in the place of batch normalisation."""

RESNET16_WIDTH = 512
"""Features under the classifier."""

Normalisation = Literal["batch", "group"]
"""`batch`: as published. `group`: of each record by itself, which DP-SGD needs; as many parameters."""


class ResNet16Features(nn.Module):
    """From images (n, channels, height, width), in [-1, 1], to features (n, outputs).

    Args:
        channels: Channels of the images.
        outputs: 512 are the features themselves, which are not negative; another number comes from a linear layer.
        normalisation: See `Normalisation`.
    """

    def __init__(self, channels: int, outputs: int, normalisation: Normalisation) -> None:
        super().__init__()
        last = nn.Identity() if outputs == RESNET16_WIDTH else nn.Linear(RESNET16_WIDTH, outputs)
        self.net = _trunk(channels, normalisation)
        self.net.fc = last

    def forward(self, images: Tensor) -> Tensor:
        """Features."""
        features: Tensor = self.net(images)
        return features


@lru_cache(maxsize=1)
def _block() -> Any:
    """The basic block of torchvision, with the shortcut added to a new tensor: Opacus's hooks need that."""
    basic: Any = import_torchvision().models.resnet.BasicBlock

    class Block(basic):  # type: ignore[misc]
        """Two 3x3 convolutions beside a shortcut."""

        def forward(self, x: Tensor) -> Tensor:
            """As torchvision's."""
            out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            found: Tensor = self.relu(out + (x if self.downsample is None else self.downsample(x)))
            return found

    return Block


def _trunk(channels: int, normalisation: Normalisation, classes: int = 1) -> Any:
    resnet = import_torchvision().models.resnet
    layer = nn.BatchNorm2d if normalisation == "batch" else partial(nn.GroupNorm, _GROUPS)
    net: Any = resnet.ResNet(_block(), _BLOCKS, num_classes=classes, norm_layer=layer)
    net.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


class ResNet16(nn.Module):
    """From images (n, channels, height, width), 0 to 255, to class scores (n, C).

    Batch normalisation is fine here: the server trains on what clients have released.
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.net = _trunk(channels, "batch", classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.net(images.float() / 127.5 - 1)
        return scores


def build_resnet16(channels: int, classes: int, seed: int) -> ResNet16:
    """A fresh network, initialised from `seed` alone."""
    return initialised(lambda: ResNet16(channels, classes), seed)
