"""One DP-SGD step of FedDiff's U-Net (Opacus hooks, contiguous convolutions) against a step without privacy.

    python benchmarks/feddiff_private_step.py             1.4 million parameters, 16x16, 32 records a step

Before anything is timed, per-record gradients are held against autograd one record at a time. Times are processor
seconds of this process, so that other load on the machine matters less; `ratio` is the private step over the plain
one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule

from fedassay.nets.denoising import build_scheduler, denoising_loss
from fedassay.nets.generators import GENERATORS, one_hot, train_generator
from fedassay.nets.local_training import PrivateSteps
from fedassay.nets.private_generators import PrivateTraining, train_generator_privately
from fedassay.nets.trained import build_network

PRESET = GENERATORS["small"]
GOAL = 2.2


def check(side: int) -> float:
    """Largest relative error of a record's gradient over all parameters, of three records."""
    scheduler, source = build_scheduler(PRESET), torch.Generator().manual_seed(0)
    inputs = {
        "images": torch.rand(3, 1, side, side, generator=source) * 2 - 1,
        "conditions": torch.tensor(one_hot(np.arange(3), 10)),
        "keep": torch.ones(3, dtype=torch.bool),
        "timesteps": torch.tensor([10, 400, 900]),
        "noise": torch.randn(3, 1, side, side, generator=source),
    }
    network = build_network(PRESET, (side, side, 1), 10, seed=0)
    with torch.no_grad():
        for parameter in network.parameters():  # layers that start at zero would hide those before them
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=source))
    module: Any = GradSampleModule(network, loss_reduction="sum")
    denoising_loss(module, scheduler, **inputs).sum().backward()
    found = torch.cat([p.grad_sample.flatten(1) for p in network.parameters()], dim=1)
    worst = 0.0
    for index in range(3):
        module.zero_grad()
        one = {name: value[index : index + 1] for name, value in inputs.items()}
        denoising_loss(module, scheduler, **one).sum().backward()
        alone = torch.cat([p.grad.flatten() for p in network.parameters()])
        worst = max(worst, float((found[index] - alone).norm() / alone.norm()))
    return worst


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def run(side: int = 16, batch: int = 32, steps: int = 4, repeats: int = 3) -> dict[str, Any]:
    """Times both and returns the row of the performance table."""
    error = check(side)
    assert error < 1e-3, error
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (batch, side, side, 1), dtype=np.uint8), np.arange(batch) % 10
    preset = replace(PRESET, batch=batch)

    def plain(count: int) -> None:
        train_generator(images, labels, 10, preset, epochs=count, seed=0)

    def private(count: int) -> None:
        schedule = PrivateSteps(noise_multiplier=1.0, sampling_rate=1.0, steps=count, norm=1.0, batch=float(batch))
        train_generator_privately(images, labels, 10, preset, PrivateTraining(schedule, together=batch), seed=0)

    plain(1)
    private(1)
    # The difference of two runs leaves out what a run costs before its first step.
    times = {
        call.__name__: median(
            (seconds(lambda c=call: c(1 + steps)) - seconds(lambda c=call: c(1))) / steps for _ in range(repeats)
        )
        for call in (plain, private)
    }
    ratio = times["private"] / times["plain"]
    return {
        "row": f"DP-SGD step of the diffusion U-Net, {side}x{side}, batch {batch}",
        "ratio": round(ratio, 2),
        "goal": GOAL,
        "met": ratio <= GOAL,
        "peer": "the non-private step",
        "mode": "Opacus hooks",
        "gradient_error": error,
        "plain_seconds": round(times["plain"], 3),
        "private_seconds": round(times["private"], 3),
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    print(json.dumps(run(**vars(parser.parse_args())), indent=2))
