"""Losses of a trained denoiser on single records, at chosen noise levels.

Membership inference on diffusion models uses these losses (Carlini et al., "Extracting Training Data from
Diffusion Models", 2023, section 5; Duan et al., "Are Diffusion Models Vulnerable to Membership Inference
Attacks?", 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedassay.nets.denoising import build_scheduler, denoising_loss, to_model_range
from fedassay.nets.trained import TrainedDenoiser, load_network
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Matrix


@torch.no_grad()
def record_losses(
    model: TrainedDenoiser,
    images: Images,
    conditions: Floats,
    levels: Sequence[float],
    seeds: Seeds,
    *,
    batch: int = 256,
    device: str = "cpu",
) -> Matrix:
    """Mean squared error of the predicted noise, for each record and noise level.

    The noise of a level is drawn from `seeds` alone: models that are asked with the same seeds are asked the same.
    The condition is always given.

    Args:
        model: Without warm start.
        images: Shape (n, height, width, channels).
        conditions: Shape (n, d), in the units of the training conditions.
        levels: Shares of the noise schedule, in (0, 1).
        seeds: Random streams of the noise.
        batch: Images computed at a time; does not change their noise.
        device: Device of the computation.

    Returns:
        Shape (n, len(levels)).

    Raises:
        ValueError: A level out of range, or a model with warm start.
    """
    if model.warm_start is not None or not all(0 < level < 1 for level in levels):
        raise ValueError(f"record_losses: levels {tuple(levels)}; allowed: above 0, below 1, and no warm start")
    preset = model.preset
    network, scheduler = load_network(model).to(device), build_scheduler(preset)
    inputs, given = to_model_range(torch.from_numpy(images)), torch.from_numpy(model.whitening(conditions))
    found = np.empty((len(images), len(levels)))
    for column, level in enumerate(levels):
        step = min(preset.timesteps - 1, int(level * preset.timesteps))
        generator = torch.Generator().manual_seed(seeds.integer("level", column))
        noise = torch.randn(inputs.shape, generator=generator)
        kept = float(scheduler.alphas_cumprod[step])
        # From the error of the network's prediction to that of the noise, both exact given the noisy image.
        unit = {"epsilon": 1.0, "v_prediction": kept, "sample": kept / (1 - kept)}[preset.prediction]
        for first in range(0, len(images), batch):
            part = slice(first, first + batch)
            size = len(inputs[part])
            losses = denoising_loss(
                network,
                scheduler,
                inputs[part].to(device),
                given[part].to(device),
                keep=torch.ones(size, dtype=torch.bool, device=device),
                timesteps=torch.full((size,), step, device=device),
                noise=noise[part].to(device),
            )
            found[part, column] = unit * losses.double().cpu().numpy()
    return found
