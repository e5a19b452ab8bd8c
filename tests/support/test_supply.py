"""What is installed: every version is pinned, every file has a hash, every licence is listed."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
_HASHED = re.compile(
    r"^([A-Za-z0-9._-]+)==([^\s;\\+]+)[^\n]*((?:\n +--hash=sha256:[0-9a-f]{64}(?: \\)?)+)", re.MULTILINE
)
_CUDA = ("nvidia-", "cuda-", "triton")


def _pins(name: str) -> dict[str, str]:
    """Versions by name; a build of torch counts as its version."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\+]+)", (ROOT / name).read_text(), re.MULTILINE))


def _wanted(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in extras for line in project["optional-dependencies"][extra]),
    ]
    return {re.split(r"[\[<>=!~; ]", line)[0].lower().replace("_", "-") for line in lines}


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("constraints.txt", ("dev", "docs", "sign", "mlflow", "ray", "bench")),
        ("locked.txt", ("dev", "docs", "sign")),
        ("constraints-flower.txt", ("dev", "flower")),
    ],
)
def test_every_dependency_is_pinned(file: str, extras: tuple[str, ...]) -> None:
    pins = _pins(file)
    assert _wanted(*extras) <= set(pins)
    text = (ROOT / file).read_text()
    loose = [
        line for line in text.splitlines() if line and not line.startswith((" ", "#", "-")) and "==" not in line
    ]
    assert loose == []


@pytest.mark.parametrize("file", ["locked.txt", "locked-cuda.txt"])
def test_every_line_of_the_locks_has_hashes_and_the_version_of_the_constraints(file: str) -> None:
    hashed = {name: version for name, version, _ in _HASHED.findall((ROOT / file).read_text())}
    assert hashed == _pins(file)
    constraints = _pins("constraints.txt")
    assert {name: constraints[name] for name in hashed} == hashed


def test_the_cpu_lock_asks_for_no_cuda_and_the_other_adds_it_alone() -> None:
    cpu, cuda = _pins("locked.txt"), _pins("locked-cuda.txt")
    assert not [name for name in cpu if name.startswith(_CUDA)]
    added = cuda.keys() - cpu.keys()
    assert added
    assert all(name.startswith(_CUDA) for name in added)
    assert cpu.items() <= cuda.items()
    assert re.search(
        r"^torch==[0-9.]+\+cpu ; sys_platform == 'linux'", (ROOT / "locked.txt").read_text(), re.MULTILINE
    )


def test_what_results_depend_on_is_the_same_beside_flower() -> None:
    ours, theirs = _pins("constraints.txt"), _pins("constraints-flower.txt")
    for name in ("torch", "torchvision", "numpy", "scipy", "opacus", "dp-accounting", "scikit-learn"):
        assert ours[name] == theirs[name]


def test_the_version_is_the_same_wherever_it_stands() -> None:
    import fedassay

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert fedassay.__version__ == project["version"] == cited["version"]
    assert cited["license"] == project["license"]


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("licences", ROOT / "docs" / "licences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_licences_is_what_is_installed(licences: ModuleType) -> None:
    known = licences.known()
    assert {key.partition("==")[0] for key in known} == set(_pins("locked.txt"))
    found = 0
    for name, version in licences.pinned().items():
        words = licences.installed(name, version)
        if words is not None:
            found += 1
            assert known[f"{name}=={version}"] == words
    assert found > 40  # the tests run in an environment of these very versions


def test_the_page_is_made_of_the_metadata(licences: ModuleType) -> None:
    from email.message import Message

    about = Message()
    about["License"] = "BSD\nmore text"
    assert licences.licence(about) == "BSD"
    about["Classifier"] = "License :: OSI Approved :: MIT License"
    assert licences.licence(about) == "MIT License"
    about["License-Expression"] = "Apache-2.0"
    assert licences.licence(about) == "Apache-2.0"
    assert licences.licence(Message()) == "see its files"
