"""Convolutional networks small enough to train on the public split in seconds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.backbones.base import (
    Backbone,
    BackboneRequest,
    BackboneSize,
    Input,
    Preprocessing,
    Weights,
    check_size,
    finish,
    initialised,
)
from fedassay.backbones.base import to_input as to_images
from fedassay.data.images import ImageSet
from fedassay.support.cache import Key, cached_arrays
from fedassay.support.errors import PlanError
from fedassay.support.optimisation import take_step
from fedassay.support.registry import register

_WIDTH, _RECTIFIED_WIDTH = 64, 256
_VERSION = 1
"""Raise it when layers or training change: trained weights are cached."""

_BATCH = 64
_EPOCHS = 8
_STEPS = (200, 1500)
"""Fewest and most training steps; between them, `_EPOCHS` passes."""
_PEAK_RATE = 5e-3
_WEIGHT_DECAY = 1e-3
_SMOOTHING = 0.1
_TEMPERATURE = 8.0
"""Multiplies unit-norm features before the linear head, which could not be confident otherwise."""
_WEIGHTS = Weights(("public", "random"))
_DESCRIPTIONS = {"small_cnn": "small CNN", "small_cnn_rectified": "small rectified CNN"}


@register("backbone", "small_cnn", size=BackboneSize(64, 1.9e7, 28, weights=_WEIGHTS))
def small_cnn(request: BackboneRequest) -> Backbone:
    """Three convolutions to 64 features of unit norm, trained on the public split or random.

    Features are L2-normalised inside the network, so a mechanism's clipping to norm 1 changes
    nothing. They keep a 4x4 grid of positions until the last layer, and with it much of the image.

    Weights: `public` (default) or `random`.

    Raises:
        PlanError: `public` without public records.
    """
    return _small_cnn(request, "small_cnn", _WIDTH)


@register("backbone", "small_cnn_rectified", size=BackboneSize(256, 1.9e7, 28, weights=_WEIGHTS))
def small_cnn_rectified(request: BackboneRequest) -> Backbone:
    """Three convolutions to 256 features that are not negative, trained on the public split or random.

    As `small_cnn`, but it ends in a rectifier, like most large networks that are used as backbones. Methods and
    attacks for non-negative features therefore apply to it.

    Weights: `public` (default) or `random`.

    Raises:
        PlanError: `public` without public records.
    """
    return _small_cnn(request, "small_cnn_rectified", _RECTIFIED_WIDTH)


def _small_cnn(request: BackboneRequest, name: str, features: int) -> Backbone:
    check_size(request)
    weights = "public" if request.weights is None else request.weights
    height, width, channels = request.image_shape
    side = request.preprocessing.crop or request.input_size or max(height, width)
    trunk = initialised(lambda: _network(channels, side, features), request.seed)
    preprocess = request.preprocess(Input(mean=(0.5,) * channels, std=(0.5,) * channels))
    module = nn.Sequential(preprocess, trunk)
    if weights == "random":
        return finish(request, module, f"{_DESCRIPTIONS[name]}, random weights", "nothing")
    public = request.public
    if public is None or len(np.unique(public.labels)) < 2:
        raise PlanError(
            f"backbone.weights: {name} with public weights is trained on the public split, which "
            f"{'is empty' if not public else 'is all of one class'}; raise data.split.public, or use random"
        )
    key: Key = {
        "what": name,
        "version": _VERSION,
        "classes": request.classes,
        "input_size": request.input_size,
        **_asked(request.preprocessing),
        "seed": request.seed,
        "device": request.device,
    }
    state = cached_arrays(
        key,
        lambda: {
            key: tensor.cpu().numpy()
            for key, tensor in _train(module, public, request, features).state_dict().items()
        },
        inputs={"public": public},
    )
    module.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    return finish(
        request,
        module,
        f"{_DESCRIPTIONS[name]} trained on {len(public)} public records",
        f"the public split ({len(public)} records)",
    )


def _asked(given: Preprocessing) -> dict[str, str]:
    """The plan's preprocessing as part of a key; nothing where it says nothing."""
    return {key: repr(value) for key, value in vars(given).items() if value is not None}


class UnitNorm(nn.Module):
    """Divide each feature vector by its Euclidean norm."""

    def forward(self, features: Tensor) -> Tensor:
        """(n, d) to (n, d)."""
        return functional.normalize(features, dim=1)


class _Grid(nn.AdaptiveAvgPool2d):
    """A grid of positions. Where it comes in as it is, as of 8 pixels, means of one cost a tenth of a pass."""

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to (n, channels, side, side)."""
        side = self.output_size
        return images if images.shape[-2:] == (side, side) else super().forward(images)

    def _get_name(self) -> str:
        # It computes the same, so networks keep their fingerprints.
        return "AdaptiveAvgPool2d"


def _network(channels: int, side: int, features: int) -> nn.Module:
    """Layers for images of about `side` pixels; group norm, so that no statistics are tracked."""
    last = [nn.ReLU()] if features == _RECTIFIED_WIDTH else []
    return nn.Sequential(
        # Above 16 pixels, half the resolution at once: a quarter of the cost.
        nn.Conv2d(channels, 32, 3, padding=1, stride=2 if side > 16 else 1),
        nn.GroupNorm(8, 32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.GroupNorm(8, 64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.GroupNorm(8, 64),
        nn.ReLU(),
        _Grid(4),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, features),
        *last,
        UnitNorm(),
    )


def _train(module: nn.Module, public: ImageSet, request: BackboneRequest, features: int) -> nn.Module:
    """Train network and a linear head on the public records by cross-entropy; the head is dropped.

    AdamW with a one-cycle rate (Smith & Topin 2019); batches are shifted by up to an eighth of the
    image, edges repeated.
    """
    head = initialised(lambda: nn.Linear(features, request.classes), request.seed + 1).to(request.device)
    module = module.to(request.device)
    fewest, most = _STEPS
    steps = min(max(fewest, _EPOCHS * len(public) // _BATCH), most)
    parameters = [*module.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=_PEAK_RATE, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK_RATE, total_steps=steps)
    rng = np.random.default_rng(request.seed)
    largest = max(1, min(public.image_shape[:2]) // 8)
    for _ in range(steps):
        chosen = rng.integers(len(public), size=_BATCH)
        images = to_images(public.images[chosen], request.device)
        labels = torch.tensor(public.labels[chosen], device=request.device)
        down, right = rng.integers(-largest, largest + 1, size=2).tolist()
        made = module(_shift(images, down, right, largest))
        loss = functional.cross_entropy(head(made * _TEMPERATURE), labels, label_smoothing=_SMOOTHING)
        take_step(optimizer, loss)
        schedule.step()
    return module


def _shift(images: Tensor, down: int, right: int, largest: int) -> Tensor:
    """Move (n, channels, height, width) by whole pixels, repeating the edge."""
    padded = functional.pad(images, (largest,) * 4, mode="replicate")
    top, left = largest - down, largest - right
    return padded[:, :, top : top + images.shape[2], left : left + images.shape[3]]
