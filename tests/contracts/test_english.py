"""Docstrings begin with a sentence or a noun phrase, and so do their entries: never with a free relative."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("attacks", "audits", "methods", "reports", "src/fedassay")

# A question is a sentence: `Are label histograms recovered?`
FREE = re.compile(r"(What|Which|How|Who|Whom|Whose|Where|When|Why|Whatever|Whoever|Whichever)\b(?!.*\?)")


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else []:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                yield each.value


@pytest.mark.parametrize("room", ROOMS)
def test_no_docstring_and_no_entry_begins_with_a_free_relative(room: str) -> None:
    found = []
    for path in sorted((ROOT / room).rglob("*.py")):
        for text in _docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            first = str(text.value).strip().split("\n")[0]
            entries = re.findall(r"^ {4,}\w+: (.*)$", str(text.value), re.MULTILINE)
            found += [f"{path.name}:{text.lineno}: {each}" for each in (first, *entries) if FREE.match(each)]
    assert found == []
