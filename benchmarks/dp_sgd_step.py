"""A DP-SGD step of the FedDiff U-Net, against Opacus's hooks on the same network and against a plain step.

    python benchmarks/dp_sgd_step.py            FedDiff_s (1.46 million parameters) at 16x16, 32 records a step
    python benchmarks/dp_sgd_step.py --full     at 32x32x3, 64 records

The check comes first: every record's gradient, gradient norm and part of a weighted sum equal those of that record
alone, computed by autograd on the very network that is trained. Ours is
`fedassay.nets.dp_sgd.generators.train_generator_privately`, which samples, clips, adds noise and averages
weights, once with each engine (`dp_sgd.engine`: `fast` is the row's, `opacus` stands beside it); the peer is
GradSampleModule and DPOptimizer in a bare loop, and Opacus's ghost clipping stands beside it. All five build the
network and take steps on batches of the same size, in runs that alternate; a step's time is the median over the
steps of all runs without the first two of each, in which ours checks its gradients.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

import measure
import numpy as np
import torch
from numpy.typing import NDArray

from fedassay.nets.denoising import Drawn, build_scheduler, denoising_loss, to_model_range
from fedassay.nets.dp_sgd.generators import PrivateTraining, train_generator_privately
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.record_gradients import RecordGradients
from fedassay.nets.dp_sgd.steps import Engine, PrivateSteps
from fedassay.nets.generators import GENERATORS, Computation, one_hot
from fedassay.nets.presets import Preset
from fedassay.nets.trained import build_network
from fedassay.privacy.tape import Key
from fedassay.support.seeds import Seeds

TARGET, GOAL = 1.0, 1.2
AS_FAST = 0.95
"""Medians of two equal programs on a shared machine differ by as much."""
CLASSES = 10
FIRST = 2
"""Steps of a run that are not timed."""

Tick = Callable[[], None]
"""Called after every step."""


def data(records: int, size: int, channels: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    shape = (records, size, size, channels)
    return rng.integers(0, 256, shape).astype(np.uint8), rng.integers(0, CLASSES, records)


class Batch:
    """One batch with its time steps and noise, and the loss of each of its records under a network."""

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64], preset: Preset) -> None:
        generator = torch.Generator().manual_seed(0)
        self.scheduler = build_scheduler(preset)
        self.images = to_model_range(torch.from_numpy(images))
        self.conditions = torch.from_numpy(one_hot(labels, CLASSES))
        self.timesteps = torch.randint(preset.timesteps, (len(images),), generator=generator)
        self.noise = torch.randn(self.images.shape, generator=generator)
        self.keep = torch.ones(len(images), dtype=torch.bool)

    def losses(self, network: Any, rows: slice = slice(None)) -> torch.Tensor:
        """Of the records in `rows`, shape (n,)."""
        return denoising_loss(
            network, self.scheduler, self.images[rows], self.conditions[rows],
            Drawn(self.keep[rows], self.timesteps[rows], self.noise[rows]),
        )  # fmt: skip


def network_of(preset: Preset, images: NDArray[np.uint8]) -> torch.nn.Module:
    shape = (images.shape[1], images.shape[2], images.shape[3])
    return build_network(replace(preset, dropout=0.0), shape, CLASSES, seed=0).train()


def plain(images: NDArray[np.uint8], labels: NDArray[np.int64], preset: Preset, steps: int, tick: Tick) -> None:
    network, batch = network_of(preset, images), Batch(images, labels, preset)
    optimizer = torch.optim.AdamW(network.parameters(), lr=preset.learning_rate)
    for _ in range(steps):
        optimizer.zero_grad()
        batch.losses(network).mean().backward()
        optimizer.step()
        tick()


def hooks(images: NDArray[np.uint8], labels: NDArray[np.int64], preset: Preset, steps: int, tick: Tick) -> None:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    module, batch = GradSampleModule(network_of(preset, images)), Batch(images, labels, preset)
    optimizer = DPOptimizer(
        torch.optim.AdamW(module.parameters(), lr=preset.learning_rate),
        noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(images),
    )  # fmt: skip
    for _ in range(steps):
        optimizer.zero_grad()
        batch.losses(module).mean().backward()
        optimizer.step()
        tick()


def ghosts(images: NDArray[np.uint8], labels: NDArray[np.int64], preset: Preset, steps: int, tick: Tick) -> None:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    module = GradSampleModuleFastGradientClipping(
        network_of(preset, images), max_grad_norm=1.0, use_ghost_clipping=True
    )
    batch = Batch(images, labels, preset)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.AdamW(module.parameters(), lr=preset.learning_rate),
        noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(images),
    )  # fmt: skip
    for _ in range(steps):
        optimizer.zero_grad()
        DPTensorFastGradientClipping(module, optimizer, batch.losses(module), "mean").backward()
        optimizer.step()
        tick()


def ours(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    preset: Preset,
    steps: int,
    tick: Tick,
    engine: Engine = "fast",
) -> None:
    private = PrivateSteps(1.0, 1.0, steps, 1.0, float(len(images)), engine)
    training = PrivateTraining(private, together=len(images), average=preset.ema)
    mechanism = TrainingMechanism(Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "weights"))
    train_generator_privately(
        images, labels, CLASSES, preset, training, mechanism, Computation(0, progress=lambda *_: tick())
    )


def by_opacus(
    images: NDArray[np.uint8], labels: NDArray[np.int64], preset: Preset, steps: int, tick: Tick
) -> None:
    ours(images, labels, preset, steps, tick, "opacus")


def step_times(run: Callable[..., None], *given: Any, steps: int) -> list[measure.Timing]:
    """Of `steps` steps after the first ones of a run."""
    ticks: list[tuple[float, float]] = []
    run(*given, FIRST + steps, lambda: ticks.append((time.perf_counter(), time.process_time())))
    return [measure.Timing(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(ticks[FIRST - 1 :])]


def check(images: NDArray[np.uint8], labels: NDArray[np.int64], preset: Preset) -> float:
    """Asserts gradients, norms and sums against autograd's of one record at a time; the largest relative error."""
    network, batch = network_of(preset, images), Batch(images, labels, preset)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():  # the last layer starts at zero, and with it most gradients
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    names, alone = [name for name, _ in network.named_parameters()], []
    for row in range(len(images)):
        network.zero_grad()
        batch.losses(network, slice(row, row + 1)).sum().backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in network.parameters()]
        alone.append(dict(zip(names, gradients, strict=True)))
    recorded = RecordGradients(network)
    with recorded.recording(len(images)):
        batch.losses(network).sum().backward()
    norms = [torch.linalg.vector_norm(torch.cat([g.flatten() for g in one.values()])) for one in alone]
    worst = error_of(recorded.norms(), torch.stack(norms), "the norms")
    weights = torch.linspace(0.1, 1, len(images))
    sums = recorded.weighted_sums(weights)
    for name in names:
        expected = torch.stack([one[name] for one in alone])
        for row, each in enumerate(recorded.each(name)):
            worst = max(worst, error_of(each, expected[row], f"gradient of record {row} for {name}"))
        total = torch.einsum("n,n...->...", weights, expected)
        worst = max(worst, error_of(sums.get(name, torch.zeros_like(total)), total, f"the sum for {name}"))
    return worst


