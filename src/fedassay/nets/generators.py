"""Class-conditional generators: sizes, training without privacy, and the weights as one vector.

The same denoisers as the reconstruction attack's (`fedassay.nets.training`), conditioned on one-hot classes.
Everything that a receiver needs besides the weights is public: preset, image size, number of classes. So
the condition is not whitened (that would be a statistic of the records), and no record is held out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.nets.presets import Preset
from fedassay.nets.trained import TrainedDenoiser, build_network
from fedassay.nets.training import train
from fedassay.nets.whitening import Whitening
from fedassay.support.progress import Advance, no_progress
from fedassay.support.types import Floats, Images, Ints

GeneratorName = Literal["quick", "tiny", "small", "paper"]
"""The generators there are.

`tiny`: a perceptron with scale and shift, for 8x8 to 28x28 on two cores; `quick`: a fifth of its parameters, for
8x8 in seconds. `small` and `paper`: U-Nets of 1.46 and 5.8 million parameters at 32x32, FedDiff_s and FedDiff of
Mendieta et al. 2025.
"""

_TINY = Preset(
    name="tiny",
    architecture="film",
    width=192,
    blocks=3,
    embedding=96,
    direct=True,
    steps=0,
    batch=32,
    learning_rate=2e-3,
    warmup=50,
    ema=0.99,
    prediction="sample",
    sampling_steps=40,
    guidance=1.5,
)

_PAPER = Preset(
    name="paper",
    architecture="unet",
    width=24,
    blocks=1,
    multipliers=(1, 2, 4, 8),
    attention_levels=(1,),
    embedding=96,
    steps=0,
    batch=128,
    learning_rate=3e-4,
    warmup=200,
    ema=0.9995,
    prediction="epsilon",
    beta_schedule="linear",
    sampling_steps=1000,
    guidance=1.5,
)

GENERATORS: dict[GeneratorName, Preset] = {
    "quick": replace(_TINY, name="quick", width=96, blocks=2, embedding=48, learning_rate=8e-3),
    "tiny": _TINY,
    "small": replace(_PAPER, name="small", width=12, embedding=48),
    "paper": _PAPER,
}
"""Settings of every generator; `steps` is 0, for it follows from a client's records."""


def one_hot(labels: Ints, classes: int) -> Floats:
    """Conditions (n, C), float32, of labels (n,)."""
    return np.asarray(np.eye(classes, dtype=np.float32)[labels])


def steps_of(records: int, preset: Preset, epochs: int) -> int:
    """Optimiser steps in `epochs` passes; a set smaller than a batch takes one step a pass."""
    return epochs * math.ceil(records / preset.batch)


@dataclass(frozen=True)
class Computation:
    """The place and the random start of a generator's training.

    Attributes:
        seed: Seed of the random draws.
        device: Device of the computation.
        progress: Called with (steps done, steps in all).
        checkpoint: A file for the state of the run, written now and then, to resume the same run.
    """

    seed: int
    device: str = "cpu"
    progress: Advance = no_progress
    checkpoint: Path | None = None


def train_generator(
    images: Images,
    labels: Ints,
    classes: int,
    preset: Preset,
    epochs: int,
    computation: Computation,
) -> TrainedDenoiser:
    """Train a generator without privacy; no records give the network as it is initialised.

    Batches are drawn with replacement, so a set may be smaller than one.

    Args:
        images: Shape (n, height, width, channels), uint8.
        labels: Shape (n,), in 0 to C - 1.
        classes: C.
        preset: One of `GENERATORS`, with or without changes.
        epochs: Passes over the records.
        computation: Its seed is that of initialisation, order and noise.
    """
    image_shape: tuple[int, int, int] = images.shape[1:]
    if not len(images):
        network = build_network(preset, image_shape, classes, seed=computation.seed)
        weights = {name: p.detach().numpy() for name, p in network.named_parameters()}
        return TrainedDenoiser(preset, image_shape, unchanged(classes), weights, None)
    steps = steps_of(len(images), preset, epochs)
    return train(
        images,
        one_hot(labels, classes),
        replace(preset, steps=steps, warmup=min(preset.warmup, steps // 10)),
        seed=computation.seed,
        device=computation.device,
        progress=computation.progress,
        checkpoint=computation.checkpoint,
        whitening=unchanged(classes),
    )


def unchanged(classes: int) -> Whitening:
    """The identity on conditions of C columns."""
    return Whitening(np.zeros(classes, dtype=np.float32), np.eye(classes, dtype=np.float32))


def flatten_weights(weights: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """All weights as one vector, in the order of the network's parameters."""
    return np.concatenate([value.ravel() for value in weights.values()]).astype(np.float32)


def received_generator(
    values: NDArray[np.float32], preset: Preset, image_shape: tuple[int, int, int], classes: int
) -> TrainedDenoiser:
    """Return the generator of sent weights: the inverse of `flatten_weights`.

    Raises:
        ValueError: The number of weights is not that of this preset, image size and number of classes.
    """
    network = build_network(preset, image_shape, classes, seed=0)
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}
    sizes = [math.prod(shape) for shape in shapes.values()]
    if values.shape != (sum(sizes),):
        raise ValueError(f"generator {preset.name}: {values.shape} weights given; allowed: ({sum(sizes)},)")
    parts = np.split(values, np.cumsum(sizes)[:-1])
    weights = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    return TrainedDenoiser(preset, image_shape, unchanged(classes), weights, None)
