"""Processes forked from this one: a server that forks one for every question, and that one's reply.

A process that is killed, as by a machine that runs out of memory, says nothing of what it was asked: a question is
asked once more, and then it is an error of memory.

A fork copies one entry for every page of memory that was written, and ends with giving them back: with torch
imported that is far more than most questions take. `gather` makes one page of 512 where Linux can do so.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import pickle
import signal
import warnings
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NoReturn

NO_MEMORY = 3
"""Exit code of a process that found no memory, or could not be forked."""

_TRIES = 2
"""Number of attempts at a question, where its process is killed."""

_HUGE_PAGE = 2 << 20
"""Bytes of a huge page, and what it is aligned to."""

_COLLAPSE = 25
"""Advice that makes a huge page of small ones at once, `MADV_COLLAPSE` of Linux 6.1; older ones refuse it."""

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""File with Linux's setting for huge pages, as the administrator chose it."""

_OPEN: weakref.WeakSet[Connection] = weakref.WeakSet()
"""This process's ends of the connections to the servers that it forked."""


def server(serve: Callable[[Connection], NoReturn]) -> tuple[Connection, int]:
    """Fork a process that answers what it is sent.

    Args:
        serve: Called in the new process with its end of the connection; it ends that process.

    Returns:
        This process's end of the connection, and the number of the process.
    """
    # A page that is huge here is shared with that process; one that it gathers by itself would be copied.
    gather()
    here, there = Pipe()
    process = _forked()
    if not process:
        try:
            # A process with a copy of another one's connection would keep that from seeing its end.
            for connection in (here, *_OPEN):
                connection.close()
            serve(there)
        finally:
            # A signal that is handled by an exception must not let the copy go on with its parent's work.
            os._exit(1)
    there.close()
    _OPEN.add(here)
    return here, process


def prepare() -> None:
    """Make this process, a server, ready to be forked again and again."""
    # A collection writes to every object, and each page that is written to is copied for every question.
    gc.disable()
    import torch

    # The threads of a parallel region do not survive a fork: with one there is no such region.
    torch.set_num_threads(1)
    gc.freeze()


def gather() -> None:
    """Put this process's own memory into huge pages, so that forks from it, and from those, cost about a third.

    The content of memory stays as it is, and only the filling of pages takes more of it. It takes as long as some
    ten forks. Later imports lie in small pages again. Nothing happens where the system has no such pages, or is
    set to make none.
    """
    try:
        if "[never]" in _SETTING.read_text(encoding="utf-8"):
            return
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in lines:
        addresses, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(address, 16) for address in addresses.split("-"))
        for place in range(-(-start // _HUGE_PAGE) * _HUGE_PAGE, end - _HUGE_PAGE + 1, _HUGE_PAGE):
            # Parts that nothing was written to are refused, too; no memory for one means none for the others.
            if advise(place, _HUGE_PAGE, _COLLAPSE) and ctypes.get_errno() == errno.ENOMEM:
                return


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
    """Return the result of a function in a new process, None where that ended before; and its exit status."""
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
        process = os.fork()
    if not process:
        # Imported here: who looks after copies of the package loads this file alone.
        from fedassay.support.numerics import leave_threads

        leave_threads()
    return process
