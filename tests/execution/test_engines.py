"""How cells are spread over workers; what happens when one dies is in tests/e2e/test_faults.py."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from fedassay.execution import engines, ray_cluster
from fedassay.plan.resources import Resources
from fedassay.support.errors import PlanError


def _threads_seen(key: str) -> tuple[str, str | None, int]:
    import torch

    return key, os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()


def test_workers_are_started_with_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = dict(engines.run_local(["a", "b", "c"], _threads_seen, 2, 1))  # type: ignore[arg-type]
    assert found == {key: (key, "1", 1) for key in "abc"}
    assert "OMP_NUM_THREADS" not in os.environ


def _fails(key: str) -> str:
    raise PlanError(f"{key}: no")


@pytest.mark.long
def test_what_a_worker_raises_is_raised_here() -> None:
    """Whichever cell fails first."""
    with pytest.raises(PlanError, match=r"^[ab]: no$"):
        list(engines.run_local(["a", "b"], _fails, 2, 1))  # type: ignore[arg-type]


def _listening() -> socket.socket:
    taken = socket.create_server(("127.0.0.1", 0))
    taken.settimeout(30)
    return taken


def _address(taken: socket.socket) -> str:
    return f"127.0.0.1:{taken.getsockname()[1]}"


def test_an_address_where_nothing_answers_is_refused_at_once() -> None:
    with _listening() as taken:
        port = taken.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "nowhere.invalid:6379", "head", "head:port"):
        with pytest.raises(
            PlanError, match=rf"^RAY_ADDRESS={address}: no head .*; allowed: host:port of one that"
        ):
            ray_cluster._must_answer(address)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import time; time.sleep(60)", "whatever is there says nothing"),
        ("raise SystemExit(1)", "whatever is there is no head"),
        ("class AuthenticationError(Exception): pass\nraise AuthenticationError", "set RAY_AUTH_MODE=token"),
    ],
)
def test_what_answers_and_is_no_head_is_refused(script: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run
    monkeypatch.setattr(ray_cluster, "_STATUS", 0.5)
    monkeypatch.setattr(subprocess, "run", lambda command, **given: run([command[0], "-c", script], **given))
    with _listening() as taken, pytest.raises(PlanError, match=why):
        ray_cluster._must_answer(_address(taken))


def test_a_head_that_no_longer_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with _listening() as taken:
        address = _address(taken)
        head = ray_cluster._Head(address)
        head.must_answer()
    head.must_answer()  # it has 40 seconds
    monkeypatch.setattr(ray_cluster, "_GONE", 0.0)
    with pytest.raises(ConnectionError, match=f"the head of the Ray cluster at {address} no longer answers"):
        head.must_answer()


def test_libraries_are_silent_where_nothing_is_to_be_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        with ray_cluster._silent(quiet):
            os.write(1, f"library {quiet}".encode())
            os.write(2, f"library {quiet}".encode())
        os.write(2, b"after ")
    assert capfd.readouterr() == ("library False", "after library Falseafter ")


class _Ray(ModuleType):
    """What `run_ray` asks of Ray, of a cluster whose head goes away and whose tasks never end."""

    def __init__(self, head: str) -> None:
        super().__init__("ray")
        self.shut = False
        died = {name: type(name, (Exception,), {}) for name in _RAY_ERRORS}
        self.exceptions = SimpleNamespace(**died)
        self._head = head

    def is_initialized(self) -> bool:
        return False

    def init(self, **given: object) -> None:
        os.write(2, b"Ray starts. ")

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address=self._head)

    def nodes(self) -> list[dict[str, object]]:
        return [{"Alive": True, "Resources": {"CPU": 4, "GPU": 0, "memory": 1 << 40}}]

    def remote(self, **given: object) -> object:
        return lambda function: SimpleNamespace(remote=lambda *args: args[1])

    def put(self, work: object) -> str:
        return "work"

    def wait(self, running: list[object], **given: object) -> tuple[list[object], list[object]]:
        os.write(2, b"(raylet) A worker died. ")
        return [], running

    def shutdown(self) -> None:
        self.shut = True


_RAY_ERRORS = ("NodeDiedError", "LocalRayletDiedError", "WorkerCrashedError", "OutOfMemoryError", "RayTaskError")


@pytest.mark.parametrize("quiet", [True, False])
def test_a_run_whose_head_dies_ends_and_waits_for_nobody(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with _listening() as taken:
        ray = _Ray(_address(taken))
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_cluster, "_GONE", 0.0)
    with pytest.raises(ConnectionError, match=r"the head of the Ray cluster at .* no longer answers"):
        list(ray_cluster.run_ray(["a"], _fails, 1, Resources(threads=1), quiet=quiet))  # type: ignore[arg-type]
    assert not ray.shut
    assert ("(raylet)" in capfd.readouterr().err) != quiet
