"""The corridor's folders: no circle among them, nothing loose, and arrows that run one way."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fedassay"
ROOMS = ("methods", "attacks", "audits", "reports")
LOOSE = {"__init__", "__main__", "cli", "console"}
"""Modules that stand in no folder: the command line and the public face."""


def _modules() -> dict[str, Path]:
    """Every module below `fedassay`, the rooms included, by its dotted name."""
    places = [(PACKAGE, "")] + [(ROOT / room, f"{room}.") for room in ROOMS]
    names = {}
    for place, prefix in places:
        for path in place.rglob("*.py"):
            parts = path.relative_to(place).with_suffix("").parts
            if not prefix and parts[0] in (*ROOMS, "configs"):
                continue
            name = prefix + ".".join(parts)
            names[name.removesuffix(".__init__").removesuffix(".")] = path
    return names


@cache
def _import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def _imports(path: Path, names: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports, those for type checking included."""
    targets = set()
    for node in _import_statements(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedassay."):
            module = str(node.module).removeprefix("fedassay.")
            targets |= {full if (full := f"{module}.{alias.name}") in names else module for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "fedassay":
            targets |= {alias.name for alias in node.names if alias.name in names}
        elif isinstance(node, ast.Import):
            targets |= {alias.name.removeprefix("fedassay.") for alias in node.names if "fedassay." in alias.name}
    return targets & set(names)


def _circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_in_a_circle() -> None:
    names = _modules()
    assert len(names) > 200
    assert _circle({name: _imports(path, names) - {name} for name, path in names.items()}) == []


def test_no_folder_imports_itself_in_a_circle() -> None:
    names = _modules()
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        own = name.partition(".")[0]
        graph[own] |= {other.partition(".")[0] for other in _imports(path, names)} - {own}
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
    names = _modules()
    for name, path in names.items():
        if name.startswith("support."):
            assert all(other.startswith("support") for other in _imports(path, names)), name


def test_files_are_as_short_as_contributing_says() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in _modules().items()}
    assert sum(lines <= 300 for lines in lengths.values()) >= 0.9 * len(lengths)
    assert {name for name, lines in lengths.items() if lines > 520} <= {"cli"}
