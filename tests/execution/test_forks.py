"""Memory in huge pages holds what it held, and what is forked from it does so, too."""

from __future__ import annotations

import mmap
import os
import platform
from pathlib import Path

import numpy as np
import pytest

from fedassay.contracts.audit import Rerun
from fedassay.contracts.method import Outcome
from fedassay.exchange.transcript import Transcript
from fedassay.execution import apart, forks
from fedassay.support.seeds import Seeds

MIB = 1 << 20


def _huge(address: int) -> int:
    """Bytes in huge pages of the part of this process's memory that holds an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            start, end = (int(each, 16) for each in words[0].split("-"))
            inside = start <= address < end
        elif inside and words[0] == "AnonHugePages:":
            return int(words[1]) * 1024
    raise AssertionError("no part of memory holds it")


@pytest.fixture
def scattered() -> np.ndarray:
    """Eight MiB that the system keeps in small pages until it is told otherwise."""
    memory = mmap.mmap(-1, 8 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    values = np.frombuffer(memory, np.uint64)
    values[:] = np.random.default_rng(0).integers(1 << 60, size=len(values))
    return values


def test_memory_is_gathered_and_stays_what_it_is(scattered: np.ndarray) -> None:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    release = tuple(int(each) for each in platform.release().split(".")[:2]) if setting.exists() else (0, 0)
    if release < (6, 1) or "[madvise]" not in setting.read_text():
        pytest.skip("Linux 6.1 or later, which makes huge pages where it is asked to, gathers memory")
    before = scattered.copy()
    assert _huge(scattered.ctypes.data) == 0
    forks.gather()
    # Two of its MiB may lie in pages that are shared with what is beside it.
    assert _huge(scattered.ctypes.data) >= 4 * MIB
    assert np.array_equal(scattered, before)
    found, status = forks.in_child(scattered.tobytes)
    assert (found, status) == (before.tobytes(), 0)
    scattered[:] = 0
    assert not scattered.any()


def test_nothing_is_gathered_where_the_machine_shall_make_no_huge_pages(
    scattered: np.ndarray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not Path("/proc/self/smaps").exists():
        pytest.skip("this system does not say what its pages are")
    before = _huge(scattered.ctypes.data)
    setting = tmp_path / "enabled"
    for words in ("always madvise [never]\n", None):
        setting.unlink(missing_ok=True)
        if words is not None:
            setting.write_text(words)
        monkeypatch.setattr(forks, "_SETTING", setting)
        forks.gather()
        assert _huge(scattered.ctypes.data) == before


def test_questions_are_answered_from_gathered_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gathered = tmp_path / "gathered"

    def gather() -> None:
        with gathered.open("a") as file:
            file.write(f"{os.getpid()}\n")

    monkeypatch.setattr(forks, "gather", gather)
    monkeypatch.setattr(apart, "gather", gather)
    asked = apart.Apart(lambda _cell: apart.Work((), lambda *_: Outcome(Transcript("none", 2, (), None), None)))
    for cell in ("first", "first", "second"):
        asked.ask(cell, (), Rerun((), None, None, Seeds(0)))
    asked.close()
    here, *there = gathered.read_text().split()
    # Before the fork, and where all that the questions of a cell find is there: not again for every question.
    assert int(here) == os.getpid()
    assert len(there) == 2
    assert len(set(there)) == 1
