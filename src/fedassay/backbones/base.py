"""Backbones: frozen networks from images to features, and code to run them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedassay.backbones.input import IMAGENET_MEAN, IMAGENET_STD, Input, Preprocess, preprocess
from fedassay.backbones.preprocessing import AS_IT_IS, Preprocessing
from fedassay.data.images import ImageSet
from fedassay.support.cache import Key, cached_arrays
from fedassay.support.devices import times_the_cpu
from fedassay.support.errors import PlanError
from fedassay.support.hashing import digest_arrays

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Backbone",
    "BackboneRequest",
    "BackboneSize",
    "Input",
    "Preprocess",
    "Preprocessing",
    "Weights",
    "check_size",
    "finish",
    "initialised",
    "to_input",
]

_BATCH = 256
_Module = TypeVar("_Module", bound=nn.Module)


@dataclass(frozen=True)
class Weights:
    """The values that `backbone.weights` may have for a backbone.

    Attributes:
        words: Names that it knows, such as `random`; the first is the default.
        file: Whether it may be the path of a state dict.
        needed: Whether it must be given.
        urls: URL of the published file for each name.
    """

    words: tuple[str, ...] = ()
    file: bool = False
    needed: bool = False
    urls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BackboneSize:
    """Facts about a backbone before it is built: its costs, and its permitted weights.

    Attributes:
        features: Number of features; None: as many as an image has numbers.
        operations: Floating-point operations of the forward pass on one image.
        side: Side, in pixels, of the square image for which these were counted.
        default: Side that images are resized to by default; None: they stay as they are.
        weights: Its permitted weights; None: the caller states them.
        channels: Input channels, which grey images are repeated over; None: those of the images.
    """

    features: int | None
    operations: float
    side: int
    default: int | None = None
    weights: Weights | None = None
    channels: int | None = None


@dataclass(frozen=True, eq=False)
class BackboneRequest:
    """A plan's settings of its backbone, and the images it is for.

    Attributes:
        name: Registered name, or torchvision's.
        weights: `public` (trained on the public split), `random`, `imagenet`, or a path; None:
            the backbone's default.
        input_size: Height and width that images are resized to; None: the backbone's default.
        image_shape: Height, width and channels of the images.
        classes: The number of classes.
        public: Public records; None or empty if there are none.
        seed: Seed of initialisation and training.
        device: `cpu` or `cuda`.
        base: Folder of the plan, for paths.
        preprocessing: Preprocessing of images beside `input_size`, where the plan sets it.
    """

    name: str
    weights: str | None
    input_size: int | None
    image_shape: tuple[int, int, int]
    classes: int
    public: ImageSet | None
    seed: int
    device: str
    base: Path
    preprocessing: Preprocessing = AS_IT_IS

    def preprocess(self, own: Input) -> Preprocess:
        """Return the preprocessing that the plan sets, with the network's own as defaults.

        Raises:
            PlanError: It does not fit the network or the images.
        """
        return preprocess(self.name, self.preprocessing, self.input_size, self.image_shape, own)


@final
@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen feature extractor f.

    Features are as the network gives them; clipping to norm 1 is a mechanism's matter. (`small_cnn`
    normalises inside the network.)

    Attributes:
        name: As in the plan.
        width: Feature width d.
        module: Float images in [0, 1], shape (n, channels, height, width), to features (n, d).
            Resizing and normalisation are inside, so that white-box attacks differentiate through
            them; parameters are frozen, in evaluation mode, on `device`.
        image_shape: Height, width and channels of the images it was built for.
        device: `cpu` or `cuda`.
        description: One line for the report.
        pretrained_on: Training data of the weights.
        fingerprint: Content hash of weights, layers and preprocessing.
        preprocessing: Preprocessing of images before the network, for the record.
    """

    name: str
    width: int
    module: nn.Module
    image_shape: tuple[int, int, int]
    device: str
    description: str
    pretrained_on: str
    fingerprint: str
    preprocessing: str = ""

    def extract(self, images: NDArray[np.uint8], batch: int | None = None) -> NDArray[np.float32]:
        """Features of images, computed in batches: memory does not grow with their number.

        Args:
            images: (n, height, width, channels) uint8 of the shape the backbone was built for.
            batch: Images at a time; None: 256, up to 8 times as many on a GPU with much memory. The last bits of a
                feature may depend on it.

        Returns:
            (n, d) float32.

        Raises:
            ValueError: Images of another type or shape.
        """
        if images.dtype != np.uint8 or images.shape[1:] != self.image_shape:
            raise ValueError(
                f"backbone {self.name}: images are {images.dtype} {images.shape}; must be uint8 "
                f"(n, {', '.join(map(str, self.image_shape))})"
            )
        batch = _BATCH * max(1, times_the_cpu(self.device) // 4) if batch is None else batch
        features = np.empty((len(images), self.width), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(images), batch):
                part = slice(start, start + batch)
                features[part] = self.module(to_input(images[part], self.device)).cpu().numpy()
        return features

    def features(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """`extract`, through the cache, as private entries: the same images are extracted once.

        The owner of these images is unknown here, so no input can prove that they are public.

        A backbone without weights is not cached: it is as fast to compute as to read.
        """
        if not self.module.state_dict():
            return self.extract(images)
        key: Key = {
            "what": "features",
            "backbone": self.fingerprint,
            "images": digest_arrays({"images": images}),
            "device": self.device,
        }
        kept = cached_arrays(key, lambda: {"features": self.extract(images)})["features"]
        return kept


def to_input(images: NDArray[np.uint8], device: str = "cpu") -> Tensor:
    """(n, height, width, channels) uint8 to (n, channels, height, width) float32 in [0, 1]."""
    values = torch.tensor(np.ascontiguousarray(images), device=device)
    return values.permute(0, 3, 1, 2).float().div(255).contiguous()


def initialised(make: Callable[[], _Module], seed: int) -> _Module:
    """Make a module on the CPU with its random initialisation drawn from `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def finish(request: BackboneRequest, module: nn.Module, description: str, pretrained_on: str) -> Backbone:
    """Freeze a network and find out its width and fingerprint.

    Args:
        request: The plan's settings of the backbone.
        module: Float images in [0, 1], NCHW, to features (n, d).
        description: One line for the report.
        pretrained_on: Training data of the weights.

    Raises:
        PlanError: The network cannot take images of this size, or takes no preprocessing of the plan's.
    """
    height, width, channels = request.image_shape
    first = next((part for part in module.modules() if isinstance(part, Preprocess)), None)
    if request.preprocessing != (AS_IT_IS if first is None else first.asked):
        keys = [key for key, value in vars(request.preprocessing).items() if value is not None]
        raise PlanError(
            f"backbone.{keys[0]}: given, but {request.name} has a preprocessing of its own; allowed: leave it out"
        )
    module = module.eval().requires_grad_(False).to(request.device)
    try:
        with torch.inference_mode():
            features = module(torch.zeros(1, channels, height, width, device=request.device))
    # Networks raise these errors if an image shrinks to nothing inside.
    except (RuntimeError, AssertionError) as error:
        raise PlanError(
            f"backbone.input_size: {request.input_size or f'{height}x{width}'} is not a size that "
            f"{request.name} takes ({str(error).strip().partition(chr(10))[0]})"
        ) from None
    return Backbone(
        name=request.name,
        width=features.shape[1],
        module=module,
        image_shape=request.image_shape,
        device=request.device,
        description=description,
        pretrained_on=pretrained_on,
        fingerprint=_fingerprint(module),
        preprocessing="" if first is None else first.in_words(),
    )


def renewed(backbone: Backbone, module: nn.Module, description: str, pretrained_on: str) -> Backbone:
    """Replace a backbone by another network of the same width, for the same images.

    Args:
        backbone: Source of the name.
        module: As in `finish`.
        description: As in `finish`.
        pretrained_on: As in `finish`.
    """
    module = module.eval().requires_grad_(False).to(backbone.device)
    return replace(
        backbone,
        module=module,
        description=description,
        pretrained_on=pretrained_on,
        fingerprint=_fingerprint(module),
        preprocessing="",
    )


def _fingerprint(module: nn.Module) -> str:
    arrays: dict[str, NDArray[Any]] = {name: t.cpu().numpy() for name, t in module.state_dict().items()}
    return hashlib.sha256(json.dumps([repr(module), digest_arrays(arrays)]).encode()).hexdigest()


def check_size(request: BackboneRequest) -> None:
    """Refuse an input size that is no size.

    Raises:
        PlanError: The size is below 1.
    """
    if request.input_size is not None and request.input_size < 1:
        raise PlanError(f"backbone.input_size: {request.input_size} given; allowed: 1 or more")
