"""What cells may take, and how many fit at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from fedassay.plan import resources
from fedassay.plan.resources import Resources, threads_limited


@pytest.mark.parametrize("jobs", [1, 2, 3, 64])
def test_workers_times_threads_is_at_most_the_cores(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for cores in (1, 2, 8, 60):
        monkeypatch.setattr(resources, "cores", lambda cores=cores: cores)
        for asked in (None, 1, 2, 7):
            needs = Resources(threads=asked)
            workers, threads = needs.workers(jobs, "cpu"), needs.threads_of(jobs)
            assert 1 <= workers <= jobs
            assert threads == asked or asked is None
            # A single worker may ask for more than there is; several never do, but for one thread each.
            assert workers * threads <= max(cores, workers if asked is None else threads)


def test_fewer_threads_are_taken_where_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "cores", lambda: 16)
    for given, threads in (("1", 1), ("3", 3), ("100", 8), ("no number", 8), ("0", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert Resources().threads_of(2) == threads
        assert Resources(threads=5).threads_of(2) == 5


def test_no_more_cells_run_at_once_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "memory_bytes", lambda: 16 << 30)
    assert [Resources(memory=gib).workers(8, "cpu") for gib in (1, 3, 16, 100)] == [8, 5, 1, 1]


def test_cells_share_one_gpu_only_by_their_share_of_it() -> None:
    assert [Resources(gpus=share).workers(8, "cuda") for share in (0, 0.25, 0.5, 1, 2)] == [8, 4, 2, 1, 1]
    assert Resources(gpus=1).workers(8, "cpu") == 8


def test_a_container_limits_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = resources.memory_bytes()
    assert whole > 1 << 28
    for content, expected in (("1048576\n", 1 << 20), ("max\n", None)):
        (tmp_path / "memory.max").write_text(content)
        monkeypatch.setattr(resources, "_CGROUP", tmp_path / "memory.max")
        found = resources.memory_bytes()
        assert found == expected if expected else found >= whole


@pytest.mark.parametrize("given", [{"threads": 0}, {"memory": 0}, {"gpus": -1}, {"cpus": 1}])
def test_what_is_out_of_range_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Resources(**given)  # type: ignore[arg-type]


def test_threads_are_limited_and_given_back() -> None:
    import torch
    from threadpoolctl import threadpool_info

    before = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    with threads_limited(1):
        assert torch.get_num_threads() == 1
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
    with threads_limited(None):
        assert torch.get_num_threads() == before[0]
    assert (torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]) == before
