"""Builds the wheel and the sdist of a commit and tries them in fresh environments, from the wheel alone.

    python docs/release.py [--python PYTHON...] [--plan PLAN] [--extra NAME...] [--out FOLDER]

The commit is the one that is checked out; what is not committed does not count. Every Python gets an environment
of its own, with torch and torchvision as constraints.txt pins them and the newest of everything else that pip
takes. The first Python tries the extras as well, each in an environment that adds that extra alone. The first
failure ends the work with what the command printed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from release_extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
NAMES = [extra.__name__ for extra in EXTRAS]


def main() -> None:
    """Build, check, install, try; print what took how long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters, the extras' first")
    parser.add_argument("--plan", default="configs/demonstration.yaml", help="a plan that ships")
    parser.add_argument("--extra", nargs="*", default=NAMES, choices=NAMES, help="extras to try")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheel and the sdist")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        wheel = built(folder / "source", given.out.resolve())
        for number, python in enumerate(given.python):
            base, empty = installed(python, wheel, folder / f"environment-{number}"), folder / f"empty-{number}"
            tried(base, given.plan, empty)
            for extra in given.extra if number == 0 else ():
                tried_with(extra, base, wheel, empty / "run")
    print("The wheel does its work; the list in docs/release.md has what only a person can do.")


def built(source: Path, out: Path) -> Path:
    """The wheel of the commit; its sdist stands beside it."""
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, check=True, input=archive)
    version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
    _run("build", [sys.executable, "-m", "build", "--outdir", str(out)], source)
    wheel, sdist = out / f"fedassay-{version}-py3-none-any.whl", out / f"fedassay-{version}.tar.gz"
    _run("twine check", [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], source)
    return wheel


def installed(python: str, wheel: Path, environment: Path) -> Path:
    """A fresh environment with the wheel and what it needs; gives its interpreter."""
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    inside = environment / "bin" / "python"
    _install(inside, str(wheel), python)
    return inside


def tried(python: Path, plan: str, empty: Path) -> None:
    """What a first user does, in an empty folder."""
    empty.mkdir()
    for words in (
        ["--version"],
        ["list", "methods"],
        ["validate", "plan", plan],
        ["run", plan, "-o", "run", "--quiet"],
        ["report", "run", "--format", "md", "-o", "report.md", "--quiet"],
        ["verify", "run"],
        ["answer", "run"],
    ):
        _run(" ".join(["fedassay", *words]), [str(python.with_name("fedassay")), *words], empty)


def tried_with(extra: str, base: Path, wheel: Path, run: Path) -> None:
    """Add one extra in an environment that sees the packages of the base, and ask it for its work."""
    work = base.parents[2] / f"extra-{extra}"
    subprocess.run([str(base), "-m", "venv", str(work / "environment")], check=True)
    inside = work / "environment" / "bin" / "python"
    (_site(inside) / "base.pth").write_text(f"{_site(base)}\n")
    _install(inside, f"{wheel}[{extra}]", extra)
    (work / "run").symlink_to(run)
    shutil.copy(ROOT / "docs" / "release_extras.py", work)
    _run(f"use of {extra}", [str(inside), "-I", "release_extras.py", extra], work)


def _install(python: Path, wanted: str, name: str) -> None:
    pins = (ROOT / "constraints.txt").read_text().split()
    torch = [pin for pin in pins if pin.startswith(("torch==", "torchvision=="))]
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    _run(f"installation for {name}", [*pip, "install", "--quiet", *torch, wanted], python.parent)
    _run(f"pip check for {name}", [*pip, "check"], python.parent)


def _site(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(
        subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    )


def _run(name: str, command: Sequence[str], folder: Path) -> None:
    begun = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"{time.monotonic() - begun:7.1f} s  {name}", flush=True)


if __name__ == "__main__":
    main()
