"""Processes that run methods again end with whoever forked them, however many there are, and are killed safely."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedassay.contracts.audit import Rerun
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.transcript import Transcript
from fedassay.execution import apart as apart_module
from fedassay.execution.apart import Apart, Work
from fedassay.execution.cell_job import Place
from fedassay.execution.runner import _case, run_cell
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Plan, Scenario
from fedassay.privacy import accounting
from fedassay.privacy.accounting import CALIBRATED, calibrate_noise_multiplier
from fedassay.privacy.tape import Draw, Key, NoiseMechanism, taped
from fedassay.support.errors import is_out_of_memory
from fedassay.support.numerics import at_threads
from fedassay.support.progress import SILENT, Progress
from fedassay.support.seeds import Seeds

ASKED = Rerun((), None, None, Seeds(0))


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


SEEN: list[str] = []
"""What a method remembers of its calls."""


def _calibrating(rehearse: Callable[[], object] | None) -> Apart:
    """A method that calibrates its noise, and says what this process had calibrated, and remembered, before."""

    def run(_clients: Sequence[Records], _other: str | None, _seeds: Seeds) -> Outcome:
        before = {"calibrated": float(len(CALIBRATED)), "remembered": float(len(SEEN))}
        SEEN.append("asked")
        noise = calibrate_noise_multiplier(1.7, 1e-5, sampling_rate=1.0, steps=7)
        return Outcome(Transcript("none", 2, (), None), None, utility={**before, "noise": noise})

    return Apart(lambda _cell: Work((), run, rehearse))


def _told(apart: Apart, questions: int = 3) -> list[dict[str, float | None]]:
    outcomes = [apart.ask("cell", (), ASKED).outcome for _ in range(questions)]
    return [dict(outcome.utility) for outcome in outcomes if outcome is not None]


def test_every_question_finds_what_the_method_calibrates_and_nothing_else() -> None:
    known = len(CALIBRATED)

    def rehearse() -> None:
        SEEN.append("rehearsed")
        calibrate_noise_multiplier(1.7, 1e-5, sampling_rate=1.0, steps=7)

    cold, *later = _told(_calibrating(None))
    assert later == [cold] * 2
    assert (cold["calibrated"], cold["remembered"]) == (known, 0)
    # What is remembered of the rehearsal would be seen here, as would the order of questions.
    assert _told(_calibrating(rehearse)) == [{**cold, "calibrated": known + 1}] * 3
    assert len(CALIBRATED) == known
    assert not SEEN


@pytest.mark.parametrize("end", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0])
def test_a_rehearsal_that_fails_leaves_every_question_to_itself(end: Callable[[], object]) -> None:
    known = len(CALIBRATED)

    def rehearse() -> None:
        calibrate_noise_multiplier(1.7, 1e-5, sampling_rate=1.0, steps=7)
        end()

    assert [each["calibrated"] for each in _told(_calibrating(rehearse))] == [known] * 3


def test_what_the_run_gave_out_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    packed = apart_module._packed

    def counted(thing: object, known: Sequence[object]) -> bytes:
        made = packed(thing, known)
        sizes.append(len(made))
        return made

    def run(_clients: Sequence[Records], _other: str | None, _seeds: Seeds) -> Outcome:
        NoiseMechanism(Seeds(1), Key("client/0", 0, "sums")).add("", np.ones(1000), 1.0)
        return Outcome(Transcript("none", 2, (), None), None)

    with taped() as tape:
        run((), None, Seeds(0))
    monkeypatch.setattr(apart_module, "_packed", counted)
    asked = Apart(lambda _cell: Work((), run))
    found = [asked.ask("cell", (), Rerun((), tape, "", Seeds(0))) for _ in range(2)]
    asked.close()
    (first,) = tape.draws.values()
    for each in found:
        (draw,) = each.tape.draws.values()
        assert isinstance(draw, Draw)
        assert draw.out is first.out
        assert (draw.exact == 1).all()
    outputs, *questions = sizes
    assert outputs > first.out.nbytes
    assert len(questions) == 2
    assert max(questions) < first.out.nbytes


@pytest.mark.long
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


_IMPORTS = """
import sys
import torch
from fedassay.contracts.method import Outcome
from fedassay.exchange.transcript import Transcript
from fedassay.contracts.audit import Rerun
from fedassay.execution.apart import Apart, Work
from fedassay.support.seeds import Seeds

