"""Wheels: exactly what is tracked, nothing of an earlier build, and a plain refusal where a room is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import forked
import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("methods", "attacks", "audits", "reports", "configs")

pytestmark = [pytest.mark.wheel, pytest.mark.long]


def _run(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _build(checkout: Path, *kinds: str) -> subprocess.CompletedProcess[str]:
    return _run("-m", "build", *kinds, "--no-isolation", "--outdir", checkout / "dist", folder=checkout)


def _names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def _checkout(folder: Path) -> set[str]:
    """Fill `folder` with the files that git would track, links as links; returns their names."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    for name in names:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        else:
            target.write_bytes(source.read_bytes())
    return names


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that nobody changes."""
    folder = tmp_path_factory.mktemp("clean")
    _checkout(folder)
    return folder


@pytest.fixture
def checkout(clean: Path, tmp_path: Path) -> Path:
    """A checkout to break by removing or adding: its files are those of the clean one."""
    return Path(shutil.copytree(clean, tmp_path / "checkout", symlinks=True, copy_function=os.link))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """A checkout with a wheel in `dist`, made where an earlier build had left things; and the tracked files."""
    folder = tmp_path_factory.mktemp("built")
    names = _checkout(folder)
    for stale in ("build/lib/fedassay/deleted.py", "build/lib/fedassay/attacks/deleted.py"):
        (folder / stale).parent.mkdir(parents=True, exist_ok=True)
        (folder / stale).write_text("raise AssertionError\n")
    # Neither Python nor package data; an earlier manifest that names it would bring it in.
    (folder / "src/fedassay/notes.txt").write_text("notes\n")
    (folder / "src/fedassay.egg-info").mkdir()
    (folder / "src/fedassay.egg-info/SOURCES.txt").write_text("src/fedassay/notes.txt\n")
    done = _build(folder, "--wheel")
    assert done.returncode == 0, done.stderr
    return folder, names


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, set[str]]) -> Path:
    """The wheel of `built`."""
    return next((built[0] / "dist").glob("*.whl"))


def test_it_holds_exactly_the_tracked_files(built: tuple[Path, set[str]], wheel: Path) -> None:
    wanted = set()
    for name in built[1]:
        path = PurePosixPath(name)
        if path.parts[0] in ROOMS:
            wanted.add(f"fedassay/{name}")
        elif path.parts[:2] == ("src", "fedassay") and path.parts[2:] not in [(room,) for room in ROOMS]:
            wanted.add(str(path.relative_to("src")))
    assert len(wanted) > 200
    assert {name for name in _names(wheel) if ".dist-info/" not in name} == wanted


def test_it_runs_by_itself(wheel: Path, tmp_path: Path) -> None:
    """`list` and a dry run from the unpacked wheel, with the checkout out of the way."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import fedassay, sys; from fedassay.cli import cli\n"
        f"assert fedassay.__file__.startswith({str(tmp_path)!r}), fedassay.__file__\n"
        "cli.main(['list', 'configs'], standalone_mode=False)\n"
        f"cli.main(['run', {str(tmp_path / 'site/fedassay/configs/quickstart.yaml')!r}, '--dry-run'], "
        "standalone_mode=False)"
    )
    done = _run("-c", code, folder=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr
    assert "configs/quickstart.yaml" in done.stdout
    assert "fedcgs-epsinf" in done.stdout


_CHAIN = """
import hashlib, json, sys, zipfile
from pathlib import Path
from click.testing import CliRunner
import fedassay
from fedassay.cli import cli
from fedassay.support.errors import FedassayError

assert fedassay.__file__.startswith(sys.argv[1]), fedassay.__file__

def code(*words):
    done = CliRunner().invoke(cli, list(words), standalone_mode=False)
    assert done.exception is None or isinstance(done.exception, FedassayError), done.exception
    return 2 if done.exception else done.return_value

Path("policy.yaml").write_text("name: kept\\ncells: {epsilon: finite}\\nmaximum: {accounted: 3.0}\\n")
said = {"run": code("run", "plan.yaml", "-o", "run", "--quiet"),
        "sign": code("sign", "run", "--key", "mine"),
        "signed run": code("verify", "run", "--key", "mine.pub"),
        "pack": code("pack", "run", "--whole", "-o", "whole.zip"),
        "whole": code("verify", "whole.zip", "--key", "mine.pub"),
        "check": code("check", "whole.zip", "--policy", "policy.yaml", "--key", "mine.pub")}
with zipfile.ZipFile("whole.zip") as packed:
    files = {name: packed.read(name) for name in packed.namelist()}

def tried(step):
    with zipfile.ZipFile("forged.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    for key in ([], ["--key", "mine.pub"]):
        words = ["forged.zip", *key]
        said[step, "verify", len(key)] = code("verify", *words)
        said[step, "check", len(key)] = code("check", *words, "--policy", "policy.yaml")

# Each step of the forger mends what gave the one before away.
before = files["record.json"]
files["record.json"] = before.replace(b'"leak"', b'"no_leak_found"')
assert files["record.json"] != before
tried("record")
statement = json.loads(files["statement.json"])
for subject in statement["subject"]:
    if subject["name"] == "record.json":
        subject["digest"]["sha256"] = hashlib.sha256(files["record.json"]).hexdigest()
files["statement.json"] = json.dumps(statement).encode()
tried("statement")
envelope = files.pop("statement.dsse.json")
tried("no signature")
files["record.json"] = before
files["statement.json"] = json.dumps(statement).encode()
files["statement.dsse.json"] = envelope
tried("the old record under the forged statement")
Path("forger").mkdir()
assert code("run", "plan.yaml", "-o", "forger/run", "--quiet", "--set", "seeds=[1]") == 0
assert code("pack", "forger/run", "-o", "forged.zip", "--key", "theirs") == 0
for key in ("mine", "theirs"):
    words = ["forged.zip", "--key", key + ".pub"]
    said["another run", key] = [code("verify", *words), code("check", *words, "--policy", "policy.yaml")]
for name, found in said.items():
    print(name, found)
"""


def test_run_sign_pack_verify_and_check_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """One chain on the wheel alone, and a forger who mends what gave each step away: none passes with the key."""
    pytest.importorskip("securesystemslib")
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen here")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "plan.yaml").write_text(
        "name: packed\nseeds: [0]\nclients: {count: 2, partition: iid}\nbackbone: {name: pixels}\n"
        "data: {name: digits, limit: 300, split: {private: 0.5, test: 0.3, control: 0.2}}\n"
        "privacy: {epsilon: 2, delta: 1.0e-5}\nmethods: [{raw_features: {epsilon: .inf}}, fedcgs]\n"
        "attacks: [message_algebra]\naudits: [{dp_claim: {mechanism_trials: 500, replays: 8}}, message]\n"
        "resources: {threads: 1}\n"
    )
    for name in ("mine", "theirs"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    done = _run("-c", _CHAIN, tmp_path / "site", folder=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:6] == ["run 0", "sign 0", "signed run 0", "pack 0", "whole 0", "check 0"]
    forged = [line for line in lines[6:] if line.startswith("(")]
    assert len(forged) == 18
    honest = [line for line in forged if line.endswith((" 0", "[0, 0]"))]
    assert honest == ["('another run', 'theirs') [0, 0]"]


def test_an_sdist_makes_the_same_wheel(checkout: Path, wheel: Path) -> None:
    done = _build(checkout)
    assert done.returncode == 0, done.stderr
    assert _names(next((checkout / "dist").glob("*.whl"))) == _names(wheel)
    with tarfile.open(next((checkout / "dist").glob("*.tar.gz"))) as sdist:
        assert not any(member.issym() for member in sdist.getmembers())


def test_what_would_be_published_passes_the_index_s_own_check(built: tuple[Path, set[str]], wheel: Path) -> None:
    """The metadata are valid, the README renders, and every extra that the pages name is there."""
    pytest.importorskip("twine")
    done = _run("-m", "twine", "check", "--strict", wheel, folder=built[0])
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE))
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "fedassay").rglob("*.py"), ROOT / "README.md"]
    asked = {
        extra for page in pages for extra in re.findall(r"fedassay\[(\w+)\]", page.read_text(encoding="utf-8"))
    }
    assert {"notebook", "flower"} <= asked <= extras


