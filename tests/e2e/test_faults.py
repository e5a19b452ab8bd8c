"""What interrupts a run: a worker that dies, a full disk, no memory, signals; kill -9 has `test_kills.py`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked
import pytest

from fedassay.records.record import load_record

pytestmark = pytest.mark.long

Comparable = Callable[[Path], dict[str, Any]]

# Runs the command line in an interpreter of its own; HOOK breaks it at a chosen place.
RUN = "import sys\n{hook}\nfrom fedassay.cli import main\nsys.argv = ['fedassay', *{args!r}]\nmain()"


def fedassay(*args: str | Path, hook: str = "") -> subprocess.CompletedProcess[str]:
    """The command line; with workers, which are spawned, in an interpreter of its own."""
    return started(*args, hook=hook) if "--jobs" in args else forked.fedassay(*args, hook=hook)


def started(
    *args: str | Path, hook: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    code = RUN.format(hook=hook, args=[str(arg) for arg in args])
    given = {**os.environ, **(environment or {})}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=given)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, three_cells: str) -> Path:
    path = tmp_path_factory.mktemp("faults") / "plan.yaml"
    path.write_text(three_cells)
    return path


@pytest.fixture(scope="module")
def unbroken(plan: Path, comparable: Comparable) -> dict[str, Any]:
    """The record of a run that nothing interrupts."""
    out = plan.parent / "unbroken"
    done = started("run", plan, "-o", out)
    assert done.returncode == 0, done.stderr
    return comparable(out)


def test_a_full_disk_is_one_message_and_the_run_goes_on_later(
    plan: Path, unbroken: dict[str, Any], tmp_path: Path, comparable: Comparable
) -> None:
    # The writes of the second cell's transcript.
    hook = f"""
import errno, itertools, os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from forked_runs import before_writes
writes = itertools.count(1)
def full():
    if next(writes) == 10:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
before_writes(full)
"""
    done = fedassay("run", plan, "-o", tmp_path / "out", hook=hook)
    assert done.returncode == 1
    report, line = done.stderr.strip().splitlines()
    assert report.startswith("Report without 2 of 3 cells: ")
    assert "No space left on device" in line
    assert str(tmp_path / "out") in line  # which file it was
    lacks = json.loads((tmp_path / "out" / "record.json").read_text(encoding="utf-8"))["unfinished"]
    assert len(lacks["cells"]) == 2
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name.endswith(".tmp")]
    assert len(list((tmp_path / "out" / ".cells").glob("*.json"))) == 1
    assert fedassay("run", plan, "-o", tmp_path / "out", "--resume").returncode == 0
    assert comparable(tmp_path / "out") == unbroken


def workers(plan: Path, out: Path, hook: str, *args: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """A run with two workers, each of which runs HOOK as it starts."""
    folder = out.parent / f"{out.name}-hook"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(hook)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = started("run", plan, "-o", out, "--jobs", "2", *args, environment={"PYTHONPATH": path})
    assert done.returncode == expected, done.stderr
    return done


def _dying(flag: Path | None) -> str:
    """In a worker, the cell `second` kills its process: once where `flag` is there, else always."""
    once = "True" if flag is None else f"os.path.exists({str(flag)!r}) and (os.remove({str(flag)!r}) or True)"
    return f"""