def run(clients, other, seeds):
    before = set(sys.modules)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.Adam([weight])
    weight.grad = torch.ones(1)
    optimiser.step()
    more = {name.rpartition(".")[0] for name in set(sys.modules) - before}
    return Outcome(Transcript("none", 2, (), None), None, notes=tuple(sorted(more)))

apart = Apart(lambda cell: Work((), run))
first, second = (apart.ask("cell", (), Rerun((), None, None, Seeds(0))).outcome.notes for _ in range(2))
assert "torch._dynamo" not in sys.modules
assert first == second, (first, second)
assert "torch._dynamo" not in first, first
"""


@pytest.mark.long
def test_no_question_imports_what_an_optimiser_brings_with_it() -> None:
    """It would take a second of each; and none can tell by it whether others were asked before."""
    found = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_libraries_may_lie_outside_of_the_environment() -> None:
    """A user's or the system's, as a `.pth` file adds them: each question would import its own copy of them."""
    assert any(Path(np.__file__).is_relative_to(folder) for folder in apart_module._LIBRARIES)


class _Pids:
    """Bars that note the process that each step is in."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def add_task(self, name: str, total: None) -> int:
        with self.file.open("a") as lines:
            lines.write(f"{os.getpid()} {name}\n")
        return 0

    def update(self, *_: object, **__: object) -> None:
        pass

    def remove_task(self, _task: int) -> None:
        pass

    def print(self, _line: str) -> None:
        pass


def _private(folder: Path, rate: float = 0.1) -> tuple[Scenario, str]:
    """A plan with a claim, and its cell; without sampling, at a rate of 1, noise is calibrated at once."""
    plan = {
        "name": "p",
        "data": {"name": "digits", "limit": 300, "split": {"private": 0.5, "attacker": 0.2, "test": 0.3}},
        "clients": {"count": 2, "partition": "iid"},
        "backbone": {"name": "pixels"},
        "privacy": {"epsilon": 4, "delta": 1e-3},
        "methods": [{"average": {"dp_sgd": {"epochs": 1, "sampling_rate": rate}}}],
        "audits": [{"dp_claim": {"replays": 8}}],
    }
    scenario = resolve(Plan.model_validate(plan), folder, "plan")
    return scenario, scenario.cells[0].key


def test_a_plans_method_is_rehearsed_on_its_own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, cell = _private(tmp_path, rate=1.0)
    monkeypatch.setattr(accounting, "CALIBRATED", {})
    rehearse = _case(scenario, cell, Place(tmp_path, "cpu", SILENT), 1, None).source.work.rehearse
    assert rehearse is not None
    rehearse()
    assert [(each.epsilon, each.delta) for each in accounting.CALIBRATED] == [(4.0, 1e-3)]


@pytest.mark.long
def test_only_the_first_run_shows_its_progress(tmp_path: Path) -> None:
    """Every rerun said "heads 0 of 6" on the console, and wrote to the sockets of a notebook's kernel."""
    scenario, cell = _private(tmp_path)
    file = tmp_path / "steps"
    done = run_cell(scenario, cell, folder=tmp_path, device="cpu", threads=1, progress=Progress(_Pids(file)))
    said = file.read_text().splitlines()
    assert done.cell.privacy.verdict == "sound", done.cell.privacy.reason
    assert {line.split()[0] for line in said} == {str(os.getpid())}
    assert sum(line.endswith("heads") for line in said) == 1


@pytest.mark.long
def test_a_run_with_several_threads_is_what_reruns_repeat(tmp_path: Path) -> None:
    """Reruns have one thread: a first run with two rounded otherwise, and no claim was ever sound."""
    scenario, cell = _private(tmp_path)
    with at_threads(2):
        done = run_cell(scenario, cell, folder=tmp_path, device="cpu", threads=2)
    assert done.cell.privacy.verdict == "sound", done.cell.privacy.reason


_SCRIPT = """
import fedassay
print("once", flush=True)
for number in range(2):
    run = fedassay.run({plan!r}, f"out{{number}}", progress=False)
    print(run.errors, run.record.cells[0].privacy.verdict, flush=True)
"""


@pytest.mark.long
def test_a_script_that_runs_two_plans_is_not_run_again_by_its_workers(tmp_path: Path) -> None:
    """The second run is in a new process, which ran the script from its start and died, saying so at length."""
    scenario, _ = _private(tmp_path)
    (tmp_path / "script.py").write_text(_SCRIPT.format(plan=scenario.resolved()))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["once", "() sound", "() sound"]
    assert "Traceback" not in done.stderr
