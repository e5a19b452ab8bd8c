"""kill -9 everywhere: 60 of them, spread over runs of four cells with two workers, whose record stays the same.

Every second kill is at a write (every process of the run counts the files that it flushes, together), the others
are at instants. Most lie beyond the first cell. A killed run is resumed and killed again, further on each time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Comparable = Callable[[Path], dict[str, Any]]

PLAN = """
name: four-cells
seeds: [3]
data: {name: digits, limit: 400, split: {private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: small_cnn}
methods:
  - fedcgs: {}
  - fedavg: {rounds: 4}
  - fedpft: {label: third, components: 2}
  - fedcgs: {label: fourth, epsilon: 5}
attacks: [label_distribution: {}, message_algebra: {}]
audits: [message: {}, ledger: {}]
"""
KILLS = 60

# In every process of the run: counts the files that are flushed; at the number in `stop`, kills them all.
HOOK = """
import os, signal, sys
home = os.environ.get("KILL_HOME")
if home:
    fdopen = os.fdopen
    class Watched:
        def __init__(self, stream):
            self.stream = stream
        def __enter__(self):
            self.stream.__enter__()
            return self
        def __exit__(self, *error):
            return self.stream.__exit__(*error)
        def __getattr__(self, name):
            return getattr(self.stream, name)
        def flush(self):
            handle = os.open(os.path.join(home, "writes"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.write(handle, b".")
            number = os.fstat(handle).st_size
            os.close(handle)
            if number == int(os.environ["KILL_AT"]):
                os.killpg(0, signal.SIGKILL)
            self.stream.flush()
    def watched(handle, mode='r', *args, **options):
        stream = fdopen(handle, mode, *args, **options)
        return Watched(stream) if 'w' in mode else stream
    os.fdopen = watched
"""


def start(plan: Path, out: Path, home: Path, at: int, *more: str) -> subprocess.Popen[str]:
    """A run with two workers in a process group of its own; it kills itself at its `at`-th write."""
    home.mkdir(exist_ok=True)
    (home / "writes").unlink(missing_ok=True)
    path = os.pathsep.join([str(plan.parent), os.environ.get("PYTHONPATH", "")])
    given = {**os.environ, "PYTHONPATH": path, "KILL_HOME": str(home), "KILL_AT": str(at), "OMP_NUM_THREADS": "1"}
    arguments = ["run", str(plan), "-o", str(out), "--jobs", "2", "--quiet", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "fedassay", *arguments], start_new_session=True, env=given, text=True
    )


@dataclass(frozen=True)
class Whole:
    """A run that nothing disturbed: its plan, its record, its seconds, and how many files it flushed."""

    plan: Path
    record: dict[str, Any]
    seconds: float
    writes: int


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, comparable: Comparable) -> Whole:
    folder = tmp_path_factory.mktemp("kills")
    (folder / "sitecustomize.py").write_text(HOOK)
    (folder / "plan.yaml").write_text(PLAN)
    started = time.monotonic()
    assert start(folder / "plan.yaml", folder / "whole", folder / "home", -1).wait() == 0
    seconds = time.monotonic() - started
    writes = (folder / "home" / "writes").stat().st_size
    return Whole(folder / "plan.yaml", comparable(folder / "whole"), seconds, writes)


@pytest.mark.slow
@pytest.mark.parametrize("chain", range(10))
def test_six_kills_leave_the_record_of_an_undisturbed_run(
    whole: Whole, tmp_path: Path, comparable: Comparable, chain: int
) -> None:
    killed, beyond, tries, rng = 0, 0, 0, np.random.default_rng(chain)
    while killed < KILLS // 10:
        tries += 1
        out = tmp_path / f"run{tries}"
        done = None
        while killed < KILLS // 10:
            # Most of the time is what comes before the first cell; most kills are to lie beyond.
            at = int(rng.integers(1, whole.writes)) if killed % 2 else -1
            process = start(whole.plan, out, tmp_path / "home", at, *(("--resume",) if out.exists() else ()))
            if killed % 2 == 0:
                _kill_after(process, whole.seconds * rng.uniform(0.4, 0.95))
            if (done := process.wait()) != -signal.SIGKILL:
                break
            killed += 1
            beyond += bool(list((out / ".cells").glob("*.json")))
        assert done == 0 or start(whole.plan, out, tmp_path / "home", -1, "--resume").wait() == 0
        assert comparable(out) == whole.record
        left = [path for path in out.rglob("*") if path.name.endswith((".tmp", ".scratch"))]
        assert not left
    print(f"{killed} kills, {beyond} beyond the first cell")


def _kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
