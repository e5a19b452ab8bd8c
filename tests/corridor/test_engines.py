"""How cells are spread over workers; what happens when one dies is in tests/e2e/test_faults.py."""

from __future__ import annotations

import os

import pytest

from fedassay import engines
from fedassay.errors import PlanError


@pytest.mark.parametrize("jobs", [1, 2, 3, 64])
def test_workers_times_threads_is_at_most_the_cores(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for cores in (1, 2, 8, 60):
        monkeypatch.setattr(engines, "cores", lambda cores=cores: cores)
        threads = engines.threads_each(jobs)
        assert threads >= 1
        assert jobs * threads <= max(cores, jobs)  # no worker has less than one


def test_fewer_threads_are_taken_where_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "cores", lambda: 16)
    for given, threads in (("1", 1), ("3", 3), ("100", 8), ("no number", 8), ("0", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert engines.threads_each(2) == threads


def _threads_seen(key: str) -> tuple[str, str | None, int]:
    import torch

    return key, os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()


def test_workers_are_started_with_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "cores", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = dict(engines.run_local(["a", "b", "c"], _threads_seen, 2))  # type: ignore[arg-type]
    assert found == {key: (key, "1", 1) for key in "abc"}
    assert "OMP_NUM_THREADS" not in os.environ


def _fails(key: str) -> str:
    raise PlanError(f"{key}: no")


def test_what_a_worker_raises_is_raised_here() -> None:
    with pytest.raises(PlanError, match="a: no"):
        list(engines.run_local(["a", "b"], _fails, 2))  # type: ignore[arg-type]
