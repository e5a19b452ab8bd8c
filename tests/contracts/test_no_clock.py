"""No wall clock decides anything in attacks and audits: one plan and seed give one record under any load."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from sources import parsed

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"time", "timeit", "datetime"}
CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "thread_time", "time_ns"}
WORDS = rf"\b(import .*\b({'|'.join(MODULES)})|from ({'|'.join(MODULES)})|{'|'.join(CLOCKS)})\b"


def _reads_a_clock(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(name.name in MODULES for name in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in MODULES
    return isinstance(node, ast.Attribute) and node.attr in CLOCKS


@pytest.mark.parametrize("room", ["attacks", "audits", "methods"])
def test_no_clock_is_read(room: str) -> None:
    for path, tree in parsed(WORDS, ROOT / room):
        lines = [getattr(node, "lineno", 0) for node in ast.walk(tree) if _reads_a_clock(node)]
        assert not lines, f"{path.relative_to(ROOT)}:{lines}"


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "import os, datetime",
        "import timeit as t",
        "from time import sleep",
        "x = clock.monotonic()",
    ],
)
def test_the_search_for_clocks_sees_them(line: str, tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text(f"import os\n{line}\n")
    ((_, tree),) = parsed(WORDS, tmp_path)
    assert sum(map(_reads_a_clock, ast.walk(tree))) == 1
