"""Conditional denoising diffusion: training and DDIM sampling with guidance.

Training follows Ho et al. 2020 with the condition dropped at random for classifier-free guidance
(Ho & Salimans 2022) and a moving average of the weights; sampling is deterministic DDIM (Song et
al. 2021) through diffusers' scheduler. Every random number comes from one CPU `torch.Generator`,
whatever the device, and is drawn in a fixed order: on a CPU the same seed gives the same bits.

Images stay uint8 on the host and are converted batch by batch, so memory does not grow with their
number beyond the images themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedassay.nets.checkpoint import TrainingState, read_checkpoint, write_checkpoint
from fedassay.nets.presets import Preset
from fedassay.nets.whitening import Whitening, fit_whitening
from fedassay.progress import Advance
from fedassay.values import Floats, Images

CHECKPOINTS = 20
"""How often a training run writes its checkpoint, if it has one."""


@dataclass(frozen=True, eq=False)
class TrainedDenoiser:
    """A trained model: what it takes to sample, and nothing that does not go to disk.

    Attributes:
        preset: The settings it was trained with.
        image_shape: (height, width, channels).
        whitening: The map of conditions fitted on the training conditions.
        weights: The averaged weights by parameter name, float32.
    """

    preset: Preset
    image_shape: tuple[int, int, int]
    whitening: Whitening
    weights: dict[str, NDArray[np.float32]]

    def to_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Everything but `preset` and `image_shape`, as one flat dictionary of arrays."""
        return {
            "whitening.mean": self.whitening.mean,
            "whitening.matrix": self.whitening.matrix,
            **{f"weights.{name}": value for name, value in self.weights.items()},
        }


def from_arrays(
    preset: Preset, image_shape: tuple[int, int, int], arrays: Mapping[str, NDArray[Any]]
) -> TrainedDenoiser:
    """The inverse of `TrainedDenoiser.to_arrays`.

    Raises:
        ValueError: The arrays are not those of a model of this preset and image shape.
    """
    try:
        whitening = Whitening(arrays["whitening.mean"], arrays["whitening.matrix"])
    except KeyError as missing:
        raise ValueError(f"trained denoiser: array {missing} is missing") from None
    weights = {
        name.removeprefix("weights."): value for name, value in arrays.items() if name.startswith("weights.")
    }
    expected = {
        name: tuple(p.shape)
        for name, p in build_network(preset, image_shape, len(whitening.mean), seed=0).named_parameters()
    }
    given = {name: value.shape for name, value in weights.items()}
    if given != expected:
        wrong = sorted(name for name in given.keys() | expected.keys() if given.get(name) != expected.get(name))
        raise ValueError(f"trained denoiser: wrong, missing or unexpected weights: {', '.join(wrong[:5])}")
    return TrainedDenoiser(preset, image_shape, whitening, weights)


def build_network(
    preset: Preset, image_shape: tuple[int, int, int], condition_dim: int, *, seed: int
) -> nn.Module:
    """A fresh network, initialised from `seed`; the global generator is left as it was.

    Args:
        preset: Its architecture and sizes.
        image_shape: (height, width, channels).
        condition_dim: Columns of the condition.
        seed: Of the initialisation.

    Returns:
        A module called as `network(noisy, timesteps, condition, keep)`; see `FilmDenoiser.forward`.
    """
    height, width, channels = image_shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        from fedassay.nets.denoiser import FilmDenoiser

        return FilmDenoiser(
            (channels, height, width),
            condition_dim,
            width=preset.width,
            blocks=preset.blocks,
            embedding=preset.embedding,
            direct=preset.direct,
            dropout=preset.dropout,
        )


def build_scheduler(preset: Preset) -> Any:
    """The DDIM scheduler of diffusers, which holds the noise schedule for training too."""
    # diffusers takes seconds to import.
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler

    return DDIMScheduler(
        num_train_timesteps=preset.timesteps,
        beta_schedule=preset.beta_schedule,
        prediction_type=preset.prediction,
        clip_sample=True,
        timestep_spacing="trailing",
    )


