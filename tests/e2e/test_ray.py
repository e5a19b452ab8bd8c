"""The same plan on a Ray cluster of two workers on this machine: the same record, and after workers are killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedassay.records.record import load_record

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

Comparable = Callable[[Path], dict[str, Any]]

# Every interpreter of the cluster runs this as it starts. Workers write down the cells they come to. What `fate`
# says happens once where there is a flag, else always.
HOOK = """
import sys
if any('default_worker' in argument for argument in sys.orig_argv) or '--multiprocessing-fork' in sys.orig_argv:
    import os, psutil
    import fedassay.execution.apart as apart
    import fedassay.execution.cell as cell_work
    LOG, FLAG = {log!r}, {flag!r}
    def its_time():
        if FLAG is None:
            return True
        try:
            os.remove(FLAG)
        except FileNotFoundError:
            return False
        return True
    {fate}
    run = cell_work.Work.run
    def counted(self):
        with open(LOG, 'a') as log:
            log.write(self.job.entry.label + ' ')
        if self.job.entry.label == 'second':
            at_the_start()
        if self.job.entry.label == 'third':
            with open(LOG + '-worker', 'w') as worker:
                worker.write(str(os.getpid()))
        return run(self)
    cell_work.Work.run = counted
"""
DIES = """
    def at_the_start():
        if its_time():
            psutil.Process().kill()
"""
# Only the third cell claims anything. Whoever answers the third question about it kills the worker that asks.
DIES_LATER = """
    def at_the_start():
        pass
    answered = apart._answered
    def counted_answer(work, given, folder):
        with open(LOG + '-asked', 'a') as file:
            file.write('x')
        if os.path.getsize(LOG + '-asked') >= 3 and os.path.exists(LOG + '-worker') and its_time():
            psutil.Process(int(open(LOG + '-worker').read())).kill()
        return answered(work, given, folder)
    apart._answered = counted_answer
"""
# The daemon of the only machine of the cluster is killed: nobody is left to work.
ENDS_THE_MACHINE = """
    def at_the_start():
        if its_time():
            for process in psutil.Process().parents():
                if process.name() == 'raylet':
                    process.kill()
"""
CLAIMS = "audits=[message: {}, dp_claim: {mechanism_trials: 200, replays: 8}]"


GPUS = """
import os
import ray
from fedassay.execution.ray_cluster import run_ray
from fedassay.support.errors import PlanError
from fedassay.plan.resources import Resources

def seen(key):
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["OMP_NUM_THREADS"], ray.get_gpu_ids()

# A cluster may be told that it has GPUs; nothing computes on them here.
ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, logging_level="error")
print(sorted(run_ray(["a", "b"], seen, 2, Resources(threads=1, gpus=0.5, memory=0.1))))
for wanted in (Resources(gpus=2), Resources(threads=3), Resources(memory=1e6)):
    try:
        list(run_ray(["a"], seen, 2, wanted))
    except PlanError as error:
        print(error)
