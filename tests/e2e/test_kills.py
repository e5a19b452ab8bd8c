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
from pathlib import Path
from typing import Any

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


@pytest.mark.slow
def test_sixty_kills_leave_the_record_of_an_undisturbed_run(tmp_path: Path, comparable: Comparable) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    started = time.monotonic()
    assert start(plan, tmp_path / "whole", tmp_path / "home", -1).wait() == 0
    seconds = time.monotonic() - started
    expected = comparable(tmp_path / "whole")
    writes = (tmp_path / "home" / "writes").stat().st_size
    killed, beyond, number = 0, 0, 0
    while killed < KILLS:
        number += 1
        out, home = tmp_path / f"run{number}", tmp_path / "home"
        # From the last quarter back to the start: a run is killed up to six times, then goes on to its end.
        for nth in range(6):
            at = 1 + (number * 7 + nth * 11) % max(1, writes - 2)
            process = start(plan, out, home, at if nth % 2 else -1, *(("--resume",) if out.exists() else ()))
            if nth % 2 == 0:
                _kill_after(process, seconds * (0.35 + 0.6 * ((number * 5 + nth * 3) % 17) / 17))
            if process.wait() != -signal.SIGKILL:
                break
            killed += 1
            beyond += bool(list((out / ".cells").glob("*.json")))
        assert start(plan, out, home, -1, "--resume").wait() == 0
        assert comparable(out) == expected, f"run {number}"
        assert not [path for path in out.rglob("*") if path.name.endswith((".tmp", ".scratch"))]
    print(
        f"{killed} kills in {number} runs, {beyond} beyond the first cell; {writes} writes, {seconds:.0f} s a run"
    )
    assert beyond > killed / 2


def _kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