def denoising_loss(
    network: nn.Module,
    scheduler: Any,
    images: Tensor,
    conditions: Tensor,
    *,
    keep: Tensor,
    timesteps: Tensor,
    noise: Tensor,
) -> Tensor:
    """Squared error of the prediction, per record.

    Args:
        network: See `build_network`.
        scheduler: See `build_scheduler`.
        images: Shape (n, channels, height, width), in [-1, 1].
        conditions: Shape (n, d), whitened.
        keep: Booleans, shape (n,); False trains that row without its condition.
        timesteps: Integers, shape (n,).
        noise: Standard normal, shape of `images`.

    Returns:
        Shape (n,): the mean over an image's pixels, not yet over the batch.
    """
    predicted = network(scheduler.add_noise(images, noise, timesteps), timesteps, conditions, keep)
    match scheduler.config.prediction_type:
        case "sample":
            target = images
        case "v_prediction":
            target = scheduler.get_velocity(images, noise, timesteps)
        case _:
            target = noise
    losses: Tensor = (predicted - target).square().flatten(1).mean(dim=1)
    return losses


def train(
    images: Images,
    conditions: Floats,
    preset: Preset,
    *,
    seed: int,
    device: str = "cpu",
    progress: Advance | None = None,
    checkpoint: Path | None = None,
) -> TrainedDenoiser:
    """Train a denoiser on pairs of image and condition.

    Args:
        images: Shape (n, height, width, channels), uint8.
        conditions: Shape (n, d): features, or one-hot classes.
        preset: Architecture and training settings.
        seed: Of initialisation, order, noise and dropout.
        device: Where to compute, as torch names it.
        progress: Called with (steps done, steps in all).
        checkpoint: A file for the state of the run, written now and then. If it holds the state of
            this very run (same data, settings and seed) training goes on from there and, on a CPU,
            ends with the same bits as if it had never stopped. The caller deletes it.

    Returns:
        The model, its weights on the host.

    Raises:
        ValueError: Images or conditions have the wrong type, shape or length.
    """
    _check_pairs(images, conditions)
    image_shape: tuple[int, int, int] = images.shape[1:]
    whitening = fit_whitening(conditions, decorrelate=preset.whiten)
    whitened = torch.from_numpy(whitening(conditions))
    pixels = torch.from_numpy(np.ascontiguousarray(images))
    network = build_network(preset, image_shape, conditions.shape[1], seed=seed).to(device).train()
    scheduler = build_scheduler(preset)
    parameters = dict(network.named_parameters())
    optimizer = torch.optim.AdamW(
        parameters.values(), lr=preset.learning_rate, weight_decay=preset.weight_decay, fused=True
    )
    generator = torch.Generator().manual_seed(seed)
    average = {name: p.detach().clone() for name, p in parameters.items()}
    state = TrainingState(parameters, average, optimizer, generator)
    start = 0
    fingerprint = ""
    if checkpoint is not None:
        fingerprint = _fingerprint(images, conditions, preset, seed)
        start = read_checkpoint(checkpoint, fingerprint, state)
    with torch.random.fork_rng(devices=[]):
        for step in range(start, preset.steps):
            _train_step(step, network, scheduler, state, pixels, whitened, preset, device)
            done = step + 1
            if progress is not None:
                progress(done, preset.steps)
            if checkpoint is not None and (done % max(1, preset.steps // CHECKPOINTS) == 0):
                write_checkpoint(checkpoint, fingerprint, done, state)
    weights = {name: value.cpu().numpy().copy() for name, value in average.items()}
    return TrainedDenoiser(preset, image_shape, whitening, weights)


def _train_step(
    step: int,
    network: nn.Module,
    scheduler: Any,
    state: TrainingState,
    pixels: Tensor,
    conditions: Tensor,
    preset: Preset,
    device: str,
) -> None:
    generator = state.generator
    chosen = torch.randint(len(pixels), (preset.batch,), generator=generator)
    timesteps = torch.randint(preset.timesteps, (preset.batch,), generator=generator)
    keep = torch.rand(preset.batch, generator=generator) >= preset.condition_dropout
    images = to_model_range(pixels[chosen])
    noise = torch.randn(images.shape, generator=generator)
    # Dropout layers draw from torch's global generator: seed it from ours, so that a resumed run
    # draws the same masks.
    torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(preset, step)
    losses = denoising_loss(
        network,
        scheduler,
        images.to(device),
        conditions[chosen].to(device),
        keep=keep.to(device),
        timesteps=timesteps.to(device),
        noise=noise.to(device),
    )
    state.optimizer.zero_grad(set_to_none=True)
    losses.mean().backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(state.parameters.values(), preset.clip)
    state.optimizer.step()
    # The average forgets its start: early on it follows the weights closely.
    decay = min(preset.ema, (1 + step) / (10 + step))
    with torch.no_grad():
        torch._foreach_lerp_(list(state.average.values()), list(state.parameters.values()), 1 - decay)


def learning_rate(preset: Preset, step: int) -> float:
    """Linear warm-up over `preset.warmup` steps, times cosine decay from the peak to 0."""
    warm = min(1.0, (step + 1) / max(1, preset.warmup))
    return preset.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / preset.steps))


