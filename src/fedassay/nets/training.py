"""Training of the conditional denoiser.

Denoising loss at uniform time steps (Ho et al. 2020), conditions dropped at random for classifier-free guidance
(Ho & Salimans 2022), AdamW unless the preset names another optimiser, a moving average of the weights. A share of
the records is held out. The average that does best on them is kept, so that a few hundred records are not
memorized. Every random number comes from one CPU generator, on every device, and is drawn in a fixed order: on a
CPU the same seed gives the same bits.

Images and first guesses stay uint8, on the host or on a GPU with room for them, and are converted batch by batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedassay.nets.checkpoint import KEPT_EVERY, TrainingState, read_checkpoint, write_checkpoint
from fedassay.nets.denoising import Drawn, Network, build_scheduler, denoising_loss, to_model_range
from fedassay.nets.presets import Preset
from fedassay.nets.trained import TrainedDenoiser, build_network
from fedassay.nets.warm_start import fit_warm_start
from fedassay.nets.whitening import Whitening, fit_whitening
from fedassay.support.devices import placed, quickened, random_state_kept, resident, seed_draws
from fedassay.support.hashing import digest_arrays
from fedassay.support.progress import Advance, no_progress
from fedassay.support.types import Floats, Images

LOOKS = 20
"""Least number of evaluations of a run on the records held out."""

PATIENCE = 4
"""Training ends when it has taken so many times the steps of its best look, and a quarter of all more."""

MOST_HELD_OUT = 500


def train(
    images: Images,
    conditions: Floats,
    preset: Preset,
    *,
    seed: int,
    device: str = "cpu",
    progress: Advance = no_progress,
    checkpoint: Path | None = None,
    whitening: Whitening | None = None,
) -> TrainedDenoiser:
    """Train a denoiser on pairs of image and condition.

    Args:
        images: Shape (n, height, width, channels), uint8.
        conditions: Shape (n, d): features, or one-hot classes.
        preset: Architecture and training settings.
        seed: Seed of initialisation, order, noise and dropout.
        device: Device of the computation, as torch names it.
        progress: Called with (steps done, steps in all).
        checkpoint: A file for the state of the run, written now and then. If it holds the state of
            this very run (same data, settings and seed) training goes on from there and, on a CPU,
            ends with the same bits as if it had never stopped. The caller deletes it.
        whitening: The map of conditions; None fits one on `conditions`, as the preset says.

    Returns:
        The model, its weights on the host.

    Raises:
        ValueError: Images or conditions have the wrong type, shape or length.
    """
    _check(images, conditions, preset)
    image_shape: tuple[int, int, int] = images.shape[1:]
    if whitening is None:
        whitening = fit_whitening(conditions, decorrelate=preset.whiten)
    pairs = _Pairs(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(whitening(conditions)))
    warm_start = None
    if preset.centres:
        rng = np.random.default_rng(seed)
        warm_start, guesses = fit_warm_start(images, conditions, centres=preset.centres, rng=rng)
        pairs = _Pairs(pairs.images, pairs.conditions, torch.from_numpy(guesses))
    network = placed(build_network(preset, image_shape, conditions.shape[1], seed=seed), device).train()
    forward = quickened(network, device) if preset.architecture == "unet" else network
    pairs = pairs.kept_on(device)
    scheduler = build_scheduler(preset)
    state = _initial_state(network, preset, seed)
    order = torch.randperm(len(images), generator=state.generator)
    count = held_out_count(len(images), preset)
    held, used = order[:count], order[count:]
    fingerprint, start = "", 0
    if checkpoint is not None:
        data = digest_arrays({"images": images, "conditions": conditions})
        fingerprint = repr((data, sorted(asdict(preset).items()), seed))
        start, _ = read_checkpoint(checkpoint, fingerprint, state)
    # A caller's random state is left as it was, also on the GPU, which dropout layers there draw from.
    with random_state_kept(device):
        for step in range(start, preset.steps):
            _step(step, forward, scheduler, state, pairs, used, preset, device)
            done = step + 1
            progress(done, preset.steps)
            look = _is_look(done, preset.steps)
            if look:
                loss = None
                if len(held):
                    loss = _held_out_loss(network, scheduler, state.average, pairs, held, preset, seed, device)
                _keep_best(done, state, loss)
            if checkpoint is not None and done % KEPT_EVERY == 0:
                write_checkpoint(checkpoint, fingerprint, done, state)
            if look and len(held) and done > PATIENCE * state.best_step + preset.steps // 4:
                break
    progress(preset.steps, preset.steps)
    weights = {name: value.cpu().numpy().copy() for name, value in state.best.items()}
    return TrainedDenoiser(preset, image_shape, whitening, weights, warm_start)


def held_out_count(n: int, preset: Preset) -> int:
    """Return how many of n records are held out from training, to choose the weights before overfitting."""
    return min(round(preset.held_out * n), MOST_HELD_OUT)


def learning_rate(preset: Preset, step: int) -> float:
    """Linear warm-up over `preset.warmup` steps, times cosine decay from the peak to 0."""
    warm = min(1.0, (step + 1) / max(1, preset.warmup))
    return preset.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / preset.steps))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The training records: uint8 images, whitened conditions, uint8 first guesses; together on host or GPU."""

    images: Tensor
    conditions: Tensor
    guesses: Tensor | None = None

    def kept_on(self, device: str) -> _Pairs:
        """The same on the device, if that is a GPU with room for them."""
        held = [self.images, self.conditions, *(() if self.guesses is None else (self.guesses,))]
        return _Pairs(*resident(held, device))

    def take(self, chosen: Tensor, device: str) -> tuple[Tensor, Tensor, Tensor | None]:
        chosen = chosen.to(self.images.device)
        guesses = None if self.guesses is None else to_model_range(self.guesses[chosen]).to(device)
        images = to_model_range(self.images[chosen]).to(device)
        return images, self.conditions[chosen].to(device), guesses


