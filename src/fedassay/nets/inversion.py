"""Images with given feature vectors: descent through a differentiable backbone, many images at once.

    minimise over x in an image family:  |f(x) - t|^2 / |t|^2 + weight * penalty(x)

(Mahendran and Vedaldi 2015, "Understanding deep image representations by inverting them"), with x in a family of
`fedassay.nets.image_families`. The penalty's weight falls to 0 along a cosine: it chooses among the images with
the right feature, and does not prevent the descent from reaching it.

Inactive rectifiers pass no gradient, and many features of a rectified, pooled network are inactive at the start.
The backward pass therefore treats rectifiers as leaky ones. The forward pass is the backbone's own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedassay.backbones.base import initialised
from fedassay.nets.image_families import Family, ParametrizedImages, Size, family_named
from fedassay.support.errors import PlanError
from fedassay.support.optimisation import take_step
from fedassay.support.progress import Advance, no_progress
from fedassay.support.types import Bools, Floats, Images, Matrix

_SHORTEST = 1e-12


@dataclass(frozen=True)
class Schedule:
    """The settings of an inversion's descent.

    Attributes:
        steps: Steps of Adam; its rate falls to 0 along a cosine.
        rate: Adam's rate where coordinates are of order 1, which is all families but the last.
        network_rate: Adam's rate for the weights of `deep_image_prior`.
        channels: Channels of the skip networks.
        levels: Levels of the skip networks.
        batch: Images of 64 x 64 pixels at a time; for smaller ones up to four times as many.
        leak: Slope of the backward pass through inactive rectifiers.
    """

    steps: int
    rate: float
    network_rate: float
    channels: int
    levels: int
    batch: int
    leak: float = 0.3

    def together(self, height: int, width: int) -> int:
        """Return the number of images at a time: a few small images would leave the processor idle."""
        return max(self.batch, min(4 * self.batch, self.batch * 64 * 64 // (height * width)))


SCHEDULES: dict[str, Schedule] = {
    "tiny": Schedule(steps=150, rate=0.05, network_rate=0.01, channels=16, levels=3, batch=32),
    "small": Schedule(steps=600, rate=0.05, network_rate=0.01, channels=32, levels=4, batch=32),
    "paper": Schedule(steps=3000, rate=0.05, network_rate=0.001, channels=128, levels=5, batch=64),
}
"""`tiny` takes about a second an image on one core (SqueezeNet at 64 pixels); `paper` is for a GPU."""


def schedule_named(name: str, **changes: Any) -> Schedule:
    """Look a schedule up, with some of its attributes changed.

    Raises:
        PlanError: No schedule has this name.
    """
    if name not in SCHEDULES:
        raise PlanError(f"preset: {name!r} given; allowed: {', '.join(SCHEDULES)}")
    return replace(SCHEDULES[name], **changes)


@dataclass(frozen=True, eq=False)
class Wanted:
    """The features that images are sought for.

    Attributes:
        vectors: Shape (n, d), none of them 0.
        directions: True where only the direction of a vector counts, shape (n,).
    """

    vectors: Floats
    directions: Bools


@dataclass(frozen=True, eq=False)
class Prior:
    """The images that are preferred among those with the right feature.

    Attributes:
        family: The parametrization of the images.
        weight: Weight of the penalty, at the start.
        own: Images of the adversary's own, shape (m, H, W, C), uint8, for `principal_components`.
    """

    family: Family
    weight: float
    own: Images | None = None


def invert(
    module: nn.Module,
    wanted: Wanted,
    image_shape: tuple[int, int, int],
    *,
    prior: Prior,
    schedule: Schedule,
    seed: int,
    device: str = "cpu",
    progress: Advance = no_progress,
) -> tuple[Images, Matrix]:
    """Find images with the wanted features.

    Args:
        module: Float images in [0, 1], (n, C, H, W), to features (n, d); frozen, and copied.
        wanted: The features.
        image_shape: Height, width and channels.
        prior: The preference among images.
        schedule: The settings of the descent.
        seed: Seed of the starting points.
        device: Device of `module`.
        progress: Called with (steps done, total steps).

    Returns:
        Images (n, H, W, C), uint8, and the remaining |f(x) - t|^2 / |t|^2 before they were rounded, shape (n,).
    """
    batch = schedule.together(*image_shape[:2])
    build = family_named(prior.family, prior.own)
    # A copy, since the layout of weights moves the last bits of features: two thirds of the time on a processor.
    module = copy.deepcopy(module).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    total = schedule.steps * math.ceil(len(wanted.vectors) / batch)
    images, left = [np.zeros((0, *image_shape), np.uint8)], [np.zeros(0)]
    for number, start in enumerate(range(0, len(wanted.vectors), batch)):
        part = slice(start, start + batch)
        vectors = torch.as_tensor(np.asarray(wanted.vectors[part], np.float32), device=device)
        first = (seed + number) % 2**63
        size = Size(len(vectors), image_shape, schedule.channels, schedule.levels)
        shown = initialised(partial(build, size, first), first).to(device)
        misfit = partial(_misfit, vectors, torch.as_tensor(wanted.directions[part], device=device))
        advance = partial(_report, progress, number * schedule.steps, total)
        left.append(_descend(module, shown, misfit, schedule, prior, advance))
        with torch.no_grad():
            values = shown().clamp(0, 1).mul(255).round().permute(0, 2, 3, 1)
        images.append(values.to(torch.uint8).cpu().numpy())
    return np.concatenate(images), np.concatenate(left)


def _report(progress: Advance, before: int, total: int, step: int) -> None:
    progress(before + step, total)


def _misfit(wanted: Tensor, only_direction: Tensor, features: Tensor) -> Tensor:
    """|f - t|^2 / |t|^2 a target, shape (n,); f scaled to the length of t where only its direction counts."""
    lengths = features.norm(dim=1, keepdim=True).clamp(min=_SHORTEST)
    scaled = features / lengths * wanted.norm(dim=1, keepdim=True)
    reached = torch.where(only_direction[:, None], scaled, features)
    return (reached - wanted).square().sum(dim=1) / wanted.square().sum(dim=1)


def _descend(
    module: nn.Module,
    shown: ParametrizedImages,
    misfit: Callable[[Tensor], Tensor],
    schedule: Schedule,
    prior: Prior,
    advance: Callable[[int], None],
) -> Matrix:
    steps = schedule.steps
    rate = schedule.network_rate if prior.family == "deep_image_prior" else schedule.rate
    optimiser = torch.optim.Adam(shown.parameters(), lr=rate)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        advance(step)
        images = shown()
        with LeakyBackward(schedule.leak):
            features = module(images.clamp(0, 1))
        loss = misfit(features).sum()
        if prior.weight > 0:
            loss = loss + 0.5 * prior.weight * (1 + math.cos(math.pi * step / steps)) * shown.penalty(images).sum()
        take_step(optimiser, loss)
        fall.step()
    with torch.no_grad():
        return np.asarray(misfit(module(shown().clamp(0, 1))).double().cpu().numpy())


class LeakyBackward(TorchFunctionMode):
    """Inside, rectifiers pass `slope` of the gradient where they are off; their values stay as they are."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Replace every form of ReLU, leave the rest alone."""
        if func in _RECTIFIERS and self.slope > 0:
            values = args[0] if args else (kwargs or {})["input"]
            return _Leaky.apply(values, self.slope)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


_RECTIFIERS = {functional.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}


class _Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(values)
        ctx.slope = slope
        return values.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (values,) = ctx.saved_tensors
        # One pass over the memory where a choice between two products takes three.
        return torch.ops.aten.leaky_relu_backward(gradients[0], values, ctx.slope, False), None