import multiprocessing, os, signal
if multiprocessing.parent_process() is not None or '--multiprocessing-fork' in __import__('sys').orig_argv:
    import fedassay.execution.cell as cell_work
    run = cell_work.Work.run
    def dying(self):
        if 'second' in self.job.entry.label and {once}:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(self)
    cell_work.Work.run = dying
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_once_costs_nothing(
    plan: Path, unbroken: dict[str, Any], tmp_path: Path, comparable: Comparable
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    workers(plan, tmp_path / "out", _dying(flag))
    assert not flag.exists()  # it did die
    assert comparable(tmp_path / "out") == unbroken


@pytest.mark.slow
def test_a_cell_whose_worker_always_dies_says_so_and_the_others_are_there(
    plan: Path, unbroken: dict[str, Any], tmp_path: Path, comparable: Comparable
) -> None:
    workers(plan, tmp_path / "out", _dying(None), expected=1)
    record = load_record(tmp_path / "out")
    (error,) = record.errors
    assert (error.stage, "second" in error.cell) == ("worker", True)
    assert "out of memory" in error.message
    found = comparable(tmp_path / "out")
    assert [found["cells"][i] for i in (0, 2)] == [unbroken["cells"][i] for i in (0, 2)]
    assert {finding.verdict for finding in record.cells[1].findings} == {"not_run"}
    # The lost cell is tried again, for it may have been the machine.
    assert fedassay("run", plan, "-o", tmp_path / "out", "--resume").returncode == 0
    assert comparable(tmp_path / "out") == unbroken


CLAIMS = "audits=[message: {}, dp_claim: {mechanism_trials: 200, replays: 8}]"


@pytest.fixture(scope="module")
def claimed(plan: Path, comparable: Comparable) -> dict[str, Any]:
    """The record of an undisturbed run whose claims are asked about, in processes that are forked for that."""
    out = plan.parent / "claimed"
    workers(plan, out, "", "--set", CLAIMS)
    return comparable(out)


def _killed_beneath(flags: Path, which: str) -> str:
    """In a worker, the process of the third question of a cell is killed, or the one that forks such processes."""
    return f"""
import multiprocessing, os, signal
if '--multiprocessing-fork' in __import__('sys').orig_argv:
    import fedassay.execution.apart as apart
    answered, count = apart._answered, []
    def counted(work, given):
        # Each question is a process: they count in a file.
        with open({str(flags)!r}, 'a') as file:
            file.write('x')
        if os.path.getsize({str(flags)!r}) == 3:
            os.kill({"os.getppid()" if which == "server" else "os.getpid()"}, signal.SIGKILL)
        return answered(work, given)
    apart._answered = counted
"""


@pytest.mark.slow
@pytest.mark.parametrize("which", ["question", "server"])
def test_a_forked_child_that_is_killed_changes_no_answer(
    plan: Path, claimed: dict[str, Any], tmp_path: Path, comparable: Comparable, which: str
) -> None:
    hook = _killed_beneath(tmp_path / "asked", which)
    workers(plan, tmp_path / "out", hook, "--set", CLAIMS)
    assert (tmp_path / "asked").stat().st_size > 3  # it was killed, and others were asked after it
    assert comparable(tmp_path / "out") == claimed


@pytest.mark.slow
def test_ctrl_c_with_workers_reports_what_is_done_and_is_resumable(
    plan: Path, unbroken: dict[str, Any], tmp_path: Path, comparable: Comparable
) -> None:
    hook = """
from fedassay.execution import engines
seen, wait = [], engines.wait
def interrupted(*args, **options):
    if seen:
        raise KeyboardInterrupt
    found = wait(*args, **options)
    seen.extend(found.done)  # nothing is done at most of the looks
    return found
engines.wait = interrupted
"""
    done = fedassay("run", plan, "-o", tmp_path / "out", "--jobs", "2", hook=hook)
    assert done.returncode == 130
    report, _, line = done.stderr.strip().splitlines()  # a terminal shows ^C before the last one
    assert report.startswith("Report without ")
    assert "--resume" in line
    assert json.loads((tmp_path / "out" / "record.json").read_text(encoding="utf-8"))["unfinished"]["cells"]
    assert list((tmp_path / "out" / ".cells").glob("*.json"))
    assert fedassay("run", plan, "-o", tmp_path / "out", "--resume", "--jobs", "2").returncode == 0
    assert comparable(tmp_path / "out") == unbroken


def _stopped(
    plan: Path, out: Path, number: signal.Signals, *args: str, hook: str = ""
) -> subprocess.CompletedProcess[str]:
    """A run that gets a signal when its first cell is finished, as batch systems and closed terminals send it."""
    # What is ignored where the tests run (nohup) would stay ignored.
    heard = f"import signal\nsignal.signal({int(number)}, signal.SIG_DFL)\n"
    hook = f"""{heard}{hook}
import os, signal
from fedassay.execution import runfolder
keep = runfolder.keep
def signalled(*arguments):
    keep(*arguments)
    os.kill({"os.getppid()" if "--jobs" in args else "os.getpid()"}, {int(number)})
runfolder.keep = signalled
"""
    if "--jobs" in args:
        return workers(plan, out, hook, expected=128 + number)
    return fedassay("run", plan, "-o", out, *args, hook=hook)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_one_line_and_the_run_goes_on_later(
    plan: Path, unbroken: dict[str, Any], tmp_path: Path, comparable: Comparable, number: signal.Signals
) -> None:
    done = _stopped(plan, tmp_path / "out", number)
    assert done.returncode == 128 + number
    (line,) = done.stderr.strip().splitlines()
    assert f"stopped by {number.name}; what was finished is kept, continue with --resume" in line
    assert len(list((tmp_path / "out" / ".cells").glob("*.json"))) == 1
    assert fedassay("run", plan, "-o", tmp_path / "out", "--resume").returncode == 0
    assert comparable(tmp_path / "out") == unbroken


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_with_workers(
    plan: Path, unbroken: dict[str, Any], tmp_path: Path, comparable: Comparable, number: signal.Signals
) -> None:
    done = _stopped(plan, tmp_path / "out", number, "--jobs")
    (line,) = done.stderr.strip().splitlines()
    assert f"stopped by {number.name}" in line
    assert fedassay("run", plan, "-o", tmp_path / "out", "--resume").returncode == 0
    assert comparable(tmp_path / "out") == unbroken


def test_a_hang_up_that_nohup_ignores_is_ignored(plan: Path, tmp_path: Path) -> None:
    hook = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    done = _stopped(plan, tmp_path / "out", signal.SIGHUP, hook=hook)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "record.json").exists()


