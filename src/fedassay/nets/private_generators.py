"""Training of class-conditional generators by DP-SGD.

A step needs every record's gradient norm and the sum of the clipped gradients; `fedassay.nets.record_gradients`
computes both from one backward pass, in less time than Opacus, which writes out every record's gradient. At the
start of every run they are held against the gradient that autograd computes by itself: a layer whose records
escaped clipping would void the guarantee without a word.

Every record enters a step independently (Poisson sampling). A batch of any size is taken in virtual steps of a
few records, whose clipped gradients are added up before there is any noise; an empty batch releases noise alone,
without a forward pass. Each record's loss is averaged over several time steps and noises before its gradient is
clipped, which costs no privacy (Dockhorn et al. 2022, "Differentially Private Diffusion Models").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedassay.nets.checkpoint import TrainingState, read_checkpoint, write_checkpoint
from fedassay.nets.denoising import build_scheduler, denoising_loss, to_model_range
from fedassay.nets.generators import one_hot, unchanged
from fedassay.nets.presets import Preset
from fedassay.nets.private_steps import PrivateSteps
from fedassay.nets.record_gradients import CHECKED_STEPS, RecordGradients
from fedassay.nets.step_log import note_step, note_training
from fedassay.nets.trained import TrainedDenoiser, build_network
from fedassay.support.hashing import digest_arrays
from fedassay.support.progress import Advance
from fedassay.support.types import Images, Ints

_KEPT_EVERY = 100


@dataclass(frozen=True)
class PrivateTraining:
    """How a generator is trained by DP-SGD.

    Attributes:
        steps: Noise, sampling rate, number of steps, clipping norm and divisor.
        draws: Time steps and noises that each record's loss is averaged over.
        together: Records that go through the network at once: the size of a virtual step.
        average: Decay of the moving average of the weights that is released in their place; 0: the last weights.
            It is computed from what the steps have released, so it costs no privacy.
    """

    steps: PrivateSteps
    draws: int = 1
    together: int = 64
    average: float = 0.0


def train_generator_privately(
    images: Images,
    labels: Ints,
    classes: int,
    preset: Preset,
    training: PrivateTraining,
    *,
    seed: int,
    device: str = "cpu",
    progress: Advance | None = None,
    checkpoint: Path | None = None,
) -> TrainedDenoiser:
    """Train a generator by DP-SGD, with Adam on the noised gradients (which is post-processing).

    Args:
        images: Shape (n, height, width, channels), uint8; n may be 0.
        labels: Shape (n,), in 0 to C - 1.
        classes: C.
        preset: One of `GENERATORS`, with or without changes; its steps and batch play no part.
        training: See `PrivateTraining`.
        seed: Of initialisation, sampling and noise.
        device: Where to compute.
        progress: Called with (steps done, steps in all).
        checkpoint: A file for the state of the run, written now and then, from which the same run goes on.

    Raises:
        RuntimeError: Per-record gradients do not add up to the gradient of the batch.
    """
    preset = replace(preset, dropout=0.0)
    image_shape: tuple[int, int, int] = images.shape[1:]
    network = build_network(preset, image_shape, classes, seed=seed).to(device).train()
    gradients = RecordGradients(network)
    state = _initial_state(network, preset, seed)
    noise = torch.Generator(device)
    # One vector for all parameters: noise is drawn, added and divided once.
    total = torch.zeros(sum(p.numel() for p in state.parameters.values()), device=device)
    sums = _views(total, state.parameters)
    records = _Records(to_model_range(torch.from_numpy(images)), torch.from_numpy(one_hot(labels, classes)))
    fingerprint, start = "", 0
    if checkpoint is not None:
        data = digest_arrays({"images": images, "labels": labels})
        fingerprint = repr((data, sorted(asdict(preset).items()), training, seed))
        start = read_checkpoint(checkpoint, fingerprint, state)
    scheduler = build_scheduler(preset)
    checked = 0
    note_training(training.steps)
    for step in range(start, training.steps.steps):
        drawn = torch.rand(len(images), generator=state.generator) < training.steps.sampling_rate
        chosen = drawn.nonzero().flatten()
        total.zero_()
        for part in torch.split(chosen, training.together) if len(chosen) else ():
            loss = _drawn_loss(network, scheduler, records, part, training.draws, preset, state.generator, device)
            with gradients.recording(len(part), training.draws):
                loss().backward()  # type: ignore[no-untyped-call]
            if checked < CHECKED_STEPS and part[0] == chosen[0]:
                gradients.check(loss)
                checked += 1
            _add_clipped(sums, gradients, training.steps.norm)
        clipped = total.clone()
        # Noise is drawn where the weights are, from a generator that a resumed run finds again.
        noise.manual_seed(int(torch.randint(2**62, (), generator=state.generator)))
        deviation = training.steps.noise_multiplier * training.steps.norm
        total.add_(torch.empty_like(total).normal_(generator=noise), alpha=deviation).div_(training.steps.batch)
        for name, parameter in state.parameters.items():
            parameter.grad = sums[name]
        note_step(training.steps, len(images), len(chosen), [clipped], [total])
        state.optimizer.step()
        _update_average(state, training.average, step)
        if progress is not None:
            progress(step + 1, training.steps.steps)
        if checkpoint is not None and ((step + 1) % _KEPT_EVERY == 0 or step + 1 == training.steps.steps):
            write_checkpoint(checkpoint, fingerprint, step + 1, state)
    weights = {name: value.detach().cpu().numpy().copy() for name, value in state.average.items()}
    return TrainedDenoiser(preset, image_shape, unchanged(classes), weights, None)


@dataclass(frozen=True, eq=False)
class _Records:
    """Images (n, channels, height, width) in [-1, 1] and one-hot classes (n, C), on the host."""

    images: Tensor
    conditions: Tensor


def _initial_state(network: torch.nn.Module, preset: Preset, seed: int) -> TrainingState:
    parameters = dict(network.named_parameters())
    return TrainingState(
        parameters=parameters,
        average={name: p.detach().clone() for name, p in parameters.items()},
        # Nothing is selected here: a choice by records would be another release.
        best={name: p.detach().clone() for name, p in parameters.items()},
        best_loss=torch.tensor(torch.inf),
        best_step=0,
        optimizer=torch.optim.AdamW(parameters.values(), lr=preset.learning_rate, weight_decay=0.0, fused=True),
        generator=torch.Generator().manual_seed(seed),
    )


def _views(vector: Tensor, parameters: dict[str, torch.nn.Parameter]) -> dict[str, Tensor]:
    """Consecutive pieces of a vector, each in the shape of its parameter."""
    pieces = torch.split(vector, [parameter.numel() for parameter in parameters.values()])
    return {name: piece.view(p.shape) for piece, (name, p) in zip(pieces, parameters.items(), strict=True)}


def _drawn_loss(
    network: torch.nn.Module,
    scheduler: Any,
    records: _Records,
    chosen: Tensor,
    draws: int,
    preset: Preset,
    generator: torch.Generator,
    device: str,
) -> Callable[[], Tensor]:
    """Draw time steps and noises; the sum over the chosen records of their mean losses, whenever it is called."""
    repeated = chosen.repeat_interleave(draws)
    count = len(repeated)
    timesteps = torch.randint(preset.timesteps, (count,), generator=generator).to(device)
    keep = (torch.rand(count, generator=generator) >= preset.condition_dropout).to(device)
    images, conditions = records.images[repeated].to(device), records.conditions[repeated].to(device)
    noise = torch.randn(images.shape, generator=generator).to(device)

    def loss() -> Tensor:
        losses = denoising_loss(
            network, scheduler, images, conditions, keep=keep, timesteps=timesteps, noise=noise
        )
        return losses.sum() / draws

    return loss


def _add_clipped(sums: dict[str, Tensor], gradients: RecordGradients, norm: float) -> None:
    """Add the recorded gradients, each scaled down to L2 norm `norm` over all parameters."""
    scales = norm / gradients.norms().clamp(min=norm)
    for name, clipped in gradients.weighted_sums(scales).items():
        sums[name].add_(clipped)


@torch.no_grad()
def _update_average(state: TrainingState, decay: float, step: int) -> None:
    # The average forgets its start: early on it follows the weights closely.
    weight = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(state.average.values()), list(state.parameters.values()), weight)
