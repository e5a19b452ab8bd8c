"""Sampling images from conditions by DDIM (Song et al. 2021) or DDPM (Ho et al. 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedassay.nets.denoising import Network, Sampler, build_scheduler, guided_prediction, to_model_range, to_uint8
from fedassay.nets.trained import TrainedDenoiser, load_network
from fedassay.support.progress import Advance, no_progress
from fedassay.support.types import Floats, Images


@torch.no_grad()
def sample(
    model: TrainedDenoiser,
    conditions: Floats,
    *,
    seed: int,
    steps: int | None = None,
    guidance: float | None = None,
    spread: float | None = None,
    sampler: Sampler = "ddim",
    batch: int = 512,
    device: str = "cpu",
    progress: Advance = no_progress,
) -> Images:
    """Draw one image for each condition, from seeded noise.

    Args:
        model: A trained denoiser.
        conditions: Shape (n, d), in the units of the training conditions.
        seed: Of the starting noise, and of the noise of each `ddpm` step.
        steps: Steps; the preset's if None.
        guidance: Weight of classifier-free guidance; the preset's if None. 1 computes the
            conditional model alone.
        spread: Share of a sample's deviation from the conditional mean that is kept; the preset's if
            None. 1 gives the samples themselves.
        sampler: See `fedassay.nets.denoising.Sampler`.
        batch: Images computed at a time; other sizes draw other noise.
        device: Where to compute.
        progress: Called with (images done, images in all).

    Returns:
        Shape (n, height, width, channels), uint8.

    Raises:
        ValueError: The conditions have the wrong shape or are not finite, or steps or batch are out
            of range.
    """
    preset = model.preset
    count = preset.sampling_steps if steps is None else steps
    weight = preset.guidance if guidance is None else guidance
    kept = preset.spread if spread is None else spread
    if not 1 <= count <= preset.timesteps or batch < 1:
        raise ValueError(
            f"sample: steps={count}, batch={batch} given; allowed: 1 to {preset.timesteps} steps, batch at least 1"
        )
    whitened = torch.from_numpy(model.whitening(conditions))
    network = load_network(model).to(device)
    scheduler = build_scheduler(preset, sampler)
    scheduler.set_timesteps(count)
    generator = torch.Generator().manual_seed(seed)
    height, width, channels = model.image_shape
    drawn = np.empty((len(whitened), height, width, channels), np.uint8)
    for first in range(0, len(whitened), batch):
        part = slice(first, first + batch)
        condition = whitened[part].to(device)
        noise = torch.randn((len(condition), channels, height, width), generator=generator).to(device)
        guess = None
        if model.warm_start is not None:
            guesses = model.warm_start.guess(conditions[part], model.image_shape)
            guess = to_model_range(torch.from_numpy(guesses)).to(device)
        source = generator if sampler == "ddpm" else None
        mean, image = _denoise(network, scheduler, noise, condition, weight, guess, source)
        drawn[part] = to_uint8(mean + kept * (image - mean))
        progress(min(first + batch, len(whitened)), len(whitened))
    return drawn


def _denoise(
    network: Network,
    scheduler: Any,
    noise: Tensor,
    condition: Tensor,
    weight: float,
    guess: Tensor | None,
    source: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """The conditional mean and the sample that is reached from `noise`; `source` draws each step's noise.

    The mean is the first prediction: of pure noise nothing can be said but the mean image of the
    condition.
    """
    noisy, mean = noise, noise
    for position, timestep in enumerate(scheduler.timesteps):
        predicted = guided_prediction(network, noisy, int(timestep), condition, weight, guess)
        step = scheduler.step(predicted, int(timestep), noisy, generator=source)
        noisy = step.prev_sample
        if position == 0:
            mean = step.pred_original_sample
    return mean, noisy
