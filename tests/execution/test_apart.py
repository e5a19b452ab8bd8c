"""Processes that run methods again end with whoever forked them, however many there are, and are killed safely."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.transcript import Transcript
from fedassay.execution.apart import Apart, Question, Work
from fedassay.support.errors import is_out_of_memory
from fedassay.support.seeds import Seeds

ASKED = Question((), None, None, Seeds(0))


def _nothing(_cell: str) -> Work:
    raise AssertionError


def _dying(deaths: Path, number: signal.Signals, *, server: bool = False) -> Apart:
    """A method whose process dies as often as the file has characters; `server`: the one that forks does."""

    def run(_clients: Sequence[Records], _other: str | None, _seeds: Seeds) -> Outcome:
        left = len(deaths.read_text())
        if left:
            deaths.write_text("x" * (left - 1))
            if server:
                os.kill(os.getppid(), number)
            faulthandler.disable()
            os.kill(os.getpid(), number)
        return Outcome(Transcript("none", 2, (), None), None)

    return Apart(lambda _cell: Work((), run))


def test_several_end_in_any_order() -> None:
    """The second holds a copy of the first's connection, which must not keep the first from ending."""
    first, second, third = (Apart(_nothing) for _ in range(3))
    del first
    gc.collect()
    del third
    gc.collect()
    del second
    gc.collect()


def test_a_question_whose_process_is_killed_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "deaths").write_text("x")
    reply = _dying(tmp_path / "deaths", signal.SIGKILL).ask("cell", (), ASKED)
    assert reply.outcome is not None
    assert (tmp_path / "deaths").read_text() == ""


def test_one_that_is_killed_again_is_memory_and_no_failure_of_the_method(tmp_path: Path) -> None:
    (tmp_path / "deaths").write_text("xx")
    apart = _dying(tmp_path / "deaths", signal.SIGKILL)
    with pytest.raises(MemoryError, match="was killed twice") as found:
        apart.ask("cell", (), ASKED)
    assert is_out_of_memory(found.value)
    assert not apart.ended
    assert apart.ask("cell", (), ASKED).outcome is not None


def test_a_process_that_the_method_brings_down_is_the_methods(tmp_path: Path) -> None:
    (tmp_path / "deaths").write_text("xxx")
    apart = _dying(tmp_path / "deaths", signal.SIGSEGV)
    with pytest.raises(RuntimeError, match="the process of a rerun died"):
        apart.ask("cell", (), ASKED)
    assert (tmp_path / "deaths").read_text() == "xx"


def test_where_the_process_that_forks_is_killed_nothing_can_be_asked(tmp_path: Path) -> None:
    (tmp_path / "deaths").write_text("x")
    apart = _dying(tmp_path / "deaths", signal.SIGKILL, server=True)
    for _ in range(2):
        with pytest.raises(MemoryError, match="the process that runs methods again was killed"):
            apart.ask("cell", (), ASKED)
        assert apart.ended
