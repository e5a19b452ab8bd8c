"""Makes constraints.txt, locked.txt, locked-cuda.txt and constraints-flower.txt from pyproject.toml; needs uv.

    python docs/lock.py --cpu-wheel TORCH.whl... [--keep]

`--keep` keeps every version that constraints.txt pins and only takes in what is missing; without it the newest
versions are taken. `--cpu-wheel` names CPU builds of torch for Linux, which PyTorch publishes on its own index:
locked.txt holds their SHA-256, locked-cuda.txt the default build's and those of the libraries that it needs.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "3.11.7"
PINNED = ("torch", "torchvision", "diffusers", "opacus", "scikit-image", "lpips", "scikit-learn", "python-dp")
PINNED_TOO = ("dp-accounting", "numpy", "scipy")
"""What results depend on: the same in the environment of Flower, which pins versions of its own."""

_CUDA = re.compile(r"(nvidia-|cuda-|triton==)")
_HEAD = "# Made by docs/lock.py from pyproject.toml; do not edit.\n"
_HOW = "# With hashes: pip install --require-hashes -r {} && pip install -e . --no-deps\n"


def main() -> None:
    """Resolve, and write the four files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu-wheel", action="append", type=Path, required=True)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    old = _pins((ROOT / "constraints.txt").read_text()) if given.keep else []
    every = resolved(["dev", "docs", "sign", "mlflow", "ray", "bench"], old)
    pins = _pins(every)
    (ROOT / "constraints.txt").write_text(
        _HEAD
        + "# Every version of the tested set. torch and torchvision move together: any other pairing replaces\n"
        '# torch by a CUDA build of several gigabytes (see README, "Installing").\n' + "\n".join(pins) + "\n"
    )
    blocks = _blocks(resolved(["dev", "docs", "sign"], pins))
    (ROOT / "locked.txt").write_text(
        f"{_HEAD}{_HOW.format('locked.txt')}# With the CPU build of torch on Linux, from PyTorch's own index.\n"
        + "".join(_on_cpu(block, given.cpu_wheel) for block in blocks if not _CUDA.match(block))
    )
    (ROOT / "locked-cuda.txt").write_text(
        f"{_HEAD}{_HOW.format('locked-cuda.txt')}# With the default build of torch, which is for CUDA on Linux.\n"
        + "".join(blocks)
    )
    core = [pin for pin in pins if pin.split("==")[0] in {*PINNED, *PINNED_TOO}]
    (ROOT / "constraints-flower.txt").write_text(
        _HEAD
        + "# Every version of the environment of `make test-flower`.\n"
        + "\n".join(_pins(resolved(["dev", "flower-simulation"], core)))
        + "\n"
    )


def resolved(extras: Sequence[str], pins: Sequence[str]) -> str:
    """A whole set of versions with the hashes of all their files, as uv finds it."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "pins.txt"
        constraints.write_text("\n".join(pins))
        out = Path(folder) / "out.txt"
        options = ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--python-version", PYTHON]
        wanted = [word for extra in extras for word in ("--extra", extra)]
        command = [
            "uv",
            "pip",
            "compile",
            "pyproject.toml",
            "-c",
            str(constraints),
            *options,
            *wanted,
            "-o",
            str(out),
        ]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return out.read_text()


def _pins(text: str) -> list[str]:
    return re.findall(r"^[A-Za-z0-9._-]+==[^\s;\\]+", text, re.MULTILINE)


def _blocks(text: str) -> list[str]:
    """One requirement each, with the lines of its hashes."""
    return re.findall(r"^[A-Za-z0-9].*?\n(?:[ \t]+.*\n)*", text, re.MULTILINE)


def _on_cpu(block: str, wheels: Sequence[Path]) -> str:
    """A requirement as it is without CUDA: torch by the local version of its CPU build where there is one."""
    if not (found := re.match(r"torch==(\S+)", block)):
        return block
    digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels]
    hashes = " \\\n".join(f"    --hash=sha256:{digest}" for digest in digests)
    elsewhere = block.replace(found[0], f"{found[0]} ; sys_platform != 'linux'", 1)
    return f"{found[0]}+cpu ; sys_platform == 'linux' \\\n{hashes}\n{elsewhere}"


if __name__ == "__main__":
    main()