def error_of(found: torch.Tensor, expected: torch.Tensor, what: str) -> float:
    """Asserts that a tensor is right; its relative error."""
    away = torch.linalg.vector_norm(found - expected)
    error = float(away / (torch.linalg.vector_norm(expected) + 1e-4))
    assert error < 1e-2, f"{what}: off by {error:.2g}, relatively"
    return error


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """Times the three and returns the row of the performance table."""
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    preset, steps = GENERATORS["small"], 3 if full else 10
    images, labels = data(64, 32, 3) if full else data(32, 16, 1)
    for given in ((images[:4], labels[:4]), (images, labels)):
        ours(*given, preset, FIRST, lambda: None)
    peak = measure.peak_mib()
    error = check(images[:3], labels[:3], preset)
    found: list[list[measure.Timing]] = [[], [], [], [], []]
    for _ in range(repeats):
        for times, one in zip(found, (plain, hooks, ours, by_opacus, ghosts), strict=True):
            times.extend(step_times(one, images, labels, preset, steps=steps))
    bare, peer, mine, other, ghost = (
        measure.Timing(median(each.elapsed for each in times), median(each.cpu for each in times))
        for times in found
    )
    ratio, over = peer.elapsed / mine.elapsed, mine.elapsed / bare.elapsed
    return {
        "row": "DP-SGD step of the diffusion U-Net",
        "ratio": round(ratio, 2),
        "target": TARGET,
        "met": min(ratio, peer.cpu / mine.cpu, ghost.cpu / mine.cpu) >= AS_FAST,
        "ratio_of_cpu": round(peer.cpu / mine.cpu, 2),
        "peer": "Opacus GradSampleModule (hooks) and DPOptimizer in a bare loop",
        "times_the_plain_step": round(over, 2),
        "times_the_plain_step_of_cpu": round(mine.cpu / bare.cpu, 2),
        "goal": GOAL,
        "goal_met": max(over, mine.cpu / bare.cpu) <= GOAL,
        "opacus_engine_times_the_fast_one": round(other.elapsed / mine.elapsed, 2),
        "opacus_engine_times_the_fast_one_of_cpu": round(other.cpu / mine.cpu, 2),
        "ghost_clipping_times_ours": round(ghost.elapsed / mine.elapsed, 2),
        "ghost_clipping_times_ours_of_cpu": round(ghost.cpu / mine.cpu, 2),
        "peer_times_the_plain_step": round(peer.elapsed / bare.elapsed, 2),
        "peer_times_the_plain_step_of_cpu": round(peer.cpu / bare.cpu, 2),
        "largest_gradient_error": error,
        "ours_seconds_per_step": round(mine.elapsed, 3),
        "batch": list(images.shape),
        "parameters": sum(p.numel() for p in network_of(preset, images).parameters()),
        "peak_mib": peak,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
