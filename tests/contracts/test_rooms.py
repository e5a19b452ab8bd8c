"""The house itself: rooms and corridor, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("methods", "attacks", "audits", "reports", "configs")
KNOW_ALL = ("execution", "api", "__init__.py", "cli.py", "console.py")


@cache
def _imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def _room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "fedassay" and parts[1] in ROOMS else None


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_linked_into_the_package(room: str) -> None:
    link = ROOT / "src" / "fedassay" / room
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / room


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "configs"])
def test_rooms_do_not_import_each_other(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        for module in _imports(path):
            other = _room_of(module)
            if module.startswith("fedassay.audits.stats"):
                continue
            assert other in (None, room), f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.long
def test_only_execution_the_command_line_and_the_public_face_know_the_rooms() -> None:
    corridor = [
        path
        for path in (ROOT / "src" / "fedassay").rglob("*.py")
        if path.relative_to(ROOT / "src" / "fedassay").parts[0] not in ROOMS
    ]
    assert len(corridor) > 20
    for path in corridor:
        if path.relative_to(ROOT / "src" / "fedassay").parts[0] in KNOW_ALL:
            continue
        for module in _imports(path):
            if module.startswith("fedassay.audits.stats"):
                continue
            assert _room_of(module) is None, f"{path.relative_to(ROOT)} imports {module}"


def test_torchvision_is_imported_in_one_place() -> None:
    for folder in [ROOT / "src" / "fedassay", *(ROOT / room for room in ROOMS)]:
        for path in folder.rglob("*.py"):
            if path.parts[-2:] == ("support", "torchvision.py"):
                continue
            assert not any(module.split(".")[0] == "torchvision" for module in _imports(path)), path


@pytest.mark.long
@pytest.mark.parametrize("command", [["--help"], ["list", "methods"], ["list", "configs"]])
def test_the_command_line_starts_without_torch(command: list[str]) -> None:
    code = (
        "import sys; from fedassay.cli import cli\n"
        f"cli.main({command!r}, standalone_mode=False)\n"
        "heavy = {'torch', 'scipy', 'diffusers', 'sklearn', 'torchvision'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
