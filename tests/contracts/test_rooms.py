"""The house itself: rooms and corridor, who may import whom, and what a wheel holds."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("methods", "attacks", "audits", "reports", "configs")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


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


def test_only_execution_and_the_command_line_know_the_rooms() -> None:
    corridor = [
        path
        for path in (ROOT / "src" / "fedassay").rglob("*.py")
        if path.relative_to(ROOT / "src" / "fedassay").parts[0] not in ROOMS
    ]
    assert len(corridor) > 20
    for path in corridor:
        if path.relative_to(ROOT / "src" / "fedassay").parts[0] in {"execution", "cli.py"}:
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=True,
        capture_output=True,
    )
    return next(out.glob("*.whl"))


def test_every_file_of_every_room_is_in_the_wheel(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {".py", ".yaml", ".j2", ".css", ".js", ".html", ".typed"}
    for path in (
        (ROOT / "src" / "fedassay").rglob("*", recurse_symlinks=True)
        if sys.version_info >= (3, 13)
        else [
            *(ROOT / "src" / "fedassay").rglob("*"),
            *(item for room in ROOMS for item in (ROOT / "src" / "fedassay" / room).rglob("*")),
        ]
    ):
        if path.is_file() and path.suffix in wanted and "__pycache__" not in path.parts:
            assert str(path.relative_to(ROOT / "src")) in inside


def test_the_wheel_runs_by_itself(wheel: Path, tmp_path: Path) -> None:
    """`list` and a dry run from the unpacked wheel, with the checkout out of the way."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import fedassay, sys; from fedassay.cli import cli\n"
        f"assert fedassay.__file__.startswith({str(tmp_path)!r}), fedassay.__file__\n"
        "cli.main(['list', 'configs'], standalone_mode=False)\n"
        f"cli.main(['run', {str(tmp_path / 'site/fedassay/configs/quickstart.yaml')!r}, '--dry-run'], "
        "standalone_mode=False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "configs/quickstart.yaml" in done.stdout
    assert "fedcgs-epsinf" in done.stdout
