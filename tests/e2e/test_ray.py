"""The same plan on a Ray cluster of two workers on this machine: the same record, and after a worker is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

Comparable = Callable[[Path], dict[str, Any]]

# Every interpreter of the cluster runs this as it starts. Workers write down the cells they come to; at the cell
# `second` the first of them kills itself.
HOOK = """
import sys
if any('default_worker' in argument for argument in sys.orig_argv):
    import os, signal
    import fedassay.execution.cell as cell_work
    run = cell_work.Work.run
    def counted(self):
        with open({log!r}, 'a') as log:
            log.write(self.job.entry.label + ' ')
        if self.job.entry.label == 'second' and os.path.exists({flag!r}):
            os.remove({flag!r})
            os.kill(os.getpid(), signal.SIGKILL)
        return run(self)
    cell_work.Work.run = counted
"""


GPUS = """
import os
import ray
from fedassay.execution import engines
from fedassay.support.errors import PlanError
from fedassay.plan.resources import Resources

def seen(key):
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["OMP_NUM_THREADS"], ray.get_gpu_ids()

# A cluster may be told that it has GPUs; nothing computes on them here.
ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, logging_level="error")
print(sorted(engines.run_ray(["a", "b"], seen, 2, Resources(threads=1, gpus=0.5, memory=0.1))))
for wanted in (Resources(gpus=2), Resources(threads=3), Resources(memory=1e6)):
    try:
        list(engines.run_ray(["a"], seen, 2, wanted))
    except PlanError as error:
        print(error)
"""


def fedassay(*args: str | Path, path: Path | None = None) -> None:
    before = os.environ.get("PYTHONPATH", "")
    # Ray's workers are nice by default, and a busy machine would never come to them.
    given = {**os.environ, "PYTHONPATH": f"{path}:{before}" if path else before, "RAY_worker_niceness": "0"}
    command = [sys.executable, "-m", "fedassay", *map(str, args), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    assert done.returncode == 0, done.stderr


def test_a_worker_killed_in_the_middle_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, comparable: Comparable, three_cells: str
) -> None:
    (tmp_path / "plan.yaml").write_text(three_cells)
    flag, log, hook = tmp_path / "flag", tmp_path / "log", tmp_path / "hook"
    flag.touch()
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK.format(flag=str(flag), log=str(log)))
    fedassay("run", tmp_path / "plan.yaml", "-o", tmp_path / "here")
    fedassay("run", tmp_path / "plan.yaml", "-o", tmp_path / "ray", "--engine", "ray", "--jobs", "2", path=hook)
    assert not flag.exists()  # the worker did die
    assert sorted(log.read_text().split()) == ["fedcgs", "second", "second", "third"]
    assert comparable(tmp_path / "ray") == comparable(tmp_path / "here")


def test_cells_are_placed_by_their_gpus_threads_and_memory() -> None:
    given = {**os.environ, "RAY_worker_niceness": "0"}
    done = subprocess.run([sys.executable, "-c", GPUS], capture_output=True, text=True, check=False, env=given)
    assert done.returncode == 0, done.stderr
    placed, *refused = done.stdout.splitlines()
    assert placed == "[('a', ('0', '1', [0])), ('b', ('0', '1', [0]))]"
    assert len(refused) == 3
    assert all("which no machine of the Ray cluster has" in line for line in refused)
    assert "2 GPUs" in refused[0]
    assert "3 threads" in refused[1]
    assert "1e+06 GiB" in refused[2]


def test_cuda_without_a_share_of_a_gpu_is_one_message(tmp_path: Path, three_cells: str) -> None:
    (tmp_path / "plan.yaml").write_text(three_cells)
    command = [sys.executable, "-m", "fedassay", "run", tmp_path / "plan.yaml", "-o", tmp_path / "out"]
    done = subprocess.run(
        [*map(str, command), "--engine", "ray", "--device", "cuda"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "resources.gpus is 0" in done.stderr
    assert not (tmp_path / "out").exists()
