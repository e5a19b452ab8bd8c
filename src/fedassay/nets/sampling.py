"""Sampling images from conditions by DDIM, by DDPM or by DPM-Solver++; see `fedassay.nets.presets.Sampler`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedassay.nets.denoising import (
    Network,
    ancestral_step,
    build_scheduler,
    guided_prediction,
    is_ancestral,
    is_solver,
    solver_step,
    to_model_range,
    to_uint8,
)
from fedassay.nets.philox import normals
from fedassay.nets.presets import Prediction, Preset, Sampler
from fedassay.nets.trained import TrainedDenoiser, load_network
from fedassay.support.devices import batch_for, is_gpu, placed, quickened
from fedassay.support.progress import Advance, no_progress
from fedassay.support.types import Floats, Images

SOLVER_STEPS = 10
"""Steps of the sampler `dpm` where none are given."""
_BATCH = 512
_MAPS = 24
"""Maps of full size and first width that a U-Net holds for an image when it is sampled, rounded up."""


@dataclass(frozen=True)
class Sampling:
    """A sampler with its settings.

    Attributes:
        sampler: See `fedassay.nets.presets.Sampler`.
        steps: Steps; None: the preset's, of `dpm` 10.
        guidance: Weight of classifier-free guidance; the preset's if None. 1 computes the conditional model alone.
        spread: Share of a sample's deviation from the conditional mean that is kept; the preset's if None. 1 gives
            the samples themselves.
    """

    sampler: Sampler = "ddim"
    steps: int | None = None
    guidance: float | None = None
    spread: float | None = None


@torch.no_grad()
def sample(
    model: TrainedDenoiser,
    conditions: Floats,
    sampling: Sampling | None = None,
    *,
    seed: int,
    batch: int | None = None,
    counted: bool | None = None,
    device: str = "cpu",
    progress: Advance = no_progress,
) -> Images:
    """Draw one image for each condition, from seeded noise.

    Args:
        model: A trained denoiser.
        conditions: Shape (n, d), in the units of the training conditions.
        sampling: The sampler and its settings; None: the preset's, by `ddim`.
        seed: Seed of the starting noise, and of the noise of each `ddpm` step.
        batch: Images computed at a time; None: 512, on a GPU what fits. On a CPU other sizes draw other noise.
        counted: Draw every image's noise on the device by its number (`fedassay.nets.philox`), so that neither
            batch nor device changes it, instead of one image after the other from one stream of the host;
            None: on a GPU.
        device: Device of the computation.
        progress: Called with (images done, images in all).

    Returns:
        Shape (n, height, width, channels), uint8.

    Raises:
        ValueError: The conditions have the wrong shape or are not finite, or steps or batch are out
            of range.
    """
    preset, asked = model.preset, sampling or Sampling()
    count = default_steps(preset, asked.sampler) if asked.steps is None else asked.steps
    weight = preset.guidance if asked.guidance is None else asked.guidance
    kept = preset.spread if asked.spread is None else asked.spread
    together = batch_for(_BATCH, _bytes_each(model), device) if batch is None else batch
    if not 1 <= count <= preset.timesteps or together < 1:
        raise ValueError(
            f"sample: steps={count}, batch={together} given; allowed: 1 to {preset.timesteps} steps, "
            "batch at least 1"
        )
    whitened = torch.from_numpy(model.whitening(conditions))
    network: Network = placed(load_network(model), device)
    if preset.architecture == "unet":
        network = quickened(network, device)
    scheduler = build_scheduler(preset, asked.sampler)
    source = None if (is_gpu(device) if counted is None else counted) else torch.Generator().manual_seed(seed)
    height, width, channels = model.image_shape
    drawn = np.empty((len(whitened), height, width, channels), np.uint8)
    for first in range(0, len(whitened), together):
        part = slice(first, first + together)
        condition = whitened[part].to(device)
        rows = range(first, first + len(condition))
        noise = Noise(seed, rows, (channels, height, width), device, source)
        guess = None
        if model.warm_start is not None:
            guesses = model.warm_start.guess(conditions[part], model.image_shape)
            guess = to_model_range(torch.from_numpy(guesses)).to(device)
        scheduler.set_timesteps(count)
        mean, image = _denoise(network, scheduler, noise, condition, weight, guess, preset.prediction)
        drawn[part] = to_uint8(mean + kept * (image - mean))
        progress(min(first + together, len(whitened)), len(whitened))
    return drawn


def default_steps(preset: Preset, sampler: Sampler) -> int:
    """Steps of a sampler where none are given."""
    return SOLVER_STEPS if sampler == "dpm" else preset.sampling_steps


@dataclass(frozen=True, eq=False)
class Noise:
    """The source of the noise of one batch.

    Attributes:
        seed: Seed of all of it.
        rows: Numbers of the batch's images among all that are sampled.
        shape: Shape of an image.
        device: Device of the result.
        source: One stream for the whole call, on the host; None: counter-based, on the device.
    """

    seed: int
    rows: range
    shape: tuple[int, ...]
    device: str
    source: torch.Generator | None

    def first(self) -> Tensor:
        """Return the noise that sampling starts from, (n, *shape)."""
        if self.source is None:
            return normals(self.seed, self.rows, 0, self.shape, self.device)
        return torch.randn((len(self.rows), *self.shape), generator=self.source).to(self.device)

    def of_step(self, position: int) -> Tensor:
        """Return the noise added after the step at this position, (n, *shape); counter-based noise only."""
        return normals(self.seed, self.rows, 1 + position, self.shape, self.device)


def _bytes_each(model: TrainedDenoiser) -> float:
    """Bytes that sampling an image takes at most, generously."""
    height, width, _ = model.image_shape
    maps = _MAPS if model.preset.architecture == "unet" else 1
    return 4.0 * height * width * model.preset.width * maps


def _denoise(
    network: Network,
    scheduler: Any,
    noise: Noise,
    condition: Tensor,
    weight: float,
    guess: Tensor | None,
    prediction: Prediction,
) -> tuple[Tensor, Tensor]:
    """The conditional mean and the sample that is reached from the first noise.

    The mean is the first prediction: of pure noise nothing can be said but the mean image of the
    condition.
    """
    noisy = mean = noise.first()
    for position, timestep in enumerate(scheduler.timesteps):
        predicted = guided_prediction(network, noisy, int(timestep), condition, weight, guess)
        if noise.source is None and is_ancestral(scheduler):
            added = noise.of_step(position) if timestep > 0 else None
            clean, noisy = ancestral_step(scheduler, predicted, int(timestep), noisy, added)
        elif is_solver(scheduler):
            clean, noisy = solver_step(scheduler, prediction, predicted, int(timestep), noisy)
        else:
            # Only an ancestral sampler draws from the stream.
            step = scheduler.step(predicted, int(timestep), noisy, generator=noise.source)
            clean, noisy = step.pred_original_sample, step.prev_sample
        if position == 0:
            mean = clean
    return mean, noisy
