"""One step of the denoising process: prediction, guidance, loss, and the ranges of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedassay.nets.presets import Prediction, Preset, Sampler
from fedassay.support.types import Images

Network = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(noisy, timesteps, condition, keep) to a prediction; see `FilmDenoiser.forward`."""

_WINDOW = 7


def build_scheduler(preset: Preset, sampler: Sampler = "ddim") -> Any:
    """The scheduler of diffusers that a sampler steps with; it holds the noise schedule for training too."""
    # diffusers takes seconds to import.
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
    from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler

    schedule = {
        "num_train_timesteps": preset.timesteps,
        "beta_schedule": preset.beta_schedule,
        "timestep_spacing": "trailing",
    }
    if sampler == "dpm":
        # It is given the clean image (`solver_step`), since it would not clip its own result of a prediction.
        solver: Any = DPMSolverMultistepScheduler
        return solver(prediction_type="sample", **schedule)
    kind: Any = DDIMScheduler if sampler == "ddim" else DDPMScheduler
    return kind(prediction_type=preset.prediction, clip_sample=True, **schedule)


def is_ancestral(scheduler: Any) -> bool:
    """Whether a scheduler adds noise after every step but the last."""
    return bool(scheduler.__class__.__name__ == "DDPMScheduler")


def is_solver(scheduler: Any) -> bool:
    """Whether a scheduler is that of the sampler `dpm`."""
    return bool(scheduler.__class__.__name__ == "DPMSolverMultistepScheduler")


