"""Cells as tasks of a Ray cluster: the one that RAY_ADDRESS names, or one on this machine.

Ray waits for what does not answer, some of it for ever and without a word, and ends a process where its head is
gone for a minute. So the address is looked at first, and the head while cells run; both end with one sentence.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedassay.execution.engines import Done, Work, work_in_ray
from fedassay.plan.resources import Resources
from fedassay.support.errors import PlanError

_TRIES = 2
_LOOK = 5.0
"""Seconds between two looks at the head, and that one look may take."""
_GONE = 40.0
"""Seconds after which a head that does not answer is gone; from 60 on Ray would end this process."""
_CONNECT, _STATUS = 10.0, 60.0
"""Seconds that the address of a cluster has to answer, and its head to say that it is one."""


def run_ray(keys: Sequence[str], work: Work, jobs: int, needs: Resources, *, quiet: bool = False) -> Done:
    """Cells as tasks of a Ray cluster: the one that RAY_ADDRESS names, else one of `jobs` workers on this machine.

    The run folder must be on a disk that every machine of the cluster sees at the same path. If a task's worker or
    machine dies, it is started again by us, not by Ray, so that every result is taken exactly once.

    Args:
        keys: Names of the cells.
        work: Runs one.
        jobs: Workers on this machine, where no cluster is named.
        needs: Resources of a cell.
        quiet: Whether Ray's own output is dropped.

    Raises:
        PlanError: ray is not installed, nothing answers at RAY_ADDRESS, or no machine of the cluster has what a
            cell needs.
        ConnectionError: The head died; or a machine did, and no remaining one has the resources.
    """
    try:
        import ray
    except ImportError:
        raise PlanError(
            "--engine ray: ray is not installed; install fedassay[ray], or use --engine local"
        ) from None
    threads = needs.threads_of(jobs)
    ours, head = not ray.is_initialized(), None
    if ours:
        address = os.environ.get("RAY_ADDRESS")
        local = {} if address else {"num_cpus": jobs * threads, "include_dashboard": False}
        _must_answer(address or "local")
        ray.init(address=address or "local", logging_level="error", log_to_driver=False, **local)
    with _silent(quiet):
        try:
            head = _Head(ray.get_runtime_context().gcs_address)
            yield from _tasks(keys, work, head, threads, needs)
        finally:
            # Without a head this waits for it, and Ray ends the process.
            if ours and (head is None or head.answers()):
                ray.shutdown()


def _tasks(keys: Sequence[str], work: Work, head: _Head, threads: int, needs: Resources) -> Done:
    """The cells, on a cluster that this process has joined."""
    import ray

    memory = None if needs.memory is None else int(needs.memory * (1 << 30))
    needed = {"CPU": threads, "GPU": needs.gpus, "memory": memory or 0}
    _must_fit(ray.nodes(), needed)
    # Ray sets OMP_NUM_THREADS of a worker to the cores that its task asks for, and shows it its own GPUs only.
    placed = ray.remote(num_cpus=threads, num_gpus=needs.gpus, memory=memory, max_retries=0)
    task = placed(work_in_ray)
    carried = _carried()
    shared = ray.put(work)
    gone = (ray.exceptions.NodeDiedError, ray.exceptions.LocalRayletDiedError)
    died = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, *gone)
    tries = dict.fromkeys(keys, 1)
    running = {task.remote(shared, key, carried): key for key in keys}
    while running:
        finished, _ = ray.wait(list(running), num_returns=1, timeout=_LOOK)
        if not finished:
            head.must_answer()
            continue
        key = running.pop(finished[0])
        try:
            yield key, ray.get(finished[0])
        except died as error:
            head.must_answer()
            if isinstance(error, gone) and not _fits(ray.nodes(), needed):
                raise ConnectionError(
                    "the Ray cluster lost the machine that had a cell, and no other has what a cell asks for"
                ) from None
            if tries[key] == _TRIES:
                yield key, None
                continue
            tries[key] += 1
            running[task.remote(shared, key, carried)] = key
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None


class _Head:
    """The head of a cluster, which is looked at while cells run.

    Args:
        address: host:port of its control store.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._silent_since: float | None = None

    def answers(self) -> bool:
        """Whether something takes a connection there now."""
        return _refusal(self._address, _LOOK) is None

    def must_answer(self) -> None:
        """Look at it.

        Raises:
            ConnectionError: It has not answered for `_GONE` seconds.
        """
        if self.answers():
            self._silent_since = None
            return
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        if now - self._silent_since >= _GONE:
            raise ConnectionError(f"the head of the Ray cluster at {self._address} no longer answers")


def _must_answer(address: str) -> None:
    """Look at a cluster before Ray does, which would wait for it.

    Raises:
        PlanError: No head of a cluster answers there.
    """
    if address == "local":
        return
    why = None if address == "auto" else _refusal(address.removeprefix("ray://"), _CONNECT)
    if why is None and not address.startswith("ray://"):
        why = _no_head(address)
    if why is not None:
        raise PlanError(
            f"RAY_ADDRESS={address}: no head of a Ray cluster answers there ({why}); allowed: host:port of one "
            "that runs, or no RAY_ADDRESS for workers on this machine"
        )


def _refusal(address: str, seconds: float) -> str | None:
    """Return the reason why no connection is taken at host:port; None where one is."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except (OSError, ValueError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    return None


def _no_head(address: str) -> str | None:
    """Return the reason why the address is no Ray head; None where it is one. A process asks, with a deadline."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_STATUS, check=False)
    except subprocess.TimeoutExpired:
        return f"whatever is there says nothing within {_STATUS:g} s"
    if "AuthenticationError" in done.stderr:
        return "it answers nothing without a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN"
    return None if done.returncode == 0 else "whatever is there is no head"


@contextmanager
def _silent(quiet: bool) -> Iterator[None]:
    """Drop what this process prints meanwhile, threads and libraries in C++ included."""
    if not quiet:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, before in enumerate(kept, 1):
            os.dup2(before, stream)
        for handle in (*kept, nowhere):
            os.close(handle)


def _fits(nodes: Sequence[dict[str, Any]], needed: dict[str, float]) -> bool:
    """Whether a machine that is alive has what a cell needs."""
    there = [node["Resources"] for node in nodes if node["Alive"]]
    return any(all(has.get(name, 0) >= value for name, value in needed.items()) for has in there)


def _must_fit(nodes: Sequence[dict[str, Any]], needed: dict[str, float]) -> None:
    """Refuse a cell that no machine can take: Ray would wait for one forever."""
    if _fits(nodes, needed):
        return
    there = [node["Resources"] for node in nodes if node["Alive"]]
    largest = {name: max((has.get(name, 0) for has in there), default=0) for name in needed}
    raise PlanError(
        f"resources: a cell asks for {_in_words(needed)}, which no machine of the Ray cluster has "
        f"({len(there)} machine(s), at most {_in_words(largest)})"
    )


def _in_words(amounts: dict[str, float]) -> str:
    return (
        f"{amounts['CPU']:g} threads, {amounts['GPU']:g} GPUs, {amounts['memory'] / (1 << 30):.3g} GiB of memory"
    )


def _carried() -> dict[str, str]:
    """Environment that a worker needs, to find files."""
    return {name: value for name, value in os.environ.items() if name.startswith("FEDASSAY_")}
