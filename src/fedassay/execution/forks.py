"""Processes forked from this one: a server that forks one for every question, and that one's reply.

A process that is killed, as by a machine that runs out of memory, says nothing of what it was asked: a question is
asked once more, and then it is an error of memory.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import warnings
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import NoReturn

NO_MEMORY = 3
"""Exit code of a process that found no memory, or could not be forked."""

_TRIES = 2
"""How often a question is asked whose process is killed."""

_OPEN: weakref.WeakSet[Connection] = weakref.WeakSet()
"""This process's ends of the connections to the servers that it forked."""


def server(serve: Callable[[Connection], NoReturn]) -> tuple[Connection, int]:
    """Fork a process that answers what it is sent.

    Args:
        serve: Called in the new process with its end of the connection; it ends that process.

    Returns:
        This process's end of the connection, and the number of the process.
    """
    here, there = Pipe()
    process = _forked()
    if not process:
        # Whoever holds a copy of another one's connection would keep it from hearing of its end.
        for connection in (here, *_OPEN):
            connection.close()
        serve(there)
    there.close()
    _OPEN.add(here)
    return here, process


def prepare() -> None:
    """Make this process, a server, ready to be forked again and again."""
    import torch

    # The threads of a parallel region do not survive a fork: with one there is no such region.
    torch.set_num_threads(1)
    # A collection writes to every object, and each page that is written to is copied for every question.
    gc.disable()
    gc.freeze()


def reply(once: Callable[[], tuple[bytes | None, int]]) -> bytes:
    """A pickled reply, asked for again where a process is killed; a pickled error where none comes.

    Args:
        once: Asks one new process: see `in_child`.
    """
    for _ in range(_TRIES):
        found, status = once()
        if found is not None:
            return found
        if not was_killed(status):
            return pickle.dumps(RuntimeError("the process of a rerun died"))
    return pickle.dumps(MemoryError("the process of a rerun was killed twice"))


def in_child(make: Callable[[], bytes]) -> tuple[bytes | None, int]:
    """What a function returns in a new process, which then ends: None where it ended before; and how it ended."""
    here, there = Pipe(duplex=False)
    process = _forked()
    if not process:
        try:
            here.close()
            there.send_bytes(make())
        finally:
            os._exit(0)
    there.close()
    found = None
    with contextlib.suppress(EOFError):
        found = here.recv_bytes()
    here.close()
    return found, os.waitpid(process, 0)[1]


def was_killed(status: int) -> bool:
    """Whether a process was killed from outside, as by a machine without memory; a crash of its own is another."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _forked() -> int:
    """Fork this process; 0 in the new one."""
    with warnings.catch_warnings():
        # Threads of this process hold no lock that the other one takes: it computes with one thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
