"""docs/packages.md says where every package has its place: each is imported there."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROW = re.compile(r"^\| ([\w-]+) \| `(\w+)` \| `([^`]+)` \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(Path("docs/packages.md").read_text(encoding="utf-8"))


def imported(source: str) -> set[str]:
    """Top-level packages that a module imports, by statement or by `import_module`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            found.add(str(node.args[0].value).partition(".")[0])
    return found


@pytest.mark.parametrize(("package", "module", "file", "words"), ROWS, ids=[row[0] for row in ROWS])
def test_each_package_is_imported_where_the_table_says(package: str, module: str, file: str, words: str) -> None:
    assert module in imported(Path(file).read_text(encoding="utf-8")), package
    for other in re.findall(r"`([\w/]+\.py)`", words):
        assert module in imported(Path(other).read_text(encoding="utf-8")), (package, other)


def test_every_dependency_is_in_the_table() -> None:
    declared = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = {re.match(r"[A-Za-z0-9-]+", each)[0].lower() for each in declared}  # type: ignore[index]
    assert names == {row[0] for row in ROWS}


def test_an_import_that_is_not_there_is_seen() -> None:
    assert imported("import os\nfrom skimage.metrics import x\nimport_module('torchvision.models')") == {
        "os",
        "skimage",
        "torchvision",
    }
