"""Torchvision's classification models as backbones, under torchvision's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedassay.backbones.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Backbone,
    BackboneRequest,
    BackboneSize,
    Input,
    check_size,
    finish,
    initialised,
)
from fedassay.support.paths import find
from fedassay.support.torchvision import import_torchvision
from fedassay.support.weights import assign, hub_file, load_state, published_digits, sha256_of

_CLASSES = 1000
_SIZE = 224
"""Input size where neither the plan nor the weights say."""

MEASURED = {
    "resnet18": BackboneSize(512, 3.6e9, 224, channels=3),
    "resnet50": BackboneSize(2048, 8.2e9, 224, channels=3),
    "mobilenet_v2": BackboneSize(1280, 6.0e8, 224, channels=3),
    "efficientnet_b0": BackboneSize(1280, 7.8e8, 224, channels=3),
    "vit_b_16": BackboneSize(768, 3.5e10, 224, channels=3),
}
"""Sizes of the models that were measured."""

_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(\d)\.")
"""Densenet's published files still say `norm.1` where the model says `norm1`."""


def torchvision_model(request: BackboneRequest) -> Backbone:
    """A classification model of torchvision; features are the input of its last linear layer.

    SqueezeNet has no such layer: its features are the trunk's, averaged over positions. Images are
    resized, not cropped, to `input_size` (by default the size the weights were evaluated at); `crop` cuts the
    middle out.

    Weights: `imagenet_v1`, `imagenet_v2` (torchvision's `IMAGENET1K_V1`, `IMAGENET1K_V2`), any other of
    torchvision's own names, `imagenet` (default: those that the installed torchvision says are best; the record
    says which), `random`, or the path of a state dict (the record says so where torchvision publishes that file).

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
    elif (choice := chosen(published, weights)) is not None:
        transform = choice.transforms()
        size, mean, std = transform.crop_size[0], tuple(transform.mean), tuple(transform.std)
        state = load_state(hub_file(choice.url))
        description, seen = f"torchvision's {choice.name}", "ImageNet-1k"
    else:
        path = find(weights, request.base, "backbone.weights")
        state = load_state(path)
        description, seen = f"weights of {weights}", f"not known (file {weights})"
        if (known := _published_as(path, published)) is not None:
            description, seen = f"torchvision's {known} (file {weights})", "ImageNet-1k"
    if state is not None:
        state = {_OLD_DENSENET.sub(r"\1\2.", name): tensor for name, tensor in state.items()}
    model = _model(models, request.name, state, request.seed, where=f"backbone.weights: {description}")
    preprocess = request.preprocess(Input(size, 3, mean, std))
    return finish(request, nn.Sequential(preprocess, penultimate(model)), f"{request.name}, {description}", seen)


def versions(published: Any) -> dict[str, str]:
    """Short words for torchvision's weights of a network, to its own names: those of ImageNet, by version."""
    return {
        f"imagenet_{name.removeprefix('IMAGENET1K_').lower()}": name
        for name in published.__members__
        if re.fullmatch(r"IMAGENET1K_V\d+", name)
    }


def chosen(published: Any, weights: str) -> Any | None:
    """Return the published weights of a name; None where the network has none of this name.

    Args:
        published: Torchvision's enumeration of a network's weights.
        weights: As in a plan.
    """
    name = versions(published).get(weights, weights)
    if name == "imagenet":
        return published.DEFAULT
    return published[name] if name in published.__members__ else None


def _published_as(path: Path, published: Any) -> str | None:
    """Return the name of the published weights with a file's hash; None where it is none of them."""
    digest = sha256_of(path)
    for name, choice in published.__members__.items():
        digits = published_digits(choice.url)
        if digits is not None and digest.startswith(digits):
            return str(name)
    return None


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
