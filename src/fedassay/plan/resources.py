"""Resources of a cell of a plan (threads, memory, GPUs), and the number of cells that may run at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from fedassay.support import limits
from fedassay.support.devices import is_gpu
from fedassay.support.numerics import at_threads
from fedassay.support.types import Frozen

_GIB = 1 << 30
_CGROUP = Path("/sys/fs/cgroup/memory.max")


class Resources(Frozen):
    """The `resources` section. None of it changes what is measured; `--resume` accepts other values.

    Attributes:
        threads: Threads of a cell. With a number here the record is the same to the bit for any number of workers
            (on the same processor); left out, workers share the cores evenly, and records agree up to rounding.
        memory: GiB that a cell may take: no more run at once than fit. Ray places cells by it.
        gpus: GPUs of a cell with `--device cuda`; 0.25 lets four cells share one. Ray places cells by it; without
            Ray all cells share one GPU.
        order: Whether releases are worked on, and each one's audits, as they are expected to decide (`decisive`:
            claims and algebra first, reconstructions last) or as the plan names them (`plan`).
    """

    threads: int | None = Field(default=None, ge=1, le=limits.THREADS)
    memory: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    order: Literal["decisive", "plan"] = "decisive"

    def threads_of(self, jobs: int) -> int:
        """Threads of each of `jobs` workers: as many as asked for, else an even share of the cores."""
        return self.threads or threads_each(jobs)

    def workers(self, jobs: int, device: str) -> int:
        """Cells that may run at once on this machine: at most `jobs`, at least 1."""
        fit = [jobs]
        if self.threads is not None:
            fit.append(cores() // self.threads)
        if self.memory is not None:
            fit.append(int(memory_bytes() / (self.memory * _GIB)))
        if self.gpus and is_gpu(device):
            fit.append(int(1 / self.gpus))
        return max(1, min(fit))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Bytes of memory that this machine, or the container on it, has."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP.read_text().strip()
    except OSError:
        return whole
    return min(whole, int(limit)) if limit.isdigit() else whole


def threads_each(jobs: int) -> int:
    """Threads of each of `jobs` workers: no more than the cores in all, nor than OMP_NUM_THREADS allows."""
    share = max(1, cores() // jobs)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(asked)) if asked.isdigit() and int(asked) > 0 else share


@contextmanager
def threads_limited(threads: int | None) -> Iterator[None]:
    """This process computes with so many threads; None: as it did."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads), at_threads(threads):
        yield
