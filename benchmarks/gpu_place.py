"""What the rows of `gpu.py` share: where and how large, timing with the card waited for, options, tolerances."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from fedassay.nets.generators import GENERATORS
from fedassay.nets.presets import PRESETS, Preset
from fedassay.support.devices import VARIABLE, is_gpu

TF32, BF16 = 5e-3, 5e-2
"""Relative differences that are allowed between a gradient or feature of the CPU and the GPU's."""
PIXELS, PIXELS_BF16 = 1.0, 4.0
"""Mean differences of sampled pixels, of 255."""
FIRST = 3
"""Steps of a run that are not timed."""
CLASSES = 10


@dataclass(frozen=True)
class Place:
    """Where and how large.

    Attributes:
        device: Of the rows.
        small: Sizes that a CPU goes through in seconds.
        repeats: Runs of which the median is taken.
        products: Multiplications and additions a second of a bfloat16 product, as measured; 0: not yet.
    """

    device: str
    small: bool
    repeats: int = 3
    products: float = 0.0

    def pick(self, large: int, small: int) -> int:
        """A size."""
        return small if self.small else large

    @property
    def generator(self) -> Preset:
        """The U-Net of Mendieta et al. 2025."""
        found = GENERATORS["paper"]
        return replace(found, width=8, multipliers=(1, 2), batch=4) if self.small else found

    @property
    def attacker(self) -> Preset:
        """The U-Net of Beitollahi et al. 2024."""
        found = PRESETS["paper"]
        return replace(found, width=8, multipliers=(1, 2), blocks=1, batch=4) if self.small else found

    @property
    def side(self) -> int:
        """Of an image."""
        return self.pick(32, 8)


def synchronize(device: str) -> None:
    """Waits for the card."""
    if is_gpu(device):
        torch.cuda.synchronize()


def timed(call: Callable[[], object], device: str, repeats: int) -> float:
    """Median seconds of a call, after one that is not timed; the card is waited for."""
    call()
    taken = []
    for _ in range(repeats):
        synchronize(device)
        started = time.perf_counter()
        call()
        synchronize(device)
        taken.append(time.perf_counter() - started)
    return median(taken)


def seconds_per_step(run: Callable[[Callable[[int, int], None], int], object], steps: int, device: str) -> float:
    """Of a training that is told where to report its steps and how many to take, without the first ones."""
    marks: dict[int, float] = {}

    def tick(done: int, _: int) -> None:
        if done in {FIRST, FIRST + steps} and done not in marks:
            synchronize(device)
            marks[done] = time.perf_counter()

    run(tick, FIRST + steps)
    return (marks[FIRST + steps] - marks[FIRST]) / steps


@contextmanager
def options(*asked: str) -> Iterator[None]:
    """FEDASSAY_GPU in this block."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ",".join(asked)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def within(found: Tensor, expected: Tensor, allowed: float, what: str) -> float:
    """Asserts a relative difference; gives it."""
    away = float(torch.linalg.vector_norm(found - expected) / torch.linalg.vector_norm(expected))
    assert away <= allowed, f"{what}: GPU and CPU differ by {away:.2g}, relatively; allowed: {allowed:g}"
    return away