def ancestral_step(
    scheduler: Any, predicted: Tensor, timestep: int, noisy: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Take a step of ancestral sampling with given noise (Ho et al. 2020, equations 7 and 15).

    The step of diffusers draws from a generator; the two are the same function of their noise.

    Args:
        scheduler: Scheduler of the sampler `ddpm`, its time steps set.
        predicted: The network's output for `noisy`.
        timestep: Time step of `noisy`.
        noisy: Shape (n, channels, height, width).
        noise: Standard normals of that shape; None at time step 0, where none is added.

    Returns:
        The clean image that is predicted, clipped to [-1, 1], and the image at the next time step.
    """
    clean = clean_image(scheduler, scheduler.config.prediction_type, predicted, timestep, noisy)
    kept, before = float(scheduler.alphas_cumprod[timestep]), 1.0
    if (earlier := int(scheduler.previous_timestep(timestep))) >= 0:
        before = float(scheduler.alphas_cumprod[earlier])
    signal = kept / before
    mean = before**0.5 * (1 - signal) / (1 - kept) * clean + signal**0.5 * (1 - before) / (1 - kept) * noisy
    if noise is None:
        return clean, mean
    variance = max((1 - before) / (1 - kept) * (1 - signal), 1e-20)
    return clean, mean + variance**0.5 * noise


def solver_step(
    scheduler: Any, prediction: Prediction, predicted: Tensor, timestep: int, noisy: Tensor
) -> tuple[Tensor, Tensor]:
    """A step of the sampler `dpm`: the clean image that is predicted, and the image at the next time step.

    The solver goes on from its own last step, so its time steps are set anew for every batch.
    """
    clean = clean_image(scheduler, prediction, predicted, timestep, noisy)
    return clean, scheduler.step(clean, timestep, noisy).prev_sample


def clean_image(scheduler: Any, prediction: Prediction, predicted: Tensor, timestep: int, noisy: Tensor) -> Tensor:
    """The clean image that a network's prediction stands for, clipped to [-1, 1]; see `ancestral_step`."""
    kept = float(scheduler.alphas_cumprod[timestep])
    match prediction:
        case "sample":
            clean = predicted
        case "v_prediction":
            clean = kept**0.5 * noisy - (1 - kept) ** 0.5 * predicted
        case _:
            clean = (noisy - (1 - kept) ** 0.5 * predicted) / kept**0.5
    return clean.clamp(-1, 1)


def predict(
    network: Network,
    noisy: Tensor,
    timesteps: Tensor,
    condition: Tensor,
    keep: Tensor,
    guess: Tensor | None = None,
) -> Tensor:
    """Return the network's prediction; with a first guess, that guess plus the network's output.

    Args:
        network: The network.
        noisy: Shape (n, channels, height, width).
        timesteps: Integers, shape (n,).
        condition: Shape (n, d), whitened.
        keep: Booleans, shape (n,); False computes that row without condition and guess.
        guess: Shape of `noisy`, or None for a network without warm start.

    Returns:
        Shape of `noisy`.
    """
    if guess is None:
        return network(noisy, timesteps, condition, keep)
    known = guess * keep[:, None, None, None]
    return known + network(torch.cat([noisy, known], dim=1), timesteps, condition, keep)


def guided_prediction(
    network: Network,
    noisy: Tensor,
    timestep: int,
    condition: Tensor,
    weight: float,
    guess: Tensor | None = None,
) -> Tensor:
    """Classifier-free guidance u + weight (c - u) at one time step (Ho & Salimans 2022).

    A weight of 1 computes the conditional prediction c alone.
    """
    timesteps = torch.full((len(noisy),), timestep, device=noisy.device)
    keep = torch.ones(len(noisy), dtype=torch.bool, device=noisy.device)
    conditional = predict(network, noisy, timesteps, condition, keep, guess)
    if weight == 1:
        return conditional
    unconditional = predict(network, noisy, timesteps, condition, ~keep, guess)
    return unconditional + weight * (conditional - unconditional)


class Drawn(NamedTuple):
    """The random part of a batch's loss.

    Attributes:
        keep: Booleans, shape (n,); False trains that row without its condition.
        timesteps: Integers, shape (n,).
        noise: Standard normals, shape of the images.
    """

    keep: Tensor
    timesteps: Tensor
    noise: Tensor


def denoising_loss(
    network: Network,
    scheduler: Any,
    images: Tensor,
    conditions: Tensor,
    drawn: Drawn,
    *,
    guesses: Tensor | None = None,
    ssim_weight: float = 0.0,
) -> Tensor:
    """Squared error of the prediction, per record; plus `ssim_weight` times its 1 - SSIM.

    Args:
        network: The network.
        scheduler: See `build_scheduler`.
        images: Shape (n, channels, height, width), in [-1, 1].
        conditions: Shape (n, d), whitened.
        drawn: The random part of the loss.
        guesses: First guesses, shape of `images`, where the preset has a warm start.
        ssim_weight: Weight of the structural term; only for a network that predicts the image.

    Returns:
        Shape (n,): the mean over an image's pixels, not yet over the batch.
    """
    keep, timesteps, noise = drawn
    noisy = scheduler.add_noise(images, noise, timesteps)
    predicted = predict(network, noisy, timesteps, conditions, keep, guesses)
    match scheduler.config.prediction_type:
        case "sample":
            target = images
        case "v_prediction":
            target = scheduler.get_velocity(images, noise, timesteps)
        case _:
            target = noise
    losses = (predicted - target).square().flatten(1).mean(dim=1)
    if ssim_weight:
        losses = losses + ssim_weight * (1 - ssim(predicted, target))
    return losses


def ssim(a: Tensor, b: Tensor) -> Tensor:
    """Structural similarity, differentiable: skimage's definition on the range [-1, 1].

    A uniform window of 7x7 (of the image's shorter side, where that is less), K1 = 0.01, K2 = 0.03,
    sample covariances, mean over positions and channels.

    Args:
        a: Shape (n, channels, height, width), height and width at least 2.
        b: The same shape.

    Returns:
        Shape (n,).
    """
    side = min(_WINDOW, *a.shape[2:])
    unbiased = side**2 / (side**2 - 1)
    down, across = (_means(length, side, a) for length in a.shape[2:])

    def local(image: Tensor) -> Tensor:
        # Two products with bands take a seventh of the time of pooling, forward and backward.
        return down @ image @ across.T

    mean_a, mean_b = local(a), local(b)
    variances = unbiased * (local(a * a + b * b) - mean_a**2 - mean_b**2)
    covariance = unbiased * (local(a * b) - mean_a * mean_b)
    c1, c2 = (0.01 * 2) ** 2, (0.03 * 2) ** 2
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    structure = (2 * covariance + c2) / (variances + c2)
    similarity: Tensor = (luminance * structure).flatten(1).mean(dim=1)
    return similarity


def _means(length: int, side: int, like: Tensor) -> Tensor:
    """The matrix of means over windows of a line, shape (length - side + 1, length)."""
    ones = torch.ones(length - side + 1, length, dtype=like.dtype, device=like.device)
    return ones.triu().tril(side - 1) / side


def to_model_range(images: Tensor) -> Tensor:
    """Map uint8 NHWC to float32 NCHW in [-1, 1], contiguous."""
    return (images.permute(0, 3, 1, 2).to(torch.float32) / 127.5 - 1).contiguous()


def to_uint8(images: Tensor) -> Images:
    """Map float NCHW in [-1, 1] to uint8 NHWC on the host, clipped and rounded to nearest."""
    scaled = ((images.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return scaled.permute(0, 2, 3, 1).contiguous().cpu().numpy()
