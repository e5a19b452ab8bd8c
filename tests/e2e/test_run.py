"""From the command line to the report, on real images: the whole path, and what interrupts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest

from fedassay.exchange.transcript import load_transcript
from fedassay.records.record import load_record

Comparable = Callable[[Path], dict[str, Any]]

PLAN = """
name: whole-path
seeds: [3]
data:
  name: digits
  limit: 900
  split: {private: 0.3, attacker: 0.4, public: 0.1, test: 0.2}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods:
  - raw_features
  - fedcgs: {}
attacks:
  - feature_diffusion: {samples: 2, steps: 5}
audits:
  - reconstruction: {control_records: 150, permutations: 400}
resources: {threads: 1}
"""


def fedassay(
    *args: str | Path, hook: str = "", cwd: Path | None = None, cache: Path | None = None
) -> subprocess.CompletedProcess[str]:
    # The plan alone says how many threads a cell has.
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    variables |= {} if cache is None else {"FEDASSAY_CACHE": str(cache)}
    return forked.fedassay(*args, hook=hook, cwd=cwd, environment=variables)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def run(plan: Path) -> Path:
    out = plan.parent / "run"
    done = fedassay("run", plan, "-o", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("✖ No: ")
    assert "In raw_features without noise, all 219 private images were rebuilt from raw features." in done.stdout
    assert "219 of 219 images rebuilt" in done.stdout
    assert str(out / "report.html") in done.stdout
    return out


def test_the_run_folder_holds_what_is_promised(run: Path) -> None:
    record = load_record(run)
    assert [cell.label for cell in record.cells] == ["raw_features", "fedcgs"]
    assert not record.errors
    assert (run / "report.html").stat().st_size > 10_000
    assert list((run / "tables").glob("*.csv"))
    for cell in record.cells:
        assert 0.8 < (cell.utility["accuracy"] or 0) <= 1
        assert cell.communication["bytes_up"] > 0
        assert cell.privacy.accounted == float("inf")
        for finding in cell.findings:
            for picture in finding.pictures:
                assert (run / picture.file).is_file()
    transcripts = sorted(path for path in (run / "transcripts").iterdir() if path.is_dir())
    assert len(transcripts) == 2
    assert {load_transcript(path).method for path in transcripts} == {"raw_features", "fedcgs"}


def test_raw_features_leak_and_both_controls_hold(run: Path) -> None:
    raw = load_record(run).cells[0]
    whole = next(finding for finding in raw.findings if finding.selection == "all")
    assert whole.verdict == "leak"
    gain = whole.metrics["ssim_gain"]
    assert gain.low is not None
    assert gain.low > 0
    assert whole.controls.positive is not None
    assert whole.controls.positive.caught
    assert whole.controls.negative is not None
    assert not whole.controls.negative.flagged


@pytest.mark.long
def test_the_same_seed_gives_the_same_record_for_any_number_of_workers(
    plan: Path, run: Path, tmp_path: Path, comparable: Comparable
) -> None:
    again = plan.parent / "again"
    # An empty cache: everything is computed anew, by two processes.
    done = fedassay("run", plan, "-o", again, "--quiet", "--jobs", "2", cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert comparable(again) == comparable(run)


def test_a_resumed_run_may_be_given_other_resources_but_no_other_plan(plan: Path, run: Path) -> None:
    more = fedassay("run", plan, "-o", run, "--resume", "--quiet", "--set", "resources.memory=1.5")
    assert more.returncode == 0, more.stderr
    assert json.loads((run / "record.json").read_text())["plan"]["resources"]["memory"] == 1.5
    assert fedassay("run", plan, "-o", run, "--resume", "--quiet").returncode == 0
    other = fedassay("run", plan, "-o", run, "--resume", "--set", "clients.count=3")
    assert other.returncode == 2
    assert "another plan" in other.stderr


@pytest.mark.long
def test_kill_9_leaves_no_record_and_resume_ends_with_the_same(
    plan: Path, run: Path, comparable: Comparable
) -> None:
    out = plan.parent / "killed"
    hook = (
        "import os, signal\nfrom fedassay.execution import runfolder\nkeep = runfolder.keep\n"
        "def dying(*args):\n    keep(*args)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "runfolder.keep = dying"
    )
    done = fedassay("run", plan, "-o", out, hook=hook)
    assert done.returncode == -signal.SIGKILL
    assert not (out / "record.json").exists()
    refused = fedassay("run", plan, "-o", out)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    assert fedassay("run", plan, "-o", out, "--resume", "--quiet").returncode == 0
    assert comparable(out) == comparable(run)


@pytest.mark.long
def test_ctrl_c_is_one_line_and_resumable(plan: Path) -> None:
    out = plan.parent / "stopped"
    hook = (
        "from fedassay.execution import runfolder\nkeep = runfolder.keep\n"
        "def stopping(*args):\n    keep(*args)\n    raise KeyboardInterrupt\n"
        "runfolder.keep = stopping"
    )
    done = fedassay("run", plan, "-o", out, hook=hook)
    assert done.returncode == 130
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "record.json").exists()
    assert list((out / ".cells").glob("*.json"))


@pytest.mark.long
def test_one_failing_cell_does_not_lose_the_others(plan: Path) -> None:
    out = plan.parent / "failing"
    hook = (
        "from fedassay.methods.fedcgs.method import FedCGS\n"
        "def broken(self, task):\n    raise MemoryError('no more')\n"
        "FedCGS.run = broken"
    )
    done = fedassay("run", plan, "-o", out, hook=hook)
    assert done.returncode == 1
    record = load_record(out)
    assert [error.stage for error in record.errors] == ["method"]
    assert "out of memory; --resume tries the cell again (no more)" in record.errors[0].message
    assert record.cells[0].findings[0].verdict == "leak"
    assert [finding.verdict for finding in record.cells[1].findings] == ["not_run"]


@pytest.mark.parametrize("format_", ["html", "md", "json", "csv", "sarif", "junit"])
def test_an_old_run_renders_again(run: Path, format_: str, tmp_path: Path) -> None:
    done = fedassay("report", run, "--format", format_, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").exists()


def test_compare(run: Path, tmp_path: Path) -> None:
    done = fedassay("compare", run, run / "record.json", "-o", tmp_path / "both.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "both.html").stat().st_size > 1000


def test_a_dry_run_prints_cells_and_writes_nothing(plan: Path, tmp_path: Path) -> None:
    done = fedassay("run", plan, "--dry-run", "--json", cwd=tmp_path)
    assert done.returncode == 0
    printed = json.loads(done.stdout)
    assert len(printed["cells"]) == 2
    assert printed["persons"] == "data.groups is not given: each record is taken to be of a person of its own"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("methods=[fedsdg]", "given 'fedsdg'"),
        ("clients.count=0", "clients.count"),
        ("clients.alpha=-1", "clients.alpha"),
        ("privacy.epsilon=0", "privacy.epsilon"),
        ("privacy.delta=1", "privacy.delta"),
        ("data.split.test=0.9", "sum to"),
        ("data={name: npz, path: nowhere.npz}", "nowhere.npz"),
        ("data={name: npz}", "path"),
        ("clients.count=5000", "clients"),
        ("colour=red", "colour: unknown key"),
        ("backbone={name: small_cnn, weights: nowhere.pt}", "nowhere.pt"),
    ],
)
def test_bad_input_is_one_message_and_nothing_is_written(
    plan: Path, tmp_path: Path, assignment: str, says: str
) -> None:
    out = tmp_path / "out"
    done = fedassay("run", plan, "-o", out, "--set", assignment)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not out.exists()


def test_an_output_in_use_is_left_alone(plan: Path, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    done = fedassay("run", plan, "-o", run)
    assert done.returncode == 2
    assert "already holds" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("args", [["report", "nowhere"], ["run", "nowhere.yaml"], ["run"], ["frobnicate"]])
def test_a_wrong_command_line_is_exit_2(args: list[str], tmp_path: Path) -> None:
    done = fedassay(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_init_writes_a_plan_that_runs_dry_and_overwrites_nothing(tmp_path: Path) -> None:
    assert fedassay("init", "mine.yaml", cwd=tmp_path).returncode == 0
    assert fedassay("run", "mine.yaml", "--dry-run", cwd=tmp_path).returncode == 0
    again = fedassay("init", "mine.yaml", cwd=tmp_path)
    assert again.returncode == 2
    assert "not overwritten" in again.stderr


@pytest.mark.parametrize("what", ["methods", "attacks", "audits", "datasets", "backbones", "configs"])
def test_list(what: str) -> None:
    done = fedassay("list", what, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)


def test_privacy_of_persons_asks_who_they_are(plan: Path, tmp_path: Path) -> None:
    asked = ["methods=[fedcgs]", "attacks=[]", "audits=[]", "privacy.epsilon=8", "privacy.unit=person"]
    settings = [word for setting in asked for word in ("--set", setting)]
    done = fedassay("run", plan, "-o", tmp_path / "out", *settings)
    assert done.returncode == 2
    assert "the person of each record is not known; allowed: data.groups with it" in done.stderr
    assert not (tmp_path / "out").exists()