def _initial_state(network: nn.Module, preset: Preset, seed: int) -> TrainingState:
    parameters = dict(network.named_parameters())
    return TrainingState(
        parameters=parameters,
        average={name: p.detach().clone() for name, p in parameters.items()},
        best={name: p.detach().clone() for name, p in parameters.items()},
        best_loss=torch.tensor(torch.inf),
        best_step=0,
        optimizer=_optimizer(parameters.values(), preset),
        generator=torch.Generator().manual_seed(seed),
    )


def _optimizer(parameters: Iterable[nn.Parameter], preset: Preset) -> torch.optim.Optimizer:
    rate = preset.learning_rate
    if preset.optimizer is not None:
        return preset.optimizer.build(parameters, rate)
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=preset.weight_decay, fused=True)


def _step(
    step: int,
    network: Network,
    scheduler: Any,
    state: TrainingState,
    pairs: _Pairs,
    used: Tensor,
    preset: Preset,
    device: str,
) -> None:
    generator = state.generator
    chosen = used[torch.randint(len(used), (preset.batch,), generator=generator)]
    timesteps = torch.randint(preset.timesteps, (preset.batch,), generator=generator)
    keep = torch.rand(preset.batch, generator=generator) >= preset.condition_dropout
    images, conditions, guesses = pairs.take(chosen, device)
    noise = torch.randn(images.shape, generator=generator)
    # Dropout layers draw from torch's global generator: seed it from ours, so that a resumed run
    # draws the same masks.
    seed_draws(int(torch.randint(2**62, (), generator=generator)), device)
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(preset, step)
    losses = denoising_loss(
        network,
        scheduler,
        images,
        conditions,
        Drawn(keep.to(device), timesteps.to(device), noise.to(device)),
        guesses=guesses,
        ssim_weight=preset.ssim_weight,
    )
    state.optimizer.zero_grad(set_to_none=True)
    losses.mean().backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(state.parameters.values(), preset.clip)
    state.optimizer.step()
    # The average forgets its start: early on it follows the weights closely.
    decay = min(preset.ema, (1 + step) / (10 + step))
    with torch.no_grad():
        torch._foreach_lerp_(list(state.average.values()), list(state.parameters.values()), 1 - decay)


def _is_look(done: int, steps: int) -> bool:
    # Powers of two as well: a few images are overfitted before a twentieth of the run is over.
    return done % max(1, steps // LOOKS) == 0 or done == steps or done & (done - 1) == 0


@torch.no_grad()
def _keep_best(done: int, state: TrainingState, loss: Tensor | None) -> None:
    """Keep the averaged weights if nothing before did better on the records held out."""
    if loss is not None:
        if loss >= state.best_loss:
            return
        state.best_loss.copy_(loss)
    state.best_step = done
    for name, value in state.average.items():
        state.best[name].copy_(value)


@torch.no_grad()
def _held_out_loss(
    network: nn.Module,
    scheduler: Any,
    weights: dict[str, Tensor],
    pairs: _Pairs,
    held: Tensor,
    preset: Preset,
    seed: int,
    device: str,
) -> Tensor:
    """Mean loss on the records held out, at evenly spread time steps and always the same noise."""
    generator = torch.Generator().manual_seed(seed + 1)
    timesteps = torch.linspace(0, preset.timesteps - 1, len(held)).round().long()
    timesteps = timesteps[torch.randperm(len(held), generator=generator)]
    network.eval()
    losses = []
    for first in range(0, len(held), preset.batch):
        part = slice(first, first + preset.batch)
        images, conditions, guesses = pairs.take(held[part], device)
        losses.append(
            denoising_loss(
                lambda *inputs: torch.func.functional_call(network, weights, inputs),
                scheduler,
                images,
                conditions,
                Drawn(
                    torch.ones(len(images), dtype=torch.bool, device=device),
                    timesteps[part].to(device),
                    torch.randn(images.shape, generator=generator).to(device),
                ),
                guesses=guesses,
                ssim_weight=preset.ssim_weight,
            )
        )
    network.train()
    return torch.cat(losses).mean().cpu()


def _check(images: Images, conditions: Floats, preset: Preset) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or 0 in images.shape:
        raise ValueError(
            f"images: {images.dtype} of shape {images.shape} given; allowed: uint8 "
            "(n, height, width, channels), none of them 0"
        )
    if min(images.shape[1:3]) < 2 and preset.ssim_weight:
        raise ValueError(f"images: {images.shape[1:3]} pixels given; SSIM needs 2 or more each way")
    if conditions.ndim != 2 or len(conditions) != len(images):
        raise ValueError(f"conditions: shape {conditions.shape} given; allowed: ({len(images)}, d)")
