"""kill -9 everywhere: 60 of them, spread over runs of four cells with two workers, whose record stays the same.

Every second kill is at a write (every process of the run counts the files that it flushes, together), the others
are at instants. Most lie beyond the first cell. A killed run is resumed and killed again, further on each time.
Runs are forked from a process that has imported everything (`forked_runs.py`), so that most of a run's time is
work; in one chain they are started as anybody starts them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

Comparable = Callable[[Path], dict[str, Any]]

FOUR_CELLS = """
methods:
  - fedcgs: {}
  - fedavg: {rounds: 3}
  - fedpft: {label: third, components: 1, covariance: diag}
  - fedcgs: {label: fourth, epsilon: 5}
attacks: [label_distribution: {}, message_algebra: {}]
"""
KILLS = 60
CHAINS = 10
STARTED = CHAINS - 1
"""The chain whose runs are started, not forked; their workers are spawned."""

STARTING = """
import os, sys
if "KILL_COUNTER" in os.environ:
    sys.path.insert(0, os.environ["KILL_SCRIPTS"])
    from forked_runs import count_writes
    count_writes(os.environ["KILL_COUNTER"], int(os.environ["KILL_AT"]))
"""
"""The `sitecustomize` of a started run and of its workers."""


@dataclass
class Runs:
    """Starts runs with two workers, one at a time, each in a process group of its own.

    Attributes:
        folder: Holds the plan, the cache and the count of writes.
        forked: Whether they are forked.
    """

    folder: Path
    forked: bool = True
    _parent: subprocess.Popen[str] | None = field(default=None, init=False)

    @property
    def counter(self) -> Path:
        """As many bytes as files were flushed."""
        return self.folder / "writes"

    def run(self, out: Path, at: int = -1, after: float | None = None) -> int:
        """Run the plan, and kill it at its `at`-th write, or after so many seconds; the exit code."""
        self.counter.unlink(missing_ok=True)
        args = ["run", str(self.folder / "plan.yaml"), "-o", str(out), "--jobs", "2", "--quiet"]
        args += ["--resume"] if out.exists() else []
        return self._fork(args, at, after) if self.forked else self._start(args, at, after)

    def _fork(self, args: list[str], at: int, after: float | None) -> int:
        if self._parent is None:
            script = Path(__file__).with_name("forked_runs.py")
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "FEDASSAY_CACHE": str(self.folder / "cache")}
            self._parent = subprocess.Popen(
                [sys.executable, str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                env=environment,
            )
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        print(json.dumps({"args": args, "at": at, "counter": str(self.counter)}), file=self._parent.stdin)
        group = int(self._parent.stdout.readline())
        if after is not None and not select.select([self._parent.stdout], [], [], after)[0]:
            os.killpg(group, signal.SIGKILL)
        return int(self._parent.stdout.readline())

    def _start(self, args: list[str], at: int, after: float | None) -> int:
        (self.folder / "sitecustomize.py").write_text(STARTING)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
            "FEDASSAY_CACHE": str(self.folder / "cache"),
            "KILL_SCRIPTS": str(Path(__file__).parent),
            "KILL_COUNTER": str(self.counter),
            "KILL_AT": str(at),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "fedassay", *args], start_new_session=True, env=environment
        )
        try:
            return process.wait(after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()

    def close(self) -> None:
        """End the process that forks."""
        if self._parent is not None and self._parent.stdin is not None:
            self._parent.stdin.close()
            self._parent.wait()


@dataclass(frozen=True)
class Whole:
    """A run that nothing disturbed: its record, its seconds, and how many files it flushed."""

    record: dict[str, Any]
    seconds: float
    writes: int


@pytest.fixture(scope="module", params=[True, False], ids=["forked", "started"])
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, three_cells: str
) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("kills")
    plan = yaml.safe_load(three_cells) | yaml.safe_load(FOUR_CELLS)
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    made = Runs(folder, request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole(runs: Runs, comparable: Comparable) -> Whole:
    assert runs.run(runs.folder / "first") == 0  # what is read only once is read
    started = time.monotonic()
    assert runs.run(runs.folder / "whole") == 0
    seconds = time.monotonic() - started
    return Whole(comparable(runs.folder / "whole"), seconds, runs.counter.stat().st_size)


@pytest.mark.slow
@pytest.mark.parametrize("chain", range(CHAINS))
def test_six_kills_leave_the_record_of_an_undisturbed_run(
    runs: Runs, whole: Whole, tmp_path: Path, comparable: Comparable, chain: int
) -> None:
    if runs.forked == (chain == STARTED):
        pytest.skip("runs of this chain are started the other way")
    killed, beyond, tries, rng = 0, 0, 0, np.random.default_rng(chain)
    while killed < KILLS // CHAINS:
        tries += 1
        out, code = tmp_path / f"run{tries}", -signal.SIGKILL
        while killed < KILLS // CHAINS and code == -signal.SIGKILL:
            if killed % 2:
                code = runs.run(out, at=int(rng.integers(1, whole.writes)))
            else:
                # What comes before the first cell takes a while; most kills are to lie beyond it.
                code = runs.run(out, after=whole.seconds * rng.uniform(0.3, 0.95))
            killed += code == -signal.SIGKILL
            beyond += code == -signal.SIGKILL and bool(list((out / ".cells").glob("*.json")))
        assert code in {0, -signal.SIGKILL}
        assert code == 0 or runs.run(out) == 0
        assert comparable(out) == whole.record
        assert not [path for path in out.rglob("*") if path.name.endswith((".tmp", ".scratch"))]
    print(f"{killed} kills, {beyond} beyond the first cell")