def test_a_stopped_redacted_run_leaves_nothing_private(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    hook = f"import os; os.environ['TMPDIR'] = {str(tmp_path / 'tmp')!r}\n"
    hook += (
        "import os, signal\nfrom fedassay.execution import runfolder\n"
        "runfolder.keep = lambda *arguments: os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = fedassay("run", plan, "-o", tmp_path / "out", "--redact", hook=hook)
    assert done.returncode == 128 + signal.SIGTERM
    assert "nothing private is kept; a run with --redact starts again" in done.stderr
    assert not list((tmp_path / "tmp").iterdir())
    assert not list((tmp_path / "out").rglob("*.safetensors"))


_NO_MEMORY = {
    "numpy": "import numpy; numpy.zeros(1 << 60, dtype=numpy.uint8)",
    "torch": "import torch; torch.zeros(1 << 60, dtype=torch.uint8)",
}


@pytest.mark.parametrize("library", sorted(_NO_MEMORY))
def test_a_cell_that_memory_does_not_suffice_for_says_so_and_is_tried_again(
    plan: Path, unbroken: dict[str, Any], tmp_path: Path, comparable: Comparable, library: str
) -> None:
    hook = f"""
import fedassay.execution.cell as cell_work
attack = cell_work.Work._attack
def greedy(self, *given):
    if 'second' in self.job.entry.label:
        with self.stages('greedy'):
            {_NO_MEMORY[library]}
    return attack(self, *given)
cell_work.Work._attack = greedy
"""
    done = fedassay("run", plan, "-o", tmp_path / "out", hook=hook)
    assert done.returncode == 1
    record = load_record(tmp_path / "out")
    (error,) = record.errors
    assert error.message.startswith("out of memory; --resume tries the cell again")
    assert len(record.cells) == 3
    assert fedassay("run", plan, "-o", tmp_path / "out", "--resume").returncode == 0
    assert comparable(tmp_path / "out") == unbroken


@pytest.mark.parametrize("library", sorted(_NO_MEMORY))
def test_no_memory_before_the_first_cell_is_one_message(plan: Path, tmp_path: Path, library: str) -> None:
    hook = f"""
from fedassay.execution import runner
def greedy(*arguments):
    {_NO_MEMORY[library]}
runner.prepare = greedy
"""
    done = fedassay("run", plan, "-o", tmp_path / "out", hook=hook)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "out of memory" in line


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a file system of its own; skips where this process may not."""
    mounted = []

    def mount(options: str) -> Path:
        folder = tmp_path / "disk"
        folder.mkdir(exist_ok=True)
        arguments = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if mounted:
            arguments = ["mount", "-o", f"remount,{options}", str(folder)]
        if subprocess.run(arguments, capture_output=True, check=False).returncode:
            pytest.skip("file systems cannot be mounted here")
        mounted.append(folder)
        return folder

    yield mount
    if mounted:
        subprocess.run(["umount", "-l", str(mounted[0])], check=False)


@pytest.mark.slow
@pytest.mark.parametrize("kib", [4, 40, 80, 120, 160, 200])
def test_a_disk_that_is_really_full(
    plan: Path,
    unbroken: dict[str, Any],
    tmp_path: Path,
    comparable: Comparable,
    small_disk: Callable[..., Path],
    kib: int,
) -> None:
    out = small_disk(f"size={kib}k") / "out"
    done = fedassay("run", plan, "-o", out)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "No space left on device" in line
    assert not list(out.rglob("*.tmp"))
    small_disk("size=64m")
    again = "--resume" if (out / ".cells" / "plan.sha256").exists() else "--force"
    done = fedassay("run", plan, "-o", out, again)
    assert done.returncode == 0, done.stderr
    assert comparable(out) == unbroken


def test_a_read_only_disk(plan: Path, tmp_path: Path, small_disk: Callable[..., Path]) -> None:
    small_disk("size=1m")
    out = small_disk("ro") / "out"
    done = fedassay("run", plan, "-o", out)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "Read-only file system" in line
    assert str(out) in line
