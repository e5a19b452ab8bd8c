"""The corridor's folders: no circle among them, nothing loose, and arrows that run one way."""

from __future__ import annotations

import ast
import importlib.util
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from sources import parsed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fedassay"
ROOMS = ("methods", "attacks", "audits", "reports")
_SPEC = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "architecture.py")
assert _SPEC is not None
assert _SPEC.loader is not None
picture = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(picture)
LOOSE = {"__init__", "__main__", "cli", "console"}
"""Modules that stand in no folder: the command line and the public face."""


def _circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_in_a_circle() -> None:
    names = picture.modules()
    assert len(names) > 200
    assert _circle({name: picture.imports(path) - {name} for name, path in names.items()}) == []


def test_no_folder_imports_itself_in_a_circle() -> None:
    names = picture.modules()
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        own = name.partition(".")[0]
        graph[own] |= {other.partition(".")[0] for other in picture.imports(path)} - {own}
    assert _circle(graph) == []


def test_nothing_stands_loose_in_the_corridor() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} <= LOOSE


def test_every_folder_says_what_belongs_there() -> None:
    for place in (PACKAGE, *(ROOT / room for room in ROOMS)):
        for init in place.rglob("__init__.py"):
            assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), (
                f"{init.relative_to(ROOT)}: no docstring"
            )


def test_support_imports_nothing_else_of_the_package() -> None:
    names = picture.modules()
    for name, path in names.items():
        if name.startswith("support."):
            assert all(other.startswith("support") for other in picture.imports(path)), name


def test_files_are_as_short_as_contributing_says() -> None:
    lengths = {
        name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in picture.modules().items()
    }
    assert sum(lines <= 300 for lines in lengths.values()) >= 0.9 * len(lengths)
    assert {name for name, lines in lengths.items() if lines > 520} <= {"cli"}


def test_the_picture_of_the_architecture_is_that_of_the_imports() -> None:
    assert picture.main(["--check"]) == 0


def test_the_picture_shows_what_is_imported() -> None:
    assert {"support", "contracts", "exchange"} <= picture.folders()["methods"]
    assert not picture.folders()["support"]
    assert not picture.folders()["methods"] & {"attacks", "audits", "reports"}
    another = picture.PAGE.read_text(encoding="utf-8").replace("` | 1 |", "` |  |", 1)
    assert picture.written(another) == picture.PAGE.read_text(encoding="utf-8")


def test_no_module_imports_the_public_face() -> None:
    names = {path: name for name, path in picture.modules().items()}
    for path, tree in parsed(r"(import|from)\b.*\bfedassay\b(?!\.)", PACKAGE, *(ROOT / room for room in ROOMS)):
        name = names.get(path)
        for node in ast.walk(tree):
            taken = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            face = "fedassay" in taken or (isinstance(node, ast.ImportFrom) and node.module == "fedassay")
            assert not face or name in ("cli", "__main__") or _of_a_folder(node), f"{name}: {ast.unparse(node)}"


def _of_a_folder(node: ast.AST) -> bool:
    """Whether `from fedassay import ...` names folders, which are no part of the face."""
    return isinstance(node, ast.ImportFrom) and all((PACKAGE / alias.name).is_dir() for alias in node.names)
