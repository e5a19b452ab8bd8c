"""Torchvision's classification models as backbones, under torchvision's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fedassay.backbones.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Backbone,
    BackboneRequest,
    BackboneSize,
    Preprocess,
    check_size,
    finish,
    initialised,
)
from fedassay.support.paths import find
from fedassay.support.torchvision import import_torchvision
from fedassay.support.weights import assign, hub_file, load_state

_CLASSES = 1000
_SIZE = 224
"""Input size where neither the plan nor the weights say."""

MEASURED = {
    "resnet18": BackboneSize(512, 3.6e9, 224),
    "resnet50": BackboneSize(2048, 8.2e9, 224),
    "mobilenet_v2": BackboneSize(1280, 6.0e8, 224),
    "efficientnet_b0": BackboneSize(1280, 7.8e8, 224),
    "vit_b_16": BackboneSize(768, 3.5e10, 224),
}
"""Sizes of the models that were measured."""

_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(\d)\.")
"""Densenet's published files still say `norm.1` where the model says `norm1`."""


def torchvision_model(request: BackboneRequest) -> Backbone:
    """A classification model of torchvision; features are the input of its last linear layer.

    SqueezeNet has no such layer: its features are the trunk's, averaged over positions. Images are
    resized, not cropped, to `input_size` (by default the size the weights were evaluated at).

    Weights: `imagenet` (default: torchvision's best), one of torchvision's own names such as
    `IMAGENET1K_V1`, `random`, or the path of a state dict.

    Raises:
        DataError: A weights file is missing, broken, another network's, or cannot be downloaded.
    """
    check_size(request)
    models = import_torchvision().models
    published = models.get_model_weights(request.name)
    weights = "imagenet" if request.weights is None else request.weights
    state: Mapping[str, Tensor] | None = None
    size, mean, std = _SIZE, IMAGENET_MEAN, IMAGENET_STD
    if weights == "random":
        description, seen = "random weights", "nothing"
    elif weights == "imagenet" or weights in published.__members__:
        choice = published.DEFAULT if weights == "imagenet" else published[weights]
        transform = choice.transforms()
        size, mean, std = transform.crop_size[0], tuple(transform.mean), tuple(transform.std)
        state = load_state(hub_file(choice.url))
        description, seen = f"torchvision's {choice.name}", "ImageNet-1k"
    else:
        state = load_state(find(weights, request.base, "backbone.weights"))
        description, seen = f"weights of {weights}", f"not known (file {weights})"
    if state is not None:
        state = {_OLD_DENSENET.sub(r"\1\2.", name): tensor for name, tensor in state.items()}
    model = _model(models, request.name, state, request.seed, where=f"backbone.weights: {description}")
    preprocess = Preprocess(size=request.input_size or size, channels=3, mean=mean, std=std)
    return finish(request, nn.Sequential(preprocess, penultimate(model)), f"{request.name}, {description}", seen)


def penultimate(model: nn.Module) -> nn.Module:
    """Cut the classifier off a torchvision model: (n, 3, h, w) to the features it classifies.

    Raises:
        ValueError: The model ends in nothing known.
    """
    linear = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features == _CLASSES
    ]
    if linear:
        # Auxiliary classifiers of inception and googlenet come before the one at the end.
        parent, _, leaf = linear[-1].rpartition(".")
        setattr(model.get_submodule(parent), leaf, nn.Identity())
        return nn.Sequential(model, nn.Flatten())
    if isinstance(trunk := getattr(model, "features", None), nn.Module):
        return nn.Sequential(trunk, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    raise ValueError(f"{type(model).__name__}: no linear classifier and no `features` to take features from")


def _model(models: Any, name: str, state: Mapping[str, Tensor] | None, seed: int, where: str) -> nn.Module:
    # Both were converted from weights that take another normalisation; the models apply it themselves.
    converted = name in ("googlenet", "inception_v3")
    options = {"transform_input": state is not None, "init_weights": state is None} if converted else {}

    def make() -> nn.Module:
        model: nn.Module = models.get_model(name, weights=None, **options)
        return model

    model = initialised(make, seed)
    if state is not None:
        assign(model, state, where)
    return model
