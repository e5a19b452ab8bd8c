"""Engines for the cells of a run: this process, worker processes, or a Ray cluster.

Every engine takes the names of the waiting cells and gives each back once, with its result. The result is None
where the worker died (killed, or out of memory) and died again when the cell was tried alone. A cell is a pure
function of the plan, so trying it again changes nothing; its result is stored whole or not at all, so one that
dies in the middle leaves nothing that counts.

`fedassay.plan.resources` decides the number of workers and the threads of each. They end with the process that
started them, however that ends. The engine of a cluster is `fedassay.execution.ray_cluster`.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from fedassay.support.progress import Progress
from fedassay.support.signals import leave_to_parent
from fedassay.support.terminal import guard_standard_error

if TYPE_CHECKING:
    from fedassay.execution.runfolder import FinishedCell

Work = Callable[[str], "FinishedCell"]
"""Runs the cell of that name; picklable."""

Done = Iterator[tuple[str, "FinishedCell | None"]]

Tell = Callable[[str], None]
"""Takes a line for the process that started the run."""


class Lines(Protocol):
    """A pipe of lines between processes: a line is in it before the result of its sender."""

    def put(self, line: str) -> None:
        """Send one line."""

    def empty(self) -> bool:
        """Whether no line waits."""
        ...

    def get(self) -> str:
        """Take one line."""
        ...


_lines: Lines | None = None
"""The queue from a worker to the process that started the worker."""

_in_ray = False
"""Whether this process works on tasks of a Ray cluster."""

_LISTENING = 0.5
"""Seconds between two looks at what workers say."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def tell_nobody(line: str) -> None:
    """A `Tell` that drops lines."""


def run_here(keys: Sequence[str], work: Work) -> Done:
    """One cell after the other, in this process."""
    for key in keys:
        yield key, work(key)


def run_local(keys: Sequence[str], work: Work, jobs: int, threads: int, tell: Tell = tell_nobody) -> Done:
    """Several cells at once, each in a worker process of `threads` that goes on to the next cell when it is done.

    Where a worker dies, all that were at work then are tried again, one by one and in a process of their own each:
    what dies again is lost, the rest goes on. `tell` takes the lines that workers say while they are at work.
    """
    waiting = list(keys)
    while waiting:
        suspects: list[str] = []
        for key, result in _pooled(waiting, work, jobs, threads, suspects, tell):
            waiting.remove(key)
            yield key, result
        for key in suspects:
            waiting.remove(key)
            again: list[str] = []
            finished = list(_pooled([key], work, 1, threads, again, tell))
            yield (key, None) if again else finished[0]


def _pooled(
    keys: Sequence[str], work: Work, jobs: int, threads: int, suspects: list[str], tell: Tell
) -> Iterator[tuple[str, FinishedCell]]:
    """Cells from one pool of workers; when one dies, the pool ends and `suspects` says what it was working on."""
    context = multiprocessing.get_context("spawn")
    needs_main = b"__main__" in pickle.dumps(work)
    left, running = list(keys), dict[Future["FinishedCell"], str]()
    with _environment(threads):
        lines = context.SimpleQueue()
        pool = ProcessPoolExecutor(
            min(jobs, len(left)), context, initializer=_start_worker, initargs=(threads, lines)
        )
        try:
            while left or running:
                # No more at once than there are workers, so that what runs when one dies is known.
                while left and len(running) < jobs:
                    with _main_hidden(needs_main):
                        running[pool.submit(work, left[0])] = left[0]
                    left.pop(0)
                finished, _ = wait(running, timeout=_LISTENING, return_when=FIRST_COMPLETED)
                _pass_on(lines, tell)
                broken = [running[future] for future in finished if _died(future)]
                for future in finished:
                    if not _died(future):
                        yield running.pop(future), future.result()
                if broken:
                    suspects += running.values()
                    return
        except BrokenProcessPool:
            # A worker died between two cells, or while it started.
            suspects += [*running.values(), *([left[0]] if left and not running else [])]
        finally:
            _pass_on(lines, tell)
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()


def _died(future: Future[FinishedCell]) -> bool:
    return isinstance(future.exception(), BrokenProcessPool)


@contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Thread limits, which libraries read when they are loaded, at a worker's start, and its first search path.

    An interpreter would look for its first modules in the current folder; then it has the path of this process.
    """
    wanted = {**dict.fromkeys(_THREAD_VARIABLES, str(threads)), "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _main_hidden(needed: bool) -> Iterator[None]:
    """New processes leave the main module alone where they need nothing of it.

    They would run it first, and a script that does not ask whether it is the main one would run as a whole again.
    """
    main = sys.modules["__main__"]
    hidden = set() if needed else {"__file__", "__spec__"} & set(vars(main))
    kept = {name: vars(main)[name] for name in hidden}
    vars(main).update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        vars(main).update(kept)


def _pass_on(lines: Lines, tell: Tell) -> None:
    """Say what workers have said so far."""
    while not lines.empty():
        tell(lines.get())


def tell_parent(line: str) -> None:
    """Say a line in the process that started this worker; nothing where this is no worker."""
    if _lines is not None:
        _lines.put(line)


TO_PARENT = Progress(tells=tell_parent)
"""Progress of a worker: steps report nowhere, lines go to the process that started the worker."""


def _start_worker(threads: int, lines: Lines) -> None:
    global _lines  # noqa: PLW0603  (a worker has one parent)
    _lines = lines
    leave_to_parent()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    guard_standard_error()
    import torch

    torch.set_num_threads(threads)


def _end_with_parent() -> None:
    """An orphan would go on writing into a folder that the next run may take."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def give_up() -> None:
    """End this process where it is a worker: its state is broken, and its cell is tried in another one."""
    if _lines is not None or _in_ray:
        os._exit(1)


def work_in_ray(work: Work, key: str, variables: dict[str, str]) -> FinishedCell:
    """One task of the cluster; another machine of it does not know our environment."""
    global _in_ray  # noqa: PLW0603  (a worker of the cluster remains one)
    _in_ray = True
    os.environ.update(variables)
    return work(key)
