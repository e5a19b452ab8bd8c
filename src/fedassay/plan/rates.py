"""Measured rates that `fedassay run --dry-run` turns sizes into seconds with.

Processor seconds on one thread of a 2-core x86-64 virtual machine without a GPU (torch 2.13, float32). They
come from `benchmarks/dry_run_rates.py`, which measures them anew on any machine; the slower of two runs, rounded.
More threads and other machines are faster by factors that nothing here knows. Those of a GPU stand in
`gpu_rates.json` beside this file once `benchmarks/gpu.py --write-rates` has measured one; see `rates_of`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedassay.support.devices import is_gpu

GPU_FILE = Path(__file__).with_name("gpu_rates.json")

DENSE_FLOPS = 5.0e10
"""Floating-point operations a second of fully connected layers in training."""
CONVOLUTION_FLOPS = 2.5e10
"""Floating-point operations a second of small convolutions, in training and in use."""
UNET_FLOPS = 2.5e10
"""Floating-point operations a second of U-Nets, in training and in use."""
STEP = 3.0e-4
"""An optimiser step besides its arithmetic."""
PRIVATE_RECORD = 2.2
"""Arithmetic of a DP-SGD step (norms of per-record gradients, clipped sum) over that of a plain one."""
PRIVATE_STEP = 5.0e-4
"""A step of DP-SGD besides its arithmetic and noise."""
PRIVATE_PARAMETER = 2.5e-8
"""Noise on one parameter in a step."""
CALIBRATION = 1.2
"""One calibration of DP-SGD by privacy loss distributions."""
HEAD = 1.6e-8
"""Fitting a head by L-BFGS, for each record, feature and class."""
FIT = 0.1
"""One such fit, however few its records."""
MIXTURE = 3.0e-8
"""Fitting a mixture by EM, for each record, component and feature of a diagonal family."""
SSIM = 9.0e-10
"""SSIM of a pair of images, for each pixel and channel."""
AUDIT = 0.7
"""An audit of one cell besides what it compares: bootstrap, bounds, pictures; an attack that only reads."""
START = 7.0
"""Importing what a run needs, and writing the report."""
PAGE = 0.15
"""Time of the report for each cell."""
PROCESS_BYTES = 600 * 2**20
"""Memory of a process that audits statistics of small images: torch, diffusers, and what their audits hold."""
PICTURES_BYTES = 340 * 2**10
"""Memory of a generator of pictures for every number of an image: 938 MiB in all at 1,024 of them."""
PICTURES_MOST = 3072
"""Numbers of an image up to which that is taken; nothing larger was measured."""


def gpu_rates() -> tuple[str, dict[str, float]]:
    """Name of the GPU that was measured, and its rates by the names above; empty where none ever was."""
    kept = json.loads(GPU_FILE.read_text(encoding="utf-8"))
    return kept["card"], {name: float(value) for name, value in kept["rates"].items()}


@contextmanager
def rates_of(device: str) -> Iterator[str]:
    """The constants above are those of a device while the block lasts; costs read them when they are called.

    Args:
        device: As torch names it.

    Yields:
        What was measured, for a reader: one CPU core, or a GPU by its name. Where none was measured, a GPU's rates
        are the CPU's, and the words say so.
    """
    if not is_gpu(device):
        yield "measured on one core without a GPU"
        return
    card, rates = gpu_rates()
    if not rates:
        yield "measured on one core without a GPU, since those of a GPU were never measured"
        return
    before = {name: globals()[name] for name in rates}
    globals().update(rates)
    try:
        yield f"measured on {card}"
    finally:
        globals().update(before)


def in_words(seconds: float) -> str:
    """Seconds as a reader wants them: 40 s, 3 min, 5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{math.ceil(seconds / 3600)} h"