"""


def fedassay(*args: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    before = os.environ.get("PYTHONPATH", "")
    # Ray's workers are nice by default, and a busy machine would never come to them.
    given = {**os.environ, "PYTHONPATH": f"{path}:{before}" if path else before, "RAY_worker_niceness": "0"}
    command = [sys.executable, "-m", "fedassay", *map(str, args), "--quiet"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=given)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, three_cells: str) -> Path:
    path = tmp_path_factory.mktemp("ray") / "plan.yaml"
    path.write_text(three_cells)
    return path


@pytest.fixture(scope="module")
def undisturbed(plan: Path, comparable: Comparable) -> dict[str, Any]:
    """The record of the plan and its claims without Ray, which nobody disturbed."""
    done = fedassay("run", plan, "-o", plan.parent / "here", "--set", CLAIMS)
    assert done.returncode == 0, done.stderr
    return comparable(plan.parent / "here")


@dataclass(frozen=True)
class Disturbed:
    """A run by Ray of which one process was killed.

    Attributes:
        out: Its folder.
        done: How the command ended.
        worked: Names of the cells that workers came to, once for every time.
    """

    out: Path
    done: subprocess.CompletedProcess[str]
    worked: list[str]


def disturbed(plan: Path, folder: Path, fate: str, *, once: bool) -> Disturbed:
    """Run the plan by Ray on two workers, with HOOK in each interpreter of the cluster."""
    flag, log, hook = folder / "flag", folder / "log", folder / "hook"
    flag.touch()
    hook.mkdir()
    made = HOOK.format(log=str(log), flag=str(flag) if once else None, fate=fate.strip())
    (hook / "sitecustomize.py").write_text(made)
    out = folder / "out"
    done = fedassay("run", plan, "-o", out, "--set", CLAIMS, "--engine", "ray", "--jobs", "2", path=hook)
    assert flag.exists() != once  # the process did die
    return Disturbed(out, done, sorted(log.read_text().split()))


@pytest.mark.parametrize(("fate", "cell"), [(DIES, "second"), (DIES_LATER, "third")], ids=["early", "late"])
def test_a_worker_killed_once_loses_nothing_and_counts_nothing_twice(
    plan: Path, undisturbed: dict[str, Any], tmp_path: Path, comparable: Comparable, fate: str, cell: str
) -> None:
    run = disturbed(plan, tmp_path, fate, once=True)
    assert run.done.returncode == 0, run.done.stderr
    assert run.worked == sorted(["fedcgs", "second", "third", cell])
    assert comparable(run.out) == undisturbed


def test_a_cell_whose_worker_always_dies_refutes_nothing_and_is_resumed(
    plan: Path, undisturbed: dict[str, Any], tmp_path: Path, comparable: Comparable
) -> None:
    run = disturbed(plan, tmp_path, DIES, once=False)
    assert run.done.returncode == 1, run.done.stderr
    assert run.worked == ["fedcgs", "second", "second", "third"]
    record = load_record(run.out)
    (error,) = record.errors
    assert (error.stage, "second" in error.cell) == ("worker", True)
    assert "its worker process died" in error.message
    found = comparable(run.out)
    assert [found["cells"][i] for i in (0, 2)] == [undisturbed["cells"][i] for i in (0, 2)]
    assert {finding.verdict for finding in record.cells[1].findings} == {"not_run"}
    again = fedassay("run", plan, "-o", run.out, "--set", CLAIMS, "--engine", "ray", "--jobs", "2", "--resume")
    assert again.returncode == 0, again.stderr
    assert comparable(run.out) == undisturbed


def test_a_cluster_whose_last_machine_dies_is_one_line_and_the_run_goes_on_later(
    plan: Path, undisturbed: dict[str, Any], tmp_path: Path, comparable: Comparable
) -> None:
    run = disturbed(plan, tmp_path, ENDS_THE_MACHINE, once=True)
    assert run.done.returncode == 1
    # Ray's own log may stand before it.
    (line,) = [line for line in run.done.stderr.splitlines() if line.startswith("fedassay:")]
    assert line == (
        "fedassay: the Ray cluster lost the machine that had a cell, and no other has what a cell asks for; "
        "what was finished is kept, continue with --resume"
    )
    assert "Traceback" not in run.done.stderr
    assert not (run.out / "record.json").exists()
    again = fedassay("run", plan, "-o", run.out, "--set", CLAIMS, "--resume")
    assert again.returncode == 0, again.stderr
    assert comparable(run.out) == undisturbed


# The head's own process is killed: the cluster has no memory of itself.
ENDS_THE_HEAD = """
    def at_the_start():
        if its_time():
            session = os.environ['RAY_JOB_ID'] and __import__('ray').get_runtime_context().gcs_address
            for process in psutil.process_iter(['name', 'cmdline']):
                if process.info['name'] == 'gcs_server' and session.split(':')[1] in str(process.info['cmdline']):
                    process.kill()
            import time
            time.sleep(200)
"""


def test_a_cluster_whose_head_dies_is_one_line_and_the_run_goes_on_later(
    plan: Path, undisturbed: dict[str, Any], tmp_path: Path, comparable: Comparable
) -> None:
    run = disturbed(plan, tmp_path, ENDS_THE_HEAD, once=True)
    assert run.done.returncode == 1
    (line,) = run.done.stderr.splitlines()  # Ray's own lines are not there
    assert re.fullmatch(
        r"fedassay: the head of the Ray cluster at [0-9.]+:\d+ no longer answers; what was finished is kept, "
        "continue with --resume",
        line,
    )
    again = fedassay("run", plan, "-o", run.out, "--set", CLAIMS, "--resume")
    assert again.returncode == 0, again.stderr
    assert comparable(run.out) == undisturbed


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
