"""What every exit code means: 0 done, 1 not passed or not done, 2 undecided or wrong input, else a signal.

2 has two meanings, which the streams tell apart: what could not be decided is an answer on standard output, wrong
input is one message on standard error and nothing else.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedassay.cli import main
from fedassay.execution.run_output import write_run
from fedassay.records.record import Finding, Metric, RunRecord


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command line in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedassay.cli.stop_in_order", lambda: None)
    monkeypatch.setattr("fedassay.cli.guard_standard_error", lambda: None)

    def run(*args: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fedassay", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return Ended(int(ended.value.code or 0), shown.out, shown.err)

    return run


@pytest.fixture
def assay(tmp_path: Path, build_cell: Any) -> Callable[[float], Path]:
    """Writes a run of one cell, whose SSIM is this much above its baseline; nan: it was not measured."""

    def write(ssim: float) -> Path:
        metric = Metric(value=None, reason="not run") if math.isnan(ssim) else Metric(value=ssim, n=100)
        found = Finding(
            audit="reconstruction",
            attack="feature_diffusion",
            verdict="inconclusive" if math.isnan(ssim) else "no_leak_found",
            reason="r",
            metrics={"ssim": metric},
        )
        cell = build_cell(None, "fedcgs", "fedcgs", 1.0, 0, findings=(found,))
        folder = tmp_path / "assay"
        folder.mkdir()
        write_run(folder, RunRecord(plan={"name": "p"}, environment={}, cells=(cell,)))
        (tmp_path / "policy.yaml").write_text("name: p\nmaximum: {ssim: 0.5}\n", encoding="utf-8")
        return folder

    return write


@pytest.mark.parametrize(
    ("ssim", "code", "says"),
    [(0.4, 0, "passes"), (0.6, 1, "is above the maximum"), (math.nan, 2, "could not be decided")],
)
def test_check_answers_on_standard_output(
    command: Command, assay: Callable[[float], Path], ssim: float, code: int, says: str
) -> None:
    # No run made it: nothing says what its cell stands on.
    done = command("check", assay(ssim), "--policy", "policy.yaml", "--unverified")
    assert (done.code, done.err) == (code, "")
    assert says in done.out
    assert "fedassay:" not in done.out


@pytest.mark.long
@pytest.mark.parametrize(("ssim", "code"), [(0.4, 0), (0.6, 1), (math.nan, 2)])
def test_a_reader_that_has_had_enough_decides_nothing(
    assay: Callable[[float], Path], tmp_path: Path, ssim: float, code: int
) -> None:
    """`fedassay check RUN | head` called a run broken of which nothing could be decided."""
    read, write = os.pipe()
    os.close(read)
    command = ["-c", "from fedassay.cli import main; main()", "check", str(assay(ssim)), "--unverified"]
    try:
        done = subprocess.run(
            [sys.executable, *command, "--policy", "policy.yaml"],
            stdout=write,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (code, b"")


def test_verify_tells_an_altered_run_by_1(command: Command, assay: Callable[[float], Path]) -> None:
    folder = assay(0.4)
    assert command("verify", folder).code == 0
    record = folder / "record.json"
    record.chmod(0o600)
    record.write_text(record.read_text().replace("0.4", "0.3"))
    assert command("verify", folder).code == 1
    # To judge it is refused: nothing is decided of what somebody has changed.
    done = command("check", folder, "--policy", "policy.yaml")
    assert (done.code, done.out) == (2, "")


PLAN = "name: p\ndata: {name: digits, split: {private: 0.5, test: 0.2}}\nmethods: [fedcgs]\n"
WRONG_INPUT = {
    "no such command": ["frobnicate"],
    "no such option": ["list", "methods", "--loud"],
    "nothing to run": ["run"],
    "no plan": ["run", "none.yaml"],
    "a plan that is a folder": ["run", "."],
    "a plan that is no YAML": ["run", "broken.yaml"],
    "a plan with an unknown key": ["run", "plan.yaml", "--set", "colour=red"],
    "a plan with an impossible value": ["run", "plan.yaml", "--set", "clients.count=0"],
    "a plan without its data": ["run", "plan.yaml", "--set", "data={name: npz, path: none.npz}", "--dry-run"],
    "an output that is a file": ["run", "plan.yaml", "-o", "file"],
    "an output below a file": ["run", "plan.yaml", "-o", "file/below"],
    "no transcript": ["audit", "none"],
    "a transcript that is none": ["audit", "."],
    "no run to report": ["report", "none"],
    "a run that is none": ["report", "."],
    "an unknown format": ["report", "assay", "--format", "docx"],
    "a report below a file": ["report", "assay", "-o", "file/report.html"],
    "a report for a folder": ["report", "assay", "-o", "assay"],
    "one run to compare": ["compare", "assay"],
    "no folder to view": ["view", "none"],
    "no run to compare": ["compare", "assay", "none"],
    "no policy": ["check", "assay", "--policy", "none.yaml"],
    "no policy named": ["check", "assay"],
    "a policy that is none": ["check", "assay", "--policy", "plan.yaml"],
    "no run to check": ["check", "none", "--policy", "policy.yaml"],
    "a SARIF below a file": ["check", "assay", "--policy", "policy.yaml", "--sarif", "file/x.sarif"],
    "a JUnit for a folder": ["check", "assay", "--policy", "policy.yaml", "--junit", "assay"],
    "no run to answer for": ["answer", "none"],
    "an answer for a method that was not run": ["answer", "assay", "--method", "fedsdg"],
    "an answer for an epsilon that is none": ["answer", "assay", "--epsilon", "-1"],
    "a baseline that is none": ["check", "assay", "--policy", "policy.yaml", "--baseline", "none"],
    "no run to go on from": ["next", "none"],
    "no run to verify": ["verify", "none"],
    "no run to sign": ["sign", "none", "--key", "none.pem"],
    "no key to sign with": ["sign", "assay", "--key", "none.pem"],
    "no run to pack": ["pack", "none"],
    "nothing to look at": ["look", "none"],
    "no images to compare": ["similarity", "none", "none"],
    "no key to verify with": ["verify", "assay", "--key", "none.pem"],
    "no plan to validate": ["validate", "plan", "none.yaml"],
    "a policy as a plan": ["validate", "plan", "policy.yaml"],
    "a plan that is there": ["init", "plan.yaml"],
    "a plan below a file": ["init", "file/plan.yaml"],
    "no images to begin with": ["init", "mine.yaml", "--data", "none"],
    "an unknown list": ["list", "colours"],
    "an unknown method": ["list", "methods", "fedsdg"],
    "an impossible epsilon": ["account", "gaussian", "--sigma", "-1", "--delta", "1e-5"],
    "an unknown shell": ["completion", "cmd"],
    "an unknown schema": ["schema", "colour"],
}


@pytest.mark.parametrize("arguments", WRONG_INPUT.values(), ids=list(WRONG_INPUT))
def test_wrong_input_is_2_and_one_message_and_nothing_else(
    command: Command, assay: Callable[[float], Path], arguments: list[str], tmp_path: Path
) -> None:
    assay(0.4)
    (tmp_path / "file").write_text("a file", encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("name: [", encoding="utf-8")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = command(*arguments)
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("fedassay: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_every_command_that_takes_input_is_in_the_table() -> None:
    from fedassay.cli import cli

    tried = {arguments[0] for arguments in WRONG_INPUT.values()}
    assert set(cli.commands) - tried <= {"cache"}, "`cache` takes nothing that could be wrong"


def test_work_that_fails_is_1(
    command: Command, assay: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assay(0.4)

    def full(*args: object, **more: object) -> None:
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr("fedassay.reports.document.output.write_text", full)
    done = command("report", folder)
    assert (done.code, done.out) == (1, "")
    assert "No space left on device" in done.err
