"""No wall clock decides anything in attacks and audits: one plan and seed give one record under any load."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "thread_time", "time_ns"}
FILES = sorted(path for room in ("attacks", "audits", "methods") for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_clock_is_read(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert all(name.name not in ("time", "timeit", "datetime") for name in node.names), path
        if isinstance(node, ast.ImportFrom):
            assert node.module not in ("time", "timeit", "datetime"), path
        if isinstance(node, ast.Attribute):
            assert node.attr not in CLOCKS, path
