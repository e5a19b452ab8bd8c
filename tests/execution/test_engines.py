"""How cells are spread over workers; what happens when one dies is in tests/e2e/test_faults.py."""

from __future__ import annotations

import os

import pytest

from fedassay.execution import engines
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


def test_what_a_worker_raises_is_raised_here() -> None:
    """Whichever cell fails first."""
    with pytest.raises(PlanError, match=r"^[ab]: no$"):
        list(engines.run_local(["a", "b"], _fails, 2, 1))  # type: ignore[arg-type]
