"""What a release is tried with: every extra for users has its question, and a step that fails ends the work."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from fedassay.cli import cli

ROOT = Path(__file__).resolve().parents[2]
CONTRIBUTORS = {"dev", "docs", "bench", "flower-simulation"}


@pytest.fixture
def extras() -> Iterator[ModuleType]:
    yield from _script("release_extras")


@pytest.fixture
def release(extras: ModuleType) -> Iterator[ModuleType]:
    yield from _script("release")


def _script(name: str) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


def test_every_extra_for_users_is_asked_for_its_work(extras: ModuleType) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {extra.__name__ for extra in extras.EXTRAS}
    assert asked == set(project["optional-dependencies"]) - CONTRIBUTORS
    assert all(extra.__doc__ for extra in extras.EXTRAS)


@pytest.mark.long
@pytest.mark.parametrize("extra", ["sign", "tables", "dicom"])
def test_what_an_extra_is_asked_works(
    extra: str, extras: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if extra == "sign":
        pytest.importorskip("securesystemslib")
        Path("small.yaml").write_text(extras.SMALL)
        ran = CliRunner().invoke(cli, ["run", "small.yaml", "-o", "run", "--quiet"], standalone_mode=False)
        assert ran.exception is None
    getattr(extras, extra)()
    assert (tmp_path / ("signed.zip" if extra == "sign" else "plan.yaml")).is_file()


def test_a_command_that_answers_with_another_code_fails(
    extras: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "cli", lambda words, standalone_mode: int(words == ["verify", "run"]))
    extras._command("pack", "run")
    with pytest.raises(AssertionError, match="verify"):
        extras._command("verify", "run")


def test_the_first_step_that_fails_ends_the_work_with_what_it_said(release: ModuleType, tmp_path: Path) -> None:
    release._run("fine", [sys.executable, "-c", "print('all fine')"], tmp_path)
    code = "import sys; print('said'); print('meant', file=sys.stderr); sys.exit(3)"
    with pytest.raises(SystemExit, match=r"broken: exit 3\nsaid\nmeant\n") as ended:
        release._run("broken", [sys.executable, "-c", code], tmp_path)
    assert isinstance(ended.value.code, str)  # which is printed, and ends with 1


def test_what_is_not_committed_is_not_built(release: ModuleType, tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    source = tmp_path / "source"
    with pytest.MonkeyPatch.context() as patch:
        steps: list[list[str]] = []
        patch.setattr(release, "_run", lambda name, command, folder: steps.append(list(command)))
        wheel = release.built(source, tmp_path / "out")
    assert (source / "src" / "fedassay" / "methods").is_symlink()
    assert not (source / ".venv").exists()
    assert [step[2] for step in steps] == ["build", "twine"]
    assert str(wheel) in steps[1]
