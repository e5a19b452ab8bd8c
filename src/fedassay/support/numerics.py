"""Facts that change the last bits of a result but are not part of the question: threads, kernels, libraries.

A sum is rounded in the order of its additions. That order depends on the number of threads, on the instructions
that a library finds on the processor, and on the library's version. These facts are part of every key in
`fedassay.support.cache`, so that a run never reads a result that it would not have computed itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedassay.support.devices import gpu_facts, is_gpu
from fedassay.support.version import __version__

_LIBRARIES = ("numpy", "scipy", "torch", "torchvision", "scikit-learn")
_SWITCHES = (
    "ATEN_",
    "BLIS_",
    "CUBLAS_",
    "CUDNN_",
    "DNNL_",
    "KMP_",
    "MKL_",
    "NPY_",
    "NVIDIA_",
    "ONEDNN_",
    "OPENBLAS_",
)
"""Prefixes of the environment variables that choose a library's kernels."""
_THREADS = "_NUM_THREADS"
"""Such variables say how many threads there may be; how many there are is asked of torch."""
_CPU = Path("/proc/cpuinfo")


def numerics(device: str = "cpu") -> str:
    """The facts, as text that differs wherever one of them does.

    Args:
        device: `cpu` or `cuda`.
    """
    import torch

    facts: dict[str, Any] = {
        "fedassay": __version__,
        "libraries": {name: installed_version(name) for name in _LIBRARIES},
        "processor": _processor(),
        "switches": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_SWITCHES) and not name.endswith(_THREADS)
        },
        "threads": threads_now(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": bool(torch.backends.mkldnn.enabled),
        "matmul": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if is_gpu(device):
        facts["gpu"] = gpu_facts()
    return json.dumps(facts, sort_keys=True)


def threads_now() -> int:
    """Number of threads that torch computes with."""
    import torch

    return torch.get_num_threads()


_SEVERAL = {"used": False, "lost": False}
"""Whether torch computed with several threads here; and whether a fork left them behind."""


def leave_threads() -> None:
    """Note in a forked process that the parent's threads are lost: waiting for them would never end."""
    _SEVERAL["lost"] = _SEVERAL["used"] or _SEVERAL["lost"]


@contextmanager
def at_threads(threads: int | None) -> Iterator[None]:
    """Set Torch's number of threads while the block lasts; None leaves it as it is.

    The results that workers share must not depend on the number of workers. A process keeps one thread, whatever
    is asked, if it was forked from one that had computed with several.
    """
    if threads is None:
        yield
        return
    import torch

    threads = 1 if _SEVERAL["lost"] else threads
    _SEVERAL["used"] = _SEVERAL["used"] or threads > 1

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def _processor() -> str:
    """Return the processor's kind and a hash of its capabilities, from which libraries choose their kernels."""
    try:
        lines = _CPU.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    telling = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return f"{platform.machine()} {hashlib.sha256(chr(10).join(telling).encode()).hexdigest()[:16]}"