def test_a_package_built_on_it_installs_from_its_own_wheel(wheel: Path, tmp_path: Path) -> None:
    """examples/plugin, as pip builds and installs it, passes its contract test beside the wheel of fedassay."""
    shutil.copytree(ROOT / "examples" / "plugin", tmp_path / "plugin")
    options = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    done = _run("-m", "pip", "wheel", *options, "-w", "dist", ".", folder=tmp_path / "plugin")
    assert done.returncode == 0, done.stderr
    ours = next((tmp_path / "plugin" / "dist").glob("toy_assay-*.whl"))
    done = _run("-m", "pip", "install", *options, "--target", tmp_path / "site", ours, wheel, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    shutil.copytree(ROOT / "examples" / "plugin" / "tests", tmp_path / "away" / "tests")
    shutil.copy(ROOT / "examples" / "plugin" / "plan.yaml", tmp_path / "away")
    tests = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "tests")
    away = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}
    # Forked, it imports fedassay anew: that of the wheel.
    done = forked.python(*tests, cwd=tmp_path / "away", environment=away)
    assert done.returncode == 0, done.stdout[-3000:]


def test_an_editable_installation_reads_the_checkout(checkout: Path, tmp_path: Path) -> None:
    options = ("--no-deps", "--no-build-isolation", "--ignore-installed", "--disable-pip-version-check")
    done = _run("-m", "pip", "install", *options, "--prefix", tmp_path / "at", "-e", ".", folder=checkout)
    assert done.returncode == 0, done.stderr
    site = next((tmp_path / "at").glob("lib*/python*/site-packages"))
    code = (
        f"import site; site.addsitedir({str(site)!r}); "
        "import fedassay.methods, fedassay.configs as c; print(c.__file__)"
    )
    # -S: no other installation of fedassay is in sight.
    done = _run("-I", "-S", "-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).resolve() == checkout / "configs" / "__init__.py"


def _no_link(link: Path) -> None:
    link.unlink()


def _text_for_a_link(link: Path) -> None:
    """What git leaves where symbolic links are switched off."""
    target = str(link.readlink())
    link.unlink()
    link.write_text(target)


def _dangling(link: Path) -> None:
    link.unlink()
    link.symlink_to("../../no-such-room")


def _empty_room(link: Path) -> None:
    for path in link.resolve().iterdir():
        if path.is_file():
            path.unlink()


def _room_of_one_file(link: Path) -> None:
    for path in sorted(link.resolve().rglob("*")):
        if path.is_file() and path.name != "__init__.py":
            path.unlink()


@pytest.mark.parametrize(
    ("room", "spoil"),
    [
        ("methods", _no_link),
        ("attacks", _text_for_a_link),
        ("audits", _dangling),
        ("reports", _empty_room),
        ("configs", _room_of_one_file),
    ],
)
@pytest.mark.parametrize("kind", ["--wheel", "--sdist"])
def test_a_checkout_without_a_room_is_refused_in_one_sentence(
    checkout: Path, room: str, spoil: Callable[[Path], None], kind: str
) -> None:
    spoil(checkout / "src" / "fedassay" / room)
    done = _build(checkout, kind)
    assert done.returncode != 0
    assert not list((checkout / "dist").glob("*"))
    said = [line for line in (done.stdout + done.stderr).splitlines() if "cannot be built" in line]
    assert said == [next(line for line in said if f"src/fedassay/{room} " in line)]
    assert "Traceback" not in done.stdout + done.stderr


def test_every_link_of_the_package_is_looked_for() -> None:
    links = {path.name for path in (ROOT / "src" / "fedassay").iterdir() if path.is_symlink()}
    assert links == set(ROOMS)
