"""Training of class-conditional generators by DP-SGD.

The loop is `fedassay.nets.dp_sgd.loop`'s; this module has the loss of a record. Each record's loss is averaged
over several time steps and noises before its gradient is clipped, which costs no privacy (Dockhorn et al. 2022,
"Differentially Private Diffusion Models").
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedassay.nets.denoising import Drawn, build_scheduler, denoising_loss, to_model_range
from fedassay.nets.dp_sgd.clipped_sums import Objective, RecordStreams, Rows
from fedassay.nets.dp_sgd.loop import train_with_noise
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.units import by_persons
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.generators import Computation, unchanged
from fedassay.nets.presets import Preset
from fedassay.nets.trained import TrainedDenoiser, build_network
from fedassay.support.devices import resident, times_the_cpu
from fedassay.support.hashing import digest_arrays
from fedassay.support.optimisation import Optimizer
from fedassay.support.types import Images, Ints


@dataclass(frozen=True)
class PrivateTraining:
    """Settings of DP-SGD for a generator.

    Attributes:
        steps: Noise, sampling rate, number of steps, clipping norm and divisor.
        draws: Time steps and noises that each record's loss is averaged over.
        together: Records that go through the network at once: the size of a virtual step.
        average: Decay of the moving average of the weights that is released in their place; 0: the last weights.
            It is computed from the released steps, so it costs no privacy.
        optimizer: The rule that follows the noised gradients; None: AdamW without decay.
    """

    steps: PrivateSteps
    draws: int = 1
    together: int = 64
    average: float = 0.0
    optimizer: Optimizer | None = None


def train_generator_privately(
    images: Images,
    labels: Ints,
    classes: int,
    preset: Preset,
    training: PrivateTraining,
    mechanism: TrainingMechanism,
    computation: Computation,
    persons: Ints | None = None,
) -> TrainedDenoiser:
    """Train a generator by DP-SGD, with an optimiser on the noised gradients (which is post-processing).

    Args:
        images: Shape (n, height, width, channels), uint8; n may be 0.
        labels: Shape (n,), in 0 to C - 1.
        classes: C.
        preset: One of `GENERATORS`, with or without changes; its steps, batch and optimiser play no part.
        training: See `PrivateTraining`.
        mechanism: Streams of sampling and noise.
        computation: Its seed is that of the initialisation, which is public.
        persons: Places of each person's records, where persons are sampled; see `fedassay.nets.dp_sgd.units`.

    Raises:
        RuntimeError: Per-record gradients are not those of the records.
    """
    preset = replace(preset, dropout=0.0)
    image_shape: tuple[int, int, int] = images.shape[1:]
    device = computation.device
    network = build_network(preset, image_shape, classes, seed=computation.seed).to(device)
    fingerprint = ""
    if computation.checkpoint is not None:
        of = np.zeros(0, np.int64) if persons is None else persons
        data = digest_arrays({"images": images, "labels": labels, "of": of})
        # Streams of another root would not continue these.
        roots = (mechanism.noise.integer("resumed"), mechanism.hidden_randomness.integer("resumed"), mechanism.key)
        fingerprint = repr((data, sorted(asdict(preset).items()), training, computation.seed, roots))
    classes_of = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    inputs, targets = resident([to_model_range(torch.from_numpy(images)), classes_of], device)
    objective = denoising_objective(preset, classes, training, device)
    updates = replace(Updates.by(training.optimizer, preset.learning_rate), average=training.average)
    of_records = Training(network, inputs, targets, objective, training.steps, updates, mechanism)
    released = train_with_noise(
        by_persons(of_records, persons),
        known=True,
        progress=computation.progress,
        checkpoint=computation.checkpoint,
        fingerprint=fingerprint,
    )
    weights = {name: value.cpu().numpy().copy() for name, value in released.items()}
    return TrainedDenoiser(preset, image_shape, unchanged(classes), weights, None)


def denoising_objective(preset: Preset, classes: int, training: PrivateTraining, device: str) -> Objective:
    """The loss of an image and its class at time steps and noises of its own stream.

    Args:
        preset: Noise schedule, prediction and share of rows without condition.
        classes: C.
        training: Rows of a record, and records that go through the network at once.
        device: Device of the network; images and labels wait on the host, or on a GPU with room for them. A GPU
            takes up to 8 times as many records at once, by its memory, which changes sums by no more than
            rounding.
    """
    scheduler, draws = build_scheduler(preset), training.draws

    def rows(images: Tensor, labels: Tensor, streams: RecordStreams) -> Rows:
        timesteps, keep, noise = [], [], []
        for source in streams.generators():
            timesteps.append(source.integers(preset.timesteps, size=draws))
            keep.append(source.random(draws) >= preset.condition_dropout)
            noise.append(source.standard_normal((draws, *images.shape[1:]), dtype=np.float32))
        drawn = (torch.from_numpy(np.concatenate(each)).to(device) for each in (keep, timesteps, noise))
        conditions = functional.one_hot(labels, classes).float()
        own = (each.repeat_interleave(draws, dim=0).to(device) for each in (images, conditions))
        return (*own, *drawn)

    def losses(network: Any, images: Tensor, conditions: Tensor, *drawn: Tensor) -> Tensor:
        return denoising_loss(network, scheduler, images, conditions, Drawn(*drawn))

    return Objective(rows, losses, draws, training.together * times_the_cpu(device, 8))
