"""The only code that writes to the terminal; its text was made plain by `fedassay.support.text`."""

from __future__ import annotations

import io
import logging
import math
import os
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import click

from fedassay.support.errors import PlanError
from fedassay.support.text import cut, plain, plain_json, plain_lines

LONGEST_MESSAGE = 2_000
"""Characters of an error; its quotations may have any length."""

_STREAMS = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}


@dataclass(frozen=True)
class Styled:
    """A piece of a line with a style; its text is made plain like all other text."""

    text: str
    colour: str | None = None
    bold: bool = False


def _echo(words: str | bytes, err: bool = False, end: bool = True) -> None:
    """Write to a stream; if its reader closes it early, as `head` does, the command continues without output.

    Otherwise the reader of a pipe would decide the exit code that a gate asks for.
    """
    try:
        click.echo(words, nl=end, err=err)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())


def say(*parts: str | Styled, err: bool = False) -> None:
    """Print one line, made of pieces."""
    _echo(_no_command("".join(_shown(part) for part in parts)), err)


def say_lines(words: str, err: bool = False) -> None:
    """Print text with line ends written by this package."""
    _echo(_no_command(plain_lines(words)), err)


def say_json(document: str) -> None:
    """Print a JSON document."""
    _echo(plain_json(document).removesuffix("\n"))


def say_problem(error: click.ClickException) -> None:
    """Print the error of a command line: one line, or the help where no command was given."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or isinstance(error, click.exceptions.NoArgsIsHelpError):
        buffer = io.StringIO()
        error.show(buffer)
        say_lines(buffer.getvalue().removesuffix("\n"), err=True)
        return
    root, _, command = context.command_path.partition(" ")
    words = " ".join(error.format_message().split()).removesuffix(".")
    where = f"{root}: {command}: " if command else f"{root}: "
    say(cut(f"{where}{words}; {context.command_path} --help says what is allowed", LONGEST_MESSAGE), err=True)


def is_stream(output: Path | None) -> bool:
    """Whether an output means standard output: `-` or `/dev/stdout`."""
    return output is not None and str(output) in _STREAMS


def stream_page(text: str) -> None:
    """Write a page to standard output as UTF-8, regardless of the terminal's encoding."""
    _echo(text.encode("utf-8"), end=False)


class Output(click.Path):
    """The type of options that name an output path, which must not be empty.

    An empty path would be the current folder: a script gives it if a variable of the script is not set.

    Args:
        folder: Whether it names a folder, which cannot go to standard output.
    """

    def __init__(self, folder: bool = False) -> None:
        super().__init__(path_type=Path)
        self._folder = folder

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path.

        Raises:
            PlanError: The path is empty.
        """
        if isinstance(value, str) and not value.strip():
            name = "output" if param is None else max(param.opts, key=len)
            raise PlanError(f"{name}: given an empty text; allowed: a path (`.` is the current folder)")
        path: Path = super().convert(value, param, ctx)  # type: ignore[arg-type, assignment]
        if self._folder and is_stream(path):
            raise PlanError(f"-o {path}: a run is a folder, not a stream; allowed: the path of a folder")
        return path


class Amount(click.FloatRange):
    """The type of options that name an amount: a number from 0 to `most`."""

    def __init__(self, most: float) -> None:
        super().__init__(min=0, max=most)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; NaN, which passes every range, is refused."""
        number = float(super().convert(value, param, ctx))  # type: ignore[arg-type]
        return self.fail(f"{number} is not a number", param, ctx) if math.isnan(number) else number


class _PlainFormatter(logging.Formatter):
    """Log lines as Python prints them where nothing is set up, made plain."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it where there is one."""
        message, _, trace = super().format(record).partition("\nTraceback ")
        return plain(message) + (plain_lines(f"\nTraceback {trace}") if trace else "")


def guard_standard_error() -> None:
    """Make plain the output of Python itself in this process: log lines, and the traceback of an internal error.

    Log lines are left to the caller's own configuration of logging, if there is one.
    """
    sys.excepthook = _print_plain
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(logging.WARNING)
        handler.setFormatter(_PlainFormatter())
        logging.getLogger().addHandler(handler)


def _print_plain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    say_lines("".join(traceback.format_exception(kind, error, trace)).removesuffix("\n"), err=True)


def _no_command(words: str) -> str:
    """Disarm the commands of CI systems in a text: `##vso[` or `##[` anywhere, `::` at the start of a line."""
    return re.sub(r"(?m)##(?=\w*\[)|^(?=(?:\s|\x1b\[[\d;]*m)*::)", lambda m: "# #" if m[0] else "_", words)


def _shown(part: str | Styled) -> str:
    if isinstance(part, Styled):
        return click.style(plain(part.text), fg=part.colour, bold=part.bold or None)
    return plain(part)
