"""Training of class-conditional generators by DP-SGD, with Opacus.

Per-record gradients come from Opacus's hooks, the fastest of its modes here (functorch's is slower, ghost
clipping needs a second backward pass, expanded weights do not know every layer). Hooks are right only where every
convolution gets a contiguous input: `UNetDenoiser` sees to that. Should a layer escape it all the same, its
per-record gradients would be zero without a word; so in the first batch of every run their sum is held against
the gradient that autograd computes in the same backward pass.

Every record enters a step independently (Poisson sampling). A batch of any size is taken in virtual steps of a
few records, whose clipped gradients are added up before there is any noise; an empty batch releases noise alone,
without a forward pass. Each record's loss is averaged over several time steps and noises before its gradient is
clipped, which costs no privacy (Dockhorn et al. 2022, "Differentially Private Diffusion Models").
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedassay.hashing import digest_arrays
from fedassay.nets.checkpoint import TrainingState, read_checkpoint, write_checkpoint
from fedassay.nets.denoising import build_scheduler, denoising_loss, to_model_range
from fedassay.nets.generators import one_hot, unchanged
from fedassay.nets.local_training import PrivateSteps
from fedassay.nets.presets import Preset
from fedassay.nets.trained import TrainedDenoiser, build_network
from fedassay.progress import Advance
from fedassay.values import Images, Ints

_KEPT_EVERY = 100
_TOLERANCE = 1e-2


@dataclass(frozen=True)
class PrivateTraining:
    """How a generator is trained by DP-SGD.

    Attributes:
        steps: Noise, sampling rate, number of steps, clipping norm and divisor.
        draws: Time steps and noises that each record's loss is averaged over.
        together: Records whose gradients are held at once: the size of a virtual step.
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
    # Opacus takes seconds to import.
    from opacus import GradSampleModule

    preset = replace(preset, dropout=0.0)
    image_shape: tuple[int, int, int] = images.shape[1:]
    network = build_network(preset, image_shape, classes, seed=seed).to(device).train()
    # "sum": a virtual batch's loss is a sum, so Opacus has nothing to scale back.
    module: Any = GradSampleModule(network, loss_reduction="sum")
    state = _initial_state(network, preset, seed)
    noise = torch.Generator(device)
    optimizer = _dp_optimizer(state.optimizer, training.steps, noise)
    records = _Records(to_model_range(torch.from_numpy(images)), torch.from_numpy(one_hot(labels, classes)))
    fingerprint, start = "", 0
    if checkpoint is not None:
        data = digest_arrays({"images": images, "labels": labels})
        fingerprint = repr((data, sorted(asdict(preset).items()), training, seed))
        start = read_checkpoint(checkpoint, fingerprint, state)
    scheduler = build_scheduler(preset)
    checked = False
    for step in range(start, training.steps.steps):
        drawn = torch.rand(len(images), generator=state.generator) < training.steps.sampling_rate
        chosen = drawn.nonzero().flatten()
        for part in torch.split(chosen, training.together) if len(chosen) else [chosen]:
            _gradients(module, scheduler, records, part, training.draws, preset, state.generator, device)
            if len(part) and not checked:
                _check_sums(module)
                checked = True
            is_last = len(chosen) == 0 or bool(part[-1] == chosen[-1])
            if is_last:
                # Noise is drawn where the weights are, from a generator that a resumed run finds again.
                noise.manual_seed(int(torch.randint(2**62, (), generator=state.generator)))
            optimizer.signal_skip_step(do_skip=not is_last)
            optimizer.step()
            optimizer.zero_grad()
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
        optimizer=torch.optim.AdamW(parameters.values(), lr=preset.learning_rate, weight_decay=0.0),
        generator=torch.Generator().manual_seed(seed),
    )


def _dp_optimizer(base: torch.optim.Optimizer, steps: PrivateSteps, noise: torch.Generator) -> Any:
    from opacus.optimizers import DPOptimizer

    return DPOptimizer(
        base,
        noise_multiplier=steps.noise_multiplier,
        max_grad_norm=steps.norm,
        expected_batch_size=steps.batch,
        loss_reduction="mean",
        generator=noise,
    )


def _gradients(
    module: Any,
    scheduler: Any,
    records: _Records,
    chosen: Tensor,
    draws: int,
    preset: Preset,
    generator: torch.Generator,
    device: str,
) -> None:
    """Leave every chosen record's gradient in `grad_sample` of each parameter, shape (len(chosen), ...)."""
    if not len(chosen):
        for parameter in module.parameters():
            parameter.grad_sample = torch.zeros((0, *parameter.shape), device=parameter.device)
        return
    repeated = chosen.repeat_interleave(draws)
    count = len(repeated)
    timesteps = torch.randint(preset.timesteps, (count,), generator=generator)
    keep = torch.rand(count, generator=generator) >= preset.condition_dropout
    images = records.images[repeated]
    losses = denoising_loss(
        module,
        scheduler,
        images.to(device),
        records.conditions[repeated].to(device),
        keep=keep.to(device),
        timesteps=timesteps.to(device),
        noise=torch.randn(images.shape, generator=generator).to(device),
    )
    with warnings.catch_warnings():
        # No input of the first layers needs a gradient; the hooks do not need one either.
        warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)
        (losses.sum() / draws).backward()  # type: ignore[no-untyped-call]
    if draws > 1:
        for parameter in module.parameters():
            each = parameter.grad_sample
            parameter.grad_sample = each.view(len(chosen), draws, *parameter.shape).sum(dim=1)


def _check_sums(module: Any) -> None:
    """Hold the sum of the per-record gradients against what autograd left in `grad`."""
    for name, parameter in module.named_parameters():
        each = parameter.grad_sample
        wrong = torch.linalg.vector_norm(each.sum(dim=0) - parameter.grad)
        # Records' gradients may cancel: rounding grows with their norms, not with that of the sum.
        size = each.flatten(1).norm(dim=1).sum() + torch.linalg.vector_norm(parameter.grad)
        if wrong > _TOLERANCE * size:
            raise RuntimeError(
                f"DP-SGD: the per-record gradients of {name} do not add up to the gradient of their batch; "
                "clipping would not bound what a record adds"
            )


@torch.no_grad()
def _update_average(state: TrainingState, decay: float, step: int) -> None:
    # The average forgets its start: early on it follows the weights closely.
    weight = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(state.average.values()), list(state.parameters.values()), weight)
