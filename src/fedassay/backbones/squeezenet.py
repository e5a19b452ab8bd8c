"""SqueezeNet 1.1, the lightest ImageNet network here: a trunk of 0.7 M parameters."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from fedassay.backbones.base import (
    Backbone,
    BackboneRequest,
    BackboneSize,
    Input,
    Weights,
    check_size,
    finish,
)
from fedassay.backbones.torchvision_models import torchvision_model
from fedassay.support.paths import find
from fedassay.support.registry import register
from fedassay.support.torchvision import import_torchvision
from fedassay.support.weights import assign, load_state

_SIZE = 64
_IMAGENET = ("imagenet", "imagenet_v1", "IMAGENET1K_V1")
_WEIGHTS = Weights(
    (*_IMAGENET, "random"),
    file=True,
    urls=dict.fromkeys(_IMAGENET, "https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth"),
)
_CAFFE_BGR_MEAN = (103.939, 116.779, 123.68)
"""Means of ImageNet's blue, green and red on 0..255, which Caffe's networks subtract."""


@register("backbone", "squeezenet1_1", size=BackboneSize(512, 7.0e8, 224, _SIZE, _WEIGHTS, channels=3))
def squeezenet1_1(request: BackboneRequest) -> Backbone:
    """SqueezeNet 1.1, 512 features averaged over positions; ImageNet weights, a path, or random.

    Features follow a ReLU, so they are not negative, and many are exactly 0 (about 80 % of them at
    the default input size of 64, on CIFAR-10).

    Weights: `imagenet` (default), `imagenet_v1` and `random` as for torchvision's models. The path of
    torchvision's whole state dict is read like torchvision's own. The path of a trunk alone (keys `0.weight`,
    `3.squeeze.weight`, ...) is taken to be trained in Caffe: input is blue, green, red on 0..255
    minus the ImageNet means.

    Raises:
        DataError: The file is missing, broken, another network's, or cannot be downloaded.
    """
    check_size(request)
    size = request.input_size or _SIZE
    if request.weights is None or request.weights in _WEIGHTS.words:
        return torchvision_model(replace(request, input_size=size))
    path = find(request.weights, request.base, "backbone.weights")
    state = load_state(path)
    if any(name.startswith("features.") for name in state):
        return torchvision_model(replace(request, input_size=size))
    trunk: nn.Module = import_torchvision().models.squeezenet1_1(weights=None).features
    assign(trunk, state, f"backbone.weights: {request.weights} as the trunk of {request.name}")
    preprocess = request.preprocess(Input(size, 3, _CAFFE_BGR_MEAN, (1.0, 1.0, 1.0), scale=255.0, bgr=True))
    return finish(
        request,
        nn.Sequential(preprocess, trunk, nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        f"{request.name} at {size} pixels, trunk of {request.weights} (Caffe's input)",
        f"ImageNet-1k (trunk, file {request.weights})",
    )