@torch.no_grad()
def sample(
    model: TrainedDenoiser,
    conditions: Floats,
    *,
    seed: int,
    steps: int | None = None,
    guidance: float | None = None,
    batch: int = 512,
    device: str = "cpu",
    progress: Advance | None = None,
) -> Images:
    """Draw one image for each condition by deterministic DDIM from seeded noise.

    Args:
        model: A trained denoiser.
        conditions: Shape (n, d), in the units of the training conditions.
        seed: Of the starting noise.
        steps: DDIM steps; the preset's if None.
        guidance: Weight of classifier-free guidance; the preset's if None. 1 computes the
            conditional model alone.
        batch: Images computed at a time; other sizes give other noise.
        device: Where to compute.
        progress: Called with (images done, images in all).

    Returns:
        Shape (n, height, width, channels), uint8.

    Raises:
        ValueError: The conditions have the wrong shape or are not finite, or steps or batch are
            below 1.
    """
    count = model.preset.sampling_steps if steps is None else steps
    weight = model.preset.guidance if guidance is None else guidance
    if count < 1 or count > model.preset.timesteps or batch < 1:
        raise ValueError(
            f"sample: steps={count}, batch={batch} given; allowed: 1 to {model.preset.timesteps} steps, "
            "batch at least 1"
        )
    whitened = torch.from_numpy(model.whitening(conditions))
    network = load_network(model).to(device)
    scheduler = build_scheduler(model.preset)
    scheduler.set_timesteps(count)
    generator = torch.Generator().manual_seed(seed)
    height, width, channels = model.image_shape
    drawn = np.empty((len(whitened), height, width, channels), np.uint8)
    for first in range(0, len(whitened), batch):
        condition = whitened[first : first + batch].to(device)
        noisy = torch.randn((len(condition), channels, height, width), generator=generator).to(device)
        for timestep in scheduler.timesteps:
            predicted = guided_prediction(network, noisy, int(timestep), condition, weight)
            noisy = scheduler.step(predicted, int(timestep), noisy).prev_sample
        drawn[first : first + batch] = to_uint8(noisy)
        if progress is not None:
            progress(min(first + batch, len(whitened)), len(whitened))
    return drawn


def guided_prediction(
    network: nn.Module, noisy: Tensor, timestep: int, condition: Tensor, weight: float
) -> Tensor:
    """Classifier-free guidance u + w (c - u) at one time step for a batch."""
    timesteps = torch.full((len(noisy),), timestep, device=noisy.device)
    keep = torch.ones(len(noisy), dtype=torch.bool, device=noisy.device)
    conditional: Tensor = network(noisy, timesteps, condition, keep)
    if weight == 1:
        return conditional
    unconditional: Tensor = network(noisy, timesteps, condition, ~keep)
    return unconditional + weight * (conditional - unconditional)


def load_network(model: TrainedDenoiser) -> nn.Module:
    """The model's network with its averaged weights, in evaluation mode, on the CPU."""
    network = build_network(model.preset, model.image_shape, len(model.whitening.mean), seed=0)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in model.weights.items()})
    return network.eval()


def to_model_range(images: Tensor) -> Tensor:
    """Map uint8 NHWC to float32 NCHW in [-1, 1], contiguous."""
    return (images.permute(0, 3, 1, 2).to(torch.float32) / 127.5 - 1).contiguous()


def to_uint8(images: Tensor) -> Images:
    """Map float NCHW in [-1, 1] to uint8 NHWC, clipped and rounded to nearest."""
    scaled = ((images.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return scaled.permute(0, 2, 3, 1).contiguous().cpu().numpy()


def _check_pairs(images: Images, conditions: Floats) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
        raise ValueError(
            f"images: {images.dtype} of shape {images.shape} given; allowed: uint8 (n, height, width, channels), "
            "none of them 0"
        )
    if conditions.ndim != 2 or len(conditions) != len(images):
        raise ValueError(f"conditions: shape {conditions.shape} given; allowed: ({len(images)}, d)")


def _fingerprint(images: Images, conditions: Floats, preset: Preset, seed: int) -> str:
    """What a checkpoint belongs to."""
    from fedassay.hashing import digest_arrays

    data = digest_arrays({"images": images, "conditions": conditions})
    return repr((data, sorted(asdict(preset).items()), seed))
