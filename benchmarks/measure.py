"""What the benchmarks share: alternating runs, medians, peaks of memory, and the command line.

Calls that are compared run in turn, so that a machine which slows down slows both, and medians are compared.
Every script has `check`, which asserts that both sides compute the same thing, and `run`, which calls it before
anything is timed and returns one row of the performance table:

    row, ratio, target, met      the ratio of elapsed times (or another figure the row names) against its target
    ratio_of_cpu                 the same of processor time, which other processes disturb less; a row with both is
                                 met where the smaller of the two is
    peak_mib                     peak resident memory of ours, where it ran before its peer; else of the process
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Timing:
    """Median seconds of several runs: elapsed, and of the processor (all threads together)."""

    elapsed: float
    cpu: float


def seconds(call: Callable[[], object]) -> Timing:
    """Times one call."""
    elapsed, cpu = time.perf_counter(), time.process_time()
    call()
    return Timing(time.perf_counter() - elapsed, time.process_time() - cpu)


def alternate(*calls: Callable[[], object], repeats: int) -> list[Timing]:
    """Runs every call `repeats` times in turn; medians, in the order of the calls."""
    runs = [[seconds(call) for call in calls] for _ in range(repeats)]
    return [
        Timing(median(run.elapsed for run in column), median(run.cpu for run in column))
        for column in zip(*runs, strict=True)
    ]


def peak_mib() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@dataclass(frozen=True)
class Finished:
    """A process that has ended: seconds, and its own peak of memory."""

    code: int
    timing: Timing
    peak_mib: int


def run_process(command: Sequence[str], environment: dict[str, str] | None = None) -> Finished:
    """Runs a program to its end; its output goes nowhere."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    timing = Timing(time.perf_counter() - started, usage.ru_utime + usage.ru_stime)
    return Finished(process.returncode, timing, usage.ru_maxrss // 1024)


def main(run: Callable[..., Row], description: str | None) -> None:
    """The command line of a script: `--full` for the whole row, `--repeats` for more runs; prints JSON."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the row's own size, however long that takes")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    json.dump(run(full=given.full, repeats=given.repeats), sys.stdout, indent=2)
    print()
