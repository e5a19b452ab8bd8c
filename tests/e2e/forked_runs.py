"""Forks runs whose writes are counted, from a process that has imported everything: start-up writes nothing.

Each line of standard input is a run: arguments, the file that counts its writes, and the write that kills it. Each
answer is two lines: the process group of the run, at once, and its exit code, at its end. Workers are forked too.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


class Watched:
    """A stream that does something before every flush: its bytes are on their way, its file is not there yet."""

    def __init__(self, stream: Any, before: Callable[[], None]) -> None:
        self._stream, self._before = stream, before

    def __enter__(self) -> Any:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._stream.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        """Do it, and flush."""
        self._before()
        self._stream.flush()


def before_writes(before: Callable[[], None]) -> None:
    """Do something before every flush of a file that this process, or one that it forks, writes."""
    fdopen = os.fdopen

    def watched(handle: int, mode: str = "r", *args: Any, **options: Any) -> Any:
        stream = fdopen(handle, mode, *args, **options)
        return Watched(stream, before) if "w" in mode else stream

    os.fdopen = watched  # type: ignore[assignment]


def count_writes(counter: str, at: int) -> None:
    """Count the writes of all processes of a run together, in a file's length; at one of them, all are killed."""

    def count() -> None:
        handle = os.open(counter, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(handle, b".")
        number = os.fstat(handle).st_size
        os.close(handle)
        if number == at:
            os.killpg(0, signal.SIGKILL)

    before_writes(count)


def main() -> None:
    """Fork a run for each line, one after the other."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from warmed import warm

    warm()
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            _run(asked)
            return
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(asked: dict[str, Any]) -> None:
    from fedassay.cli import main as command

    # Spawned workers do not inherit what the command line does on signals; forked ones would.
    for number in (signal.SIGTERM, signal.SIGHUP):
        os.register_at_fork(after_in_child=partial(signal.signal, number, signal.SIG_DFL))
    context = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: context("fork")  # type: ignore[assignment, misc]
    count_writes(asked["counter"], asked["at"])
    sys.argv = ["fedassay", *asked["args"]]
    command()


if __name__ == "__main__":
    main()
