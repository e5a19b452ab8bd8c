"""Every name that a page's Python imports from the package is there, in blocks that run for minutes as well."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def _imported(page: Path) -> Iterator[tuple[str, str]]:
    """Module and name of every import of a page's Python blocks that can be read as Python."""
    for block in re.findall(
        r"^```py[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        try:
            tree = ast.parse(block)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedassay"):
                yield from ((str(node.module), alias.name) for alias in node.names)


WANTED = sorted({wanted for page in PAGES for wanted in _imported(page)})


def test_pages_import_much() -> None:
    assert len(WANTED) > 30


@pytest.mark.parametrize(("module", "name"), WANTED)
def test_what_a_page_imports_is_there(module: str, name: str) -> None:
    if not hasattr(importlib.import_module(module), name):
        importlib.import_module(f"{module}.{name}")
