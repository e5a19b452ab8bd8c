"""The small ResNets of the CIFAR experiments (He et al. 2016, section 4.2)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from fedassay.backbones.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Backbone,
    BackboneRequest,
    BackboneSize,
    Input,
    Weights,
    check_size,
    finish,
    initialised,
)
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.paths import find
from fedassay.support.registry import register
from fedassay.support.weights import assign, hub_file, load_state

_SIZE = 32
_PUBLISHED = "https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/pretrained_models/"


def _weights(file: str) -> Weights:
    return Weights(("cifar10", "random"), file=True, needed=True, urls={"cifar10": _PUBLISHED + file})


_WEIGHTS_20, _WEIGHTS_56 = _weights("resnet20-12fca82f.th"), _weights("resnet56-4bfd9763.th")


@register("backbone", "cifar_resnet20", size=BackboneSize(64, 8.2e7, 32, weights=_WEIGHTS_20, channels=3))
def cifar_resnet20(request: BackboneRequest) -> Backbone:
    """ResNet-20 for 32x32 images, 64 features; weights of CIFAR-10, from a path, or random.

    Weights: `cifar10`, as Y. Idelbayev published them after training on CIFAR-10's training images; the path of a
    state dict of that layout; or `random`.

    Raises:
        DataError: The file is missing, broken or another network's.
    """
    return _cifar_resnet(request, 3, _WEIGHTS_20)


@register("backbone", "cifar_resnet56", size=BackboneSize(64, 2.5e8, 32, weights=_WEIGHTS_56, channels=3))
def cifar_resnet56(request: BackboneRequest) -> Backbone:
    """ResNet-56 for 32x32 images, 64 features; weights of CIFAR-10, from a path, or random.

    Weights: as for `cifar_resnet20`.

    Raises:
        DataError: The file is missing, broken or another network's.
    """
    return _cifar_resnet(request, 9, _WEIGHTS_56)


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters (He et al. 2016, option A).

    Where a block halves the resolution and doubles the channels, the shortcut takes every other
    pixel and pads with zero channels, half of them on either side.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.padding = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        shortcut = functional.pad(
            x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding)
        )
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + shortcut)


class CifarResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels with `blocks` blocks each, and a linear classifier."""

    def __init__(self, blocks: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.linear: nn.Module = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) normalised images to (n, classes)."""
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        logits: Tensor = self.linear(out.mean(dim=(2, 3)))
        return logits


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = Block(inputs, outputs, stride)
    return nn.Sequential(first, *(Block(outputs, outputs, 1) for _ in range(blocks - 1)))


def _cifar_resnet(request: BackboneRequest, blocks: int, weights: Weights) -> Backbone:
    """The features that the classifier reads: last activations (not negative), averaged over positions."""
    check_size(request)
    if request.weights == "random":
        model = initialised(lambda: CifarResNet(blocks, request.classes), request.seed)
        description, seen = "random weights", "nothing"
    else:
        word = str(request.weights)
        published = word in weights.urls
        path = hub_file(weights.urls[word]) if published else find(word, request.base, "backbone.weights")
        state = load_state(path)
        head = state.get("linear.weight")
        if head is not None and (head.ndim != 2 or len(head) > limits.CLASSES):
            raise DataError(
                f"backbone.weights: {request.weights}: linear.weight is of shape {tuple(head.shape)}; allowed: "
                f"(classes, 64), at most {limits.CLASSES:,} classes"
            )
        classes = request.classes if head is None else len(head)
        model = CifarResNet(blocks, classes)
        assign(model, state, f"backbone.weights: {request.weights} as {request.name}")
        description = f"published weights of {word}" if published else f"weights of {word}"
        seen = "CIFAR-10's training images" if published else f"a task of {classes} classes (file {word})"
    model.linear = nn.Identity()
    preprocess = request.preprocess(Input(_SIZE, 3, IMAGENET_MEAN, IMAGENET_STD))
    return finish(request, nn.Sequential(preprocess, model), f"{request.name}, {description}", seen)
