"""The record does not depend on what the cache holds: nothing, this run's entries, or those of another setting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest

from fedassay.support import cache, numerics

PLAN = """
name: history
seeds: [0]
data: {name: digits, limit: 300, split: {private: 0.3, attacker: 0.3, public: 0.2, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: small_cnn}
methods: [fedcgs: {}]
attacks: [label_distribution: {}]
audits: [message: {}]
"""
Comparable = Callable[[Path], dict[str, Any]]

# The backbone is trained for as long as numbers need to come out otherwise with other threads and kernels.
_FEW_STEPS = "from fedassay.backbones import small_cnn; small_cnn._STEPS = (20, 20)"
_TWO_THREADS = "import threadpoolctl, torch; torch.set_num_threads(2); threadpoolctl.threadpool_limits(2)"


def run(
    tmp_path: Path, name: str, cache_folder: str, *, own: bool = False, hook: str = "", **environment: str
) -> Path:
    """A run in a forked process, or in an interpreter of its own, which alone has other kernels."""
    out = tmp_path / name
    (tmp_path / "plan.yaml").write_text(PLAN)
    given = {**os.environ, "OMP_NUM_THREADS": "1", "FEDASSAY_CACHE": str(tmp_path / cache_folder), **environment}
    arguments = ["run", str(tmp_path / "plan.yaml"), "-o", str(out), "--quiet"]
    if own:
        command = [sys.executable, "-c", f"{_FEW_STEPS}\nfrom fedassay.cli import main; main()", *arguments]
        done = subprocess.run(command, check=False, env=given, capture_output=True, text=True)
    else:
        done = forked.fedassay(*arguments, hook=f"{_FEW_STEPS}\n{hook}", environment=given)
    assert done.returncode == 0, done.stderr
    return out


def _fingerprint(out: Path) -> str:
    found: str = json.loads((out / "record.json").read_text())["data"]["0"]["backbone"]["fingerprint"]
    return found


@pytest.mark.long
def test_the_same_record_from_a_cold_a_warm_and_foreign_caches(tmp_path: Path, comparable: Comparable) -> None:
    cold = run(tmp_path, "cold", "own")
    assert comparable(run(tmp_path, "warm", "own")) == comparable(cold)
    threads = run(tmp_path, "threads", "foreign", hook=_TWO_THREADS)
    kernels = run(tmp_path, "kernels", "foreign", own=True, ATEN_CPU_CAPABILITY="default")
    # Else the settings would change nothing here, and the next line could not fail.
    assert any(_fingerprint(other) != _fingerprint(cold) for other in (threads, kernels))
    assert comparable(run(tmp_path, "after", "foreign")) == comparable(cold)


_CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "threads": lambda patch: patch.setattr(numerics, "threads_now", lambda: 61),
    "a library": lambda patch: patch.setattr(numerics, "installed_version", lambda name: "9.9"),
    "the processor": lambda patch: patch.setattr(numerics, "_processor", lambda: "another"),
    "a switch of kernels": lambda patch: patch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41"),
    "fedassay": lambda patch: patch.setattr(numerics, "__version__", "9.9"),
}


@pytest.mark.parametrize("what", sorted(_CHANGES))
def test_what_changes_numbers_is_part_of_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path))
    ours, theirs = {"x": np.array([1])}, {"x": np.array([2])}
    with pytest.MonkeyPatch.context() as patch:
        _CHANGES[what](patch)
        assert cache.cached_arrays({"a": 1}, lambda: theirs)["x"] == 2
    assert cache.cached_arrays({"a": 1}, lambda: ours)["x"] == 1
    assert cache.cached_arrays({"a": 1}, lambda: theirs)["x"] == 1


def test_the_number_of_worker_threads_is_none_of_it() -> None:
    """Workers start with thread limits in their environment; what they share has its own number of threads."""
    before = numerics.numerics()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MKL_NUM_THREADS", "7")
        assert numerics.numerics() == before
    with numerics.at_threads(3):
        assert numerics.numerics() != before
    assert numerics.numerics() == before
