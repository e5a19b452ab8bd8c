"""The terminal's one door: what others wrote reaches it without control characters, and nothing goes round it."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from sources import parsed

from fedassay.cli import cli, main
from fedassay.support.errors import PlanError
from fedassay.support.terminal import Output, Styled, say, say_json, say_lines

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "x\x1b[2J\x9b2J\u202e\u2028\x07\r\ny"


def _hides_nothing(text: str) -> bool:
    return text.removesuffix("\n").replace("\n", "").isprintable()


def test_a_line_is_one_line_and_plain(capsys: pytest.CaptureFixture[str]) -> None:
    say("a ", HOSTILE, Styled(HOSTILE, "red", bold=True))
    say(HOSTILE, err=True)
    say_json('{"a": "\x7f\x9b\u202e"}\n')
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert len(shown.err.splitlines()) == 1
    assert _hides_nothing(shown.out)
    assert _hides_nothing(shown.err)


def test_several_lines_keep_their_ends_alone(capsys: pytest.CaptureFixture[str]) -> None:
    say_lines("one\x1b[1A\ntwo\u202e")
    assert capsys.readouterr().out == "one\\x1b[1A\ntwo\\u202e\n"


def test_nothing_prints_but_the_door() -> None:
    """A call of print, click.echo or of a standard stream anywhere else would go round it."""
    found = []
    doors = {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"}
    rooms = ("src/fedassay", "methods", "attacks", "audits", "reports")
    for path, tree in parsed(r"\bprint\b|echo|\.write\b", *(ROOT / room for room in rooms)):
        for node in ast.walk(tree):
            if path.name != "terminal.py" and isinstance(node, ast.Call) and ast.unparse(node.func) in doors:
                found.append(f"{path.name}:{node.lineno}")
    assert not found


def _outputs() -> Iterator[tuple[str, click.Parameter]]:
    for name, command in cli.commands.items():
        for parameter in command.params:
            if isinstance(parameter.type, Output):
                yield name, parameter


def test_every_option_that_names_an_output_is_of_that_type() -> None:
    named = {(command, max(parameter.opts, key=len)) for command, parameter in _outputs()}
    assert named == {
        ("run", "--output"),
        ("audit", "--output"),
        ("view", "--output"),
        ("report", "--output"),
        ("similarity", "--output"),
        ("compare", "--output"),
        ("look", "--output"),
        ("pack", "--output"),
        ("check", "--sarif"),
        ("check", "--junit"),
        ("init", "file"),
    }
    written = {"-o", "--output", "--sarif", "--junit"}
    for command in cli.commands.values():
        for parameter in command.params:
            assert isinstance(parameter.type, Output) or not written & set(parameter.opts)


@pytest.mark.parametrize(
    "args",
    [
        ["run", "plan.yaml", "-o", "", "--force"],
        ["run", "plan.yaml", "--output="],
        ["audit", "folder", "-o", ""],
        ["report", "run", "-o", " "],
        ["compare", "a", "b", "-o", ""],
        ["check", "run", "--policy", "p", "--sarif", ""],
        ["check", "run", "--policy", "p", "--junit", ""],
        ["init", ""],
    ],
)
def test_an_empty_output_is_refused(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "important.csv").write_text("mine")
    monkeypatch.setattr(sys, "argv", ["fedassay", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "given an empty text; allowed: a path" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["tables", "important.csv"]


@pytest.mark.parametrize("command", ["run", "audit"])
def test_a_run_cannot_go_to_a_stream(command: str) -> None:
    with pytest.raises(PlanError, match="a run is a folder, not a stream"):
        CliRunner().invoke(cli, [command, "x", "-o", "-"], catch_exceptions=False)


@pytest.mark.parametrize(
    "args", [[HOSTILE], ["run", HOSTILE], ["report", HOSTILE], ["list", HOSTILE], [f"--{HOSTILE}"]]
)
def test_what_was_typed_comes_back_plain(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedassay", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert "x\\x1b[2J" in shown
    assert _hides_nothing(shown)


def _alone(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, encoding="utf-8"
    )


def test_log_lines_are_plain() -> None:
    done = _alone(
        "import logging\nfrom fedassay.support.terminal import guard_standard_error\nguard_standard_error()\n"
        f"logging.getLogger('fedassay.x').warning('odd: %s', {HOSTILE!r})\n"
    )
    assert done.stderr == "odd: x\\x1b[2J\\x9b2J\\u202e\\u2028\\x07\\x0d\\x0ay\n"


def test_tracebacks_are_plain_and_end_in_1() -> None:
    done = _alone(
        "from fedassay.support.terminal import guard_standard_error\nguard_standard_error()\n"
        f"raise RuntimeError({HOSTILE!r})\n"
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "RuntimeError: x\\x1b[2J" in done.stderr
    assert _hides_nothing(done.stderr)


def test_logging_that_somebody_has_set_up_is_left_alone() -> None:
    root = logging.getLogger()
    before = list(root.handlers)
    assert before  # pytest's
    from fedassay.support.terminal import guard_standard_error

    hook = sys.excepthook
    try:
        guard_standard_error()
    finally:
        sys.excepthook = hook
    assert root.handlers == before
