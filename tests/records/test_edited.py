"""Records that somebody edited by hand: each is refused in words, or every command has something to say of it."""

from __future__ import annotations

import copy
import io
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import fedassay
from fedassay.cli import cli
from fedassay.support.errors import FedassayError

PLAN: dict[str, Any] = {
    "name": "edited",
    "data": {"name": "digits", "limit": 120},
    "clients": {"count": 2, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "privacy": {"epsilon": [math.inf, 4.0]},
    "methods": ["raw_features", "fedcgs"],
    "attacks": ["message_algebra"],
    "audits": ["message"],
    "resources": {"threads": 1},
}
_COMMANDS = (
    *(("report", "RUN", "-o", "-", "--format", format) for format in ("html", "md", "json", "sarif", "junit")),
    *(("report", "RUN", "-o", "-", "--redact", "--format", format) for format in ("html", "md")),
    ("report", "RUN", "--redact", "--format", "csv", "-o", "TABLES"),
    *(("check", "RUN", "--unverified", "--policy", policy) for policy in ("strict", "research", "messages")),
    *(("verify", "RUN"), ("answer", "RUN"), ("next", "RUN"), ("account", "run", "RUN")),
    ("compare", "RUN", "RUN", "--redact", "-o", "-"),
)
_NUMBERS = (0, -1, 1, 1e308, -1e308, 5e-324, 10**30, -(10**18), 0.5, 2**63, "inf", "-inf", "nan", "Infinity")
_ODD: tuple[Any, ...] = (
    *(None, True, 0, 1.5, "", "x", "inf", "\u202e", "\x1b[2J", [], {}, [[]], [1, 2], ["x"], {"a": 1}),
    *("9" * 300, "0001-01-01T00:00:00+23:59", {"sha256": 5}),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edited") / "run"
    fedassay.run(PLAN, folder, progress=False)
    return folder


def _met(run: Path, tree: Any, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a command takes a run with this record; any other error than one of words is let through."""
    (run / "record.json").write_text(json.dumps(tree))
    names = {"RUN": str(run), "TABLES": str(run.parent / "tables")}
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO()))
        patched.setattr("sys.stderr", io.StringIO())
        try:
            cli.main([names.get(part, part) for part in command], prog_name="fedassay", standalone_mode=False)
        except (FedassayError, click.ClickException):
            return False
    return True


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    ):
        yield from _paths(item, (*path, key))


def _edited(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    out = copy.deepcopy(tree)
    place = out
    for part in path[:-1]:
        place = place[int(part) if isinstance(place, list) else part]
    place[path[-1]] = value
    return out


_FOUND: list[tuple[str, Any]] = [
    ("data.0.records.private", "inf"),
    ("data.0.records.private", None),
    ("data.0.records.public", -1),
    ("data.0.records.test", True),
    ("data.0.persons", {"persons": {"private": "x"}, "most_records": 3}),
    ("data.0.persons", {"persons": {"private": 3}}),
    ("data.0.persons", {"persons": {"private": 3}, "most_records": [1]}),
    ("cells.0.coverage.0.seconds", "inf"),
    ("cells.0.coverage.0.further_seconds", "-inf"),
    ("cells.0.seconds.method", "nan"),
    ("environment.finished", "0001-01-01T00:00:00+23:59"),
    ("environment.command", "x"),
    ("environment.plan", {"file": 5, "lines": []}),
    ("data", []),
    ("plan", None),
    ("plan", 0),
    ("plan.data.attributes", [[]]),
]


@pytest.mark.long
@pytest.mark.parametrize(("path", "value"), _FOUND)
def test_an_edited_number_is_refused_in_words_or_shown(
    run: Path, monkeypatch: pytest.MonkeyPatch, path: str, value: Any
) -> None:
    """`report --redact` of a record whose count of records was edited ended in a traceback."""
    whole = (run / "record.json").read_text()
    tree = _edited(json.loads(whole), tuple(path.split(".")), value)
    try:
        for command in (_COMMANDS[0], _COMMANDS[5], _COMMANDS[8], ("next", "RUN")):
            _met(run, tree, command, monkeypatch)
    finally:
        (run / "record.json").write_text(whole)


@pytest.mark.slow
def test_what_is_edited_anywhere_is_refused_in_words_or_shown(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (run / "record.json").read_text()
    tree, rng = json.loads(whole), random.Random(0)
    paths = list(_paths(tree))
    free = [path for path in paths if path[0] in ("plan", "environment", "data") or "params" in path]
    met = []
    try:
        for _ in range(600):
            path = rng.choice(free if rng.random() < 0.5 else paths)
            place: Any = tree
            for part in path:
                place = place[part]
            values = _NUMBERS if isinstance(place, int | float) and rng.random() < 0.7 else _ODD
            odd = _edited(tree, path, rng.choice(values))
            met += [_met(run, odd, command, monkeypatch) for command in rng.sample(_COMMANDS, 4)]
    finally:
        (run / "record.json").write_text(whole)
    assert 0 < sum(met) < len(met)
