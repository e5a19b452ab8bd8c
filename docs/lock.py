"""Makes constraints.txt, locked.txt, locked-cuda.txt and constraints-flower.txt from pyproject.toml; needs uv.

    python docs/lock.py [--cpu-wheel TORCH.whl]... [--keep]

`--keep` keeps every version that constraints.txt pins and only takes in what is missing; without it the newest
versions are taken. `--cpu-wheel` adds the SHA-256 of a CPU build of torch, which PyTorch publishes on an index of
its own: `torch==2.13.0` allows `2.13.0+cpu` as well, and with its hash in the lock so does `--require-hashes`.
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


def main() -> None:
    """Resolve, and write the four files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu-wheel", action="append", type=Path, default=[])
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    old = _pins((ROOT / "constraints.txt").read_text()) if given.keep else []
    every = resolved(["dev", "docs", "sign", "ray", "bench"], old)
    pins = _pins(every)
    (ROOT / "constraints.txt").write_text(
        _HEAD
        + "# Every version of the tested set. torch and torchvision move together: any other pairing replaces\n"
        '# torch by a CUDA build of several gigabytes (see README, "Installing").\n' + "\n".join(pins) + "\n"
    )
    blocks = _blocks(resolved(["dev", "docs", "sign"], pins))
    plain = [_with_cpu(block, given.cpu_wheel) for block in blocks if not _CUDA.match(block)]
    cuda = [block for block in blocks if _CUDA.match(block)]
    (ROOT / "locked.txt").write_text(
        _HEAD + "# With hashes: pip install --require-hashes -r locked.txt && pip install -e . --no-deps\n"
        "# torch is its CPU build where pip finds that; for the default build use locked-cuda.txt.\n"
        + "".join(plain)
    )
    (ROOT / "locked-cuda.txt").write_text(
        _HEAD + "# As locked.txt, and what the default (CUDA) build of torch for Linux needs beside it.\n"
        "-r locked.txt\n" + "".join(cuda)
    )
    core = [pin for pin in pins if pin.split("==")[0] in {*PINNED, *PINNED_TOO}]
    (ROOT / "constraints-flower.txt").write_text(
        _HEAD
        + "# Every version of the environment of `make test-flower`.\n"
        + "\n".join(_pins(resolved(["dev", "flower"], core)))
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


def _with_cpu(block: str, wheels: Sequence[Path]) -> str:
    if not block.startswith("torch=="):
        return block
    for wheel in wheels:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        block = block.rstrip("\n") + f" \\\n    --hash=sha256:{digest}\n"
    return block


if __name__ == "__main__":
    main()
