"""The command line as somebody meets it who has never used it."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from fedassay.cli import cli, main
from fedassay.console import plan_file, policy_file, print_keys
from fedassay.execution.stages import Stages
from fedassay.plan.resolve import load_scenario
from fedassay.support.errors import PlanError
from fedassay.support.progress import SILENT, _clock
from fedassay.support.signals import Stopped


def _run(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedassay", *args],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_command_that_prints_takes_quiet_and_json() -> None:
    for name, command in cli.commands.items():
        if name in {"account", "completion", "schema", "next"}:  # a group; a script; JSON; a plan
            continue
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--quiet", "--json"} <= options, name


def test_every_command_and_option_says_what_it_is_for() -> None:
    for name, command in cli.commands.items():
        assert command.get_short_help_str(), name
        shown = CliRunner().invoke(cli, [name, "--help"])
        assert shown.exit_code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_the_command(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert "_FEDASSAY_COMPLETE" in done.output


def test_completion_completes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (
        ("_FEDASSAY_COMPLETE", "bash_complete"),
        ("COMP_WORDS", "fedassay com"),
        ("COMP_CWORD", "1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["fedassay"])
    with pytest.raises(SystemExit):
        main()
    assert {line.partition(",")[2] for line in capsys.readouterr().out.split()} == {"compare", "completion"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "says", "next_step"),
    [
        (["run", "nowhere.yaml"], "nowhere.yaml: no such file", "fedassay init"),
        (["run", "."], "it is a folder", "fedassay init"),
        (["report", "nowhere"], "no record.json", "fedassay run"),
        (["audit", "nowhere"], "no such file or folder", "docs/transcript.md"),
        (["runn"], "No such command", "Did you mean 'run'"),
        (["run"], "Missing argument", "fedassay run --help"),
    ],
)
def test_an_error_is_one_paragraph_with_the_next_step(
    args: list[str], says: str, next_step: str, tmp_path: Path
) -> None:
    done = _run(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert next_step in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_missing_policy_names_those_that_ship(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="these ship: strict, demonstration, research and messages"):
        policy_file(tmp_path / "none.yaml")


def test_what_ships_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_scenario(plan_file(Path("configs/quickstart.yaml"))).plan.name == "quickstart"
    assert policy_file(Path("configs/policies/strict.yaml")).is_file()
    for wrong in ("configs/../cli.py", "configs/none.yaml", "quickstart.yaml"):
        with pytest.raises(PlanError, match="no such file"):
            plan_file(Path(wrong))
    # A file of the same name that is there wins.
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "quickstart.yaml").write_text("name: mine")
    assert plan_file(Path("configs/quickstart.yaml")).read_text() == "name: mine"


def test_the_starting_plan_explains_every_section(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    assert json.loads(_run("init", str(path), "--json", cwd=tmp_path).stdout) == {"written": str(path)}
    text = path.read_text()
    scenario = load_scenario(path)
    for key in ("data", "clients", "backbone", "privacy", "threat", "methods", "attacks", "audits"):
        assert re.search(rf"^{key}:", text, re.MULTILINE)
    assert sum("#" in line for line in text.splitlines()) > 20
    assert len(scenario.cells) == 5  # raw features without noise; FedPFT and FedCGS without and with


def test_what_is_not_a_terminal_gets_no_colours_and_no_bars(tmp_path: Path) -> None:
    done = _run("list", "methods", cwd=tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr


def test_a_component_without_keys_is_not_met_with_silence(capsys: pytest.CaptureFixture[str]) -> None:
    print_keys([], "last_bits", quiet=False, as_json=False)
    assert capsys.readouterr().out == "last_bits has no keys: a plan gives its name alone.\n"


def test_list_prints_the_keys_of_one_component() -> None:
    text = CliRunner().invoke(cli, ["list", "audits", "dp_claim"])
    assert text.exit_code == 0
    first, about, *_ = text.output.splitlines()
    assert first == "mode  one of mechanism | rerun | auto; default mechanism"
    assert about.startswith("    Parts that are run again")
    names = CliRunner().invoke(cli, ["list", "methods", "fedcgs", "--quiet"]).output.splitlines()
    assert {"ridge", "personalize.lambda", "label", "adjacency"} <= set(names)
    rows = json.loads(CliRunner().invoke(cli, ["list", "methods", "fedcgs", "--json"]).output)
    assert [row["key"] for row in rows] == names


@pytest.mark.parametrize(("what", "name"), [("datasets", "digits"), ("methods", "fedpf")])
def test_list_says_what_has_keys(what: str, name: str) -> None:
    with pytest.raises(PlanError, match="allowed: "):
        CliRunner().invoke(cli, ["list", what, name], catch_exceptions=False)


def _in_a_terminal(code: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                break
            if not part:
                break
            shown += part
        assert process.wait() == 0
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def test_a_terminal_shows_the_time_left() -> None:
    code = (
        "from fedassay.support.progress import console\n"
        "with console(False) as progress, progress.step('training') as advance:\n"
        "    now = [0.0]\n"
        "    progress.bars.get_time = lambda: now[0]\n"
        "    for done in range(5):\n"
        "        now[0] += 10.0\n"
        "        advance(done, 10)\n"
        "        progress.bars.refresh()\n"
    )
    shown = _in_a_terminal(code)
    assert "training" in shown
    assert "1:00 left" in shown


def test_a_quiet_terminal_shows_nothing() -> None:
    code = (
        "from fedassay.support.progress import console\n"
        "with console(True) as progress, progress.step('training') as advance:\n"
        "    advance(1, 2)\n"
    )
    assert _in_a_terminal(code) == ""


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (59, "59 s"), (61, "1:01"), (660, "11:00"), (3787, "1:03:07")]
)
def test_clock(seconds: float, shown: str) -> None:
    assert _clock(seconds) == shown


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m fedassay list configs --json | head -c 1",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(("command", "code"), [("--help", 0), ("run --help", 0), ("--version", 0), ("--what", 2)])
def test_help_that_nobody_reads_is_no_failure(command: str, code: int, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "fedassay", *command.split()],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("library", ["click", "yaml", "h2"])
def test_what_lies_in_the_folder_is_not_run(library: str, tmp_path: Path) -> None:
    (tmp_path / f"{library}.py").write_text("raise SystemExit(77)")
    done = subprocess.run(
        [sys.executable, "-m", "fedassay", "list", "methods"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"fedcgs" in done.stdout


@pytest.mark.long
def test_workers_do_not_run_what_lies_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit(77)")
    plan = {
        "name": "p",
        "data": {"name": "digits", "limit": 300},
        "clients": {"count": 3},
        "backbone": {"name": "pixels"},
        "privacy": {"epsilon": [math.inf, 4]},
        "methods": [{"fedcgs": {}}],
        "attacks": ["message_algebra"],
        "audits": ["message"],
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    done = _run("run", "plan.yaml", "-o", "out", "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads((tmp_path / "out" / "record.json").read_text())["cells"]) == 2


def test_a_place_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = _run("init", "file/plan.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("given", ["nan", "inf", "-1", "1e308"])
def test_an_amount_is_a_number(given: str) -> None:
    result = CliRunner().invoke(cli, ["cache", "info", f"--limit={given}"])
    assert (result.exit_code, "Invalid value for '--limit'" in result.output) == (2, True)


def test_the_record_that_is_read_is_not_replaced(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text("{}")
    (tmp_path / "same").symlink_to(record)
    for command in (
        ["report", str(tmp_path), "-o", str(record)],
        ["report", str(record), "--format", "md", "-o", str(tmp_path / "same")],
        ["compare", str(tmp_path), str(tmp_path), "-o", str(record)],
        ["check", str(tmp_path), "--policy", "configs/policies/strict.yaml", "--sarif", str(record)],
    ):
        result = CliRunner().invoke(cli, command)
        assert isinstance(result.exception, PlanError)
        assert "is the record that is read" in str(result.exception)
    assert record.read_text() == "{}"


class _PanicException(BaseException):
    """As libraries in Rust raise it."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ValueError("max() arg is an empty sequence"),
            r"ValueError: max\(\) arg .* \(\w+\.py:\d+\); FEDASSAY_TRACE",
        ),
        (RecursionError("too deep"), r"RecursionError: too deep"),
        (_PanicException("index out of bounds"), r"PanicException: index out of bounds"),
        (_PanicException("PyObject pointer is null"), r"fedassay: out of memory \(PyObject pointer is null\)"),
        (KeyError("x" * 5000), r"KeyError: 'x+\.\.\. \(5,\d+ characters\)"),
    ],
)
def test_whatever_breaks_off_ends_in_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, words: str
) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(cli, "main", broken)
    monkeypatch.setattr("fedassay.cli.stop_in_order", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main()
    (said,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert re.search(words, said)
    monkeypatch.setenv("FEDASSAY_TRACEBACK", "1")
    with pytest.raises(type(error)):
        main()


def test_a_panic_of_a_library_is_an_error_of_its_stage() -> None:
    stages = Stages("cell", "cell", SILENT)
    for error in (_PanicException("PyObject pointer is null"), _PanicException("index out of bounds")):
        with stages("method"):
            raise error
    assert [each.message.partition(" (")[0] for each in stages.errors] == [
        "out of memory; --resume tries the cell again",
        "_PanicException: index out of bounds",
    ]
    assert stages.out_of_memory == ["method"]
    for wanted in (KeyboardInterrupt(), SystemExit(3), Stopped(15)):
        with pytest.raises(type(wanted)), stages("method"):
            raise wanted
