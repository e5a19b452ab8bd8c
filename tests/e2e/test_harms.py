"""What must never happen: one cell's result under another's name, files of others deleted, devices replaced."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest
from forked import fedassay

from fedassay.records.record import load_record

PLAN = """
name: harms
seeds: [3]
data: {name: digits, limit: 300, split: {private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods:
  - fedcgs: {label: "no noise"}
  - fedcgs: {label: "no_noise", ridge: 0.5}
  - fedcgs: {label: "no/noise", ridge: 1000.0}
  - fedcgs: {label: "\\e[2Jcleared", ridge: 2.0}
attacks: [label_distribution: {}]
audits: [message: {}]
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("harms") / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def run(plan: Path) -> Path:
    out = plan.parent / "run"
    done = fedassay("run", plan, "-o", out)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "\\x1b[2Jcleared" in done.stdout
    return out


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_method_is_run_under_its_own_name(run: Path) -> None:
    cells = load_record(run).cells
    assert [cell.label for cell in cells] == ["no noise", "no_noise", "no/noise", "\x1b[2Jcleared"]
    assert [cell.params["ridge"] for cell in cells][1:] == [0.5, 1000.0, 2.0]
    assert len({(cell.utility["accuracy"], cell.params["ridge"]) for cell in cells}) == 4
    assert len(list((run / "transcripts").iterdir())) == 4


def test_no_file_of_a_run_has_a_hidden_character(run: Path) -> None:
    for name in _files(run):
        assert name.isprintable()
        if name.endswith((".json", ".html", ".csv")):
            text = (run / name).read_text(encoding="utf-8")
            assert not {"\x1b", "\x9b", "\u202e"} & set(text), name


def test_repeated_seeds_are_refused(plan: Path, tmp_path: Path) -> None:
    done = fedassay("run", plan, "-o", tmp_path / "out", "--set", "seeds=[0, 0, 0]")
    assert done.returncode == 2
    assert "seeds: given 0 3 times; allowed: each value once" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("args", [["-o", "mine"], ["-o", "."], ["-o", ""]])
def test_force_deletes_nothing_that_no_run_wrote(plan: Path, tmp_path: Path, args: list[str]) -> None:
    folder = tmp_path / "mine" if args[1] == "mine" else tmp_path
    for name in ("tables/important.csv", "artifacts/model.pt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    before = _files(tmp_path)
    done = fedassay("run", plan, *args, "--force", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert _files(tmp_path) == before


@pytest.mark.parametrize("at", [1, 3])
def test_force_after_kill_9_leaves_nothing_of_the_old_run_and_all_of_the_user_s(
    plan: Path, tmp_path: Path, at: int
) -> None:
    out = tmp_path / "out"
    hook = (
        "import os, signal\nfrom fedassay.execution import runfolder\nkeep, left = runfolder.keep, ["
        + str(at)
        + "]\n"
        "def dying(*args):\n    left[0] -= 1\n    left[0] or os.kill(os.getpid(), signal.SIGKILL)\n"
        "    keep(*args)\n"
        "runfolder.keep = dying"
    )
    assert fedassay("run", plan, "-o", out, hook=hook).returncode == -signal.SIGKILL
    (out / "transcripts" / "mine").mkdir()
    foreign = {"transcripts/mine/transcript.json", "thesis.tex"}
    for name in foreign:
        (out / name).write_text("mine")
    small = ["--set", "methods=[fedcgs]", "--set", "audits=[]", "--set", "attacks=[]"]
    done = fedassay("run", plan, "-o", out, "--force", *small)
    assert done.returncode == 0, done.stderr
    fresh = tmp_path / "fresh"
    assert fedassay("run", plan, "-o", fresh, *small).returncode == 0
    assert _files(out) == _files(fresh) | foreign


def test_force_of_a_finished_run_leaves_what_a_fresh_one_has(plan: Path, run: Path, tmp_path: Path) -> None:
    small = ["--set", "methods=[fedcgs]", "--set", "audits=[]", "--set", "attacks=[]"]
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    assert fedassay("run", plan, "-o", out).returncode == 0
    assert fedassay("run", plan, "-o", out, "--force", *small).returncode == 0
    assert fedassay("run", plan, "-o", fresh, *small).returncode == 0
    assert _files(out) == _files(fresh)


@pytest.mark.parametrize("command", ["report", "compare", "sarif", "junit", "csv"])
def test_what_is_no_file_is_left_alone(run: Path, tmp_path: Path, command: str) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    (tmp_path / "target").write_text("mine")
    link.symlink_to(tmp_path / "target")
    for there in (pipe, link):
        before = there.lstat().st_ino
        done = fedassay(*_writing(command, run, there))
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert str(there) in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert there.lstat().st_ino == before
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert (tmp_path / "target").read_text() == "mine"


def _writing(command: str, run: Path, to: str | Path) -> list[str | Path]:
    if command == "compare":
        return ["compare", run, run / "record.json", "-o", to]
    if command in {"sarif", "junit"}:
        return ["check", run, "--policy", "configs/policies/research.yaml", f"--{command}", to]
    return ["report", run, "--format", "csv" if command == "csv" else "html", "-o", to]


@pytest.mark.parametrize("to", ["-", "/dev/stdout"])
@pytest.mark.parametrize(
    ("command", "starts"),
    [("report", "<!doctype html>"), ("compare", "<!doctype html>"), ("sarif", "{"), ("junit", "<?xml")],
)
def test_a_page_can_go_to_standard_output(run: Path, tmp_path: Path, command: str, starts: str, to: str) -> None:
    done = fedassay(*_writing(command, run, to), cwd=tmp_path)
    assert done.returncode == (0 if command in {"report", "compare"} else done.returncode)
    assert done.stdout.lower().startswith(starts)
    assert not list(tmp_path.iterdir())
    if command == "sarif":
        assert json.loads(done.stdout)["version"] == "2.1.0"
        assert "policy " in done.stderr  # what a person reads goes beside it


def test_two_documents_do_not_go_to_one_stream(run: Path, tmp_path: Path) -> None:
    for args in (["report", run, "-o", "-", "--json"], [*_writing("sarif", run, "-"), "--junit", "-"]):
        done = fedassay(*args, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        assert "standard output" in done.stderr


def test_tables_do_not_go_to_a_stream(run: Path, tmp_path: Path) -> None:
    done = fedassay(*_writing("csv", run, "-"), cwd=tmp_path)
    assert done.returncode == 2
    assert "csv is a folder of files" in done.stderr
    assert not list(tmp_path.iterdir())
