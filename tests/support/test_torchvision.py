"""Both branches of the one door to torchvision: a good installation and a CUDA wheel beside CPU torch."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedassay.support import torchvision as torchvision_compat
from fedassay.support.torchvision import import_torchvision

_BROKEN = """
import torch
from . import part
if not hasattr(torch.ops.torchvision, "nms"):
    raise RuntimeError("operator torchvision::nms does not exist")
# What torchvision does on import, and what fails without the operators.
torch.library.register_fake("torchvision::nms", lambda dets, scores, iou_threshold: dets)
torch.library.register_fake("torchvision::qnms", lambda dets, scores, iou_threshold: dets)
imported = part.count
"""
_PART = """
import builtins
builtins.counted = getattr(builtins, "counted", 0) + 1
count = builtins.counted
"""


@pytest.fixture
def without_torchvision() -> Iterator[None]:
    """Hide the real torchvision, and put the very same modules back afterwards."""
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torchvision"}
    for name in kept:
        del sys.modules[name]
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    sys.modules.update(kept)


def _package(folder: Path, source: str) -> None:
    (folder / "torchvision").mkdir()
    (folder / "torchvision" / "__init__.py").write_text(source)
    (folder / "torchvision" / "part.py").write_text(_PART)


@pytest.mark.long
def test_missing_operators_are_declared_and_the_import_is_repeated(tmp_path: Path) -> None:
    _package(tmp_path, _BROKEN)
    code = "import fedassay.support.torchvision as c; print(c.import_torchvision().imported, len(c._declared))"
    source = Path(torchvision_compat.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(source)!r}]; {code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    # The submodule was imported twice: nothing of the failed import was left behind.
    assert done.stdout.split() == ["2", "1"], done.stderr


def test_a_good_installation_is_left_alone(
    tmp_path: Path, without_torchvision: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(tmp_path, "whole = True")
    monkeypatch.syspath_prepend(str(tmp_path))
    declared = list(torchvision_compat._declared)
    assert import_torchvision().whole
    assert torchvision_compat._declared == declared


@pytest.mark.parametrize(
    ("source", "error"),
    [("raise RuntimeError('something else')", RuntimeError), ("raise ImportError('no part')", ImportError)],
)
def test_other_failures_are_not_hidden(
    tmp_path: Path,
    without_torchvision: None,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    error: type[Exception],
) -> None:
    _package(tmp_path, source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(error):
        import_torchvision()


def test_the_installed_torchvision_works() -> None:
    torchvision = import_torchvision()
    assert isinstance(torchvision, types.ModuleType)
    assert torchvision is import_torchvision()
    assert callable(torchvision.models.resnet18)
    assert callable(torchvision.datasets.FashionMNIST)


def test_no_other_module_imports_torchvision() -> None:
    source = Path(torchvision_compat.__file__).parent
    offenders = [
        str(Path(folder) / name)
        for folder, _, names in os.walk(source, followlinks=True)  # the rooms are links
        for name in names
        if name.endswith(".py")
        for line in Path(folder, name).read_text(encoding="utf-8").splitlines()
        if line.strip().startswith(("import torchvision", "from torchvision ", "from torchvision."))
    ]
    assert offenders == []
