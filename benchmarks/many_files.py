"""Seconds and memory of `init` and `look` against the number of images in a folder.

    OMP_NUM_THREADS=1 python benchmarks/many_files.py                    10,000 and 100,000 images
    OMP_NUM_THREADS=1 python benchmarks/many_files.py --sizes 1000

Images are grey PNGs of 16x16 pixels in ten folders of classes, a tenth of them test images. Each command is a
process of its own; beside it stand its processor time, the clock's, and its peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES, SIDE = 10, 16


def write(folder: Path, images: int) -> None:
    """Writes the images, each of its own noise on the brightness of its class."""
    rng = np.random.default_rng(0)
    for number in range(images):
        label = number % CLASSES
        place = folder / ("test" if number // CLASSES % 10 == 0 else "train") / f"class_{label}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.normal(60 + 10 * label, 25, (SIDE, SIDE)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{number:06}.png")


def measured(command: list[str], folder: Path) -> dict[str, Any]:
    """Runs a command of the suite in a folder; what it took."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "fedassay", *command], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    return {
        "command": command[0],
        "exit": os.waitstatus_to_exitcode(status),
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
    }


def main() -> None:
    """One row a size and command, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    given = parser.parse_args()
    for images in given.sizes:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            write(folder / "images", images)
            for command in (["init", "plan.yaml", "--data", "images"], ["look", "images"]):
                print(json.dumps({"images": images, **measured(command, folder)}), flush=True)


if __name__ == "__main__":
    main()
