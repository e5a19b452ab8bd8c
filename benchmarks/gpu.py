"""What a GPU does here: shares of its own measured rate, and whether it computes what a CPU computes.

    python benchmarks/gpu.py --dry-run                 sizes, memory, bytes, minutes; needs no card
    python benchmarks/gpu.py                           every row, on the card; runs/gpu.json
    python benchmarks/gpu.py --only sampling           one row
    python benchmarks/gpu.py --write-rates             and rates for `run --dry-run --device cuda`
    python benchmarks/gpu.py --device cpu --small      the whole path, in sizes that say nothing of speed

A row compares GPU and CPU before anything is timed, and fails where they differ by more than the tolerance it
states. Float32 convolutions are TF32 on a GPU (torch's default), which rounds to 10 bits. Rows are written one by
one, and a row that the file holds already is not run again: an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu_work
import torch
from gpu_place import CLASSES, Place
from gpu_rows import ROWS

from fedassay.nets.presets import Preset
from fedassay.plan.rates import GPU_FILE
from fedassay.support.atomic import write_text
from fedassay.support.devices import is_gpu


def plan_of(names: Sequence[str]) -> list[dict[str, Any]]:
    """Size, memory on the card, bytes to carry and minutes of rows, from counts and an assumed card."""
    place, card = Place("cuda", small=False), gpu_work.card_of(Path("runs/gpu.json"))
    image = (place.side, place.side, 3)
    start = 0.4  # minutes: imports, the first kernels, the CPU's side of the comparison

    def trained(preset: Preset, width: int, steps: int) -> tuple[float, float]:
        work = gpu_work.training_step(preset, image, width, preset.batch)
        return work.memory, steps * sum(card.seconds(work, bf16=bf16) for bf16 in (False, True, True)) / 60 + 1.5

    sampled = gpu_work.sampling_step(place.generator, image, CLASSES, 4096, guided=True)
    many = gpu_work.training_step(place.generator, image, CLASSES, 512)
    weights = many.parameters / 5 / 4
    told: dict[str, tuple[str, float, float]] = {
        "matmul": ("8192 x 8192 x 8192, bfloat16 and TF32; 2 GiB copied", 4.6 * 2**30, 0.1),
        "plain_step": ("U-Net of 5.8 million weights, batch 128, 63 steps each of three ways",
                       *trained(place.generator, CLASSES, 63)),
        "attack_step": ("U-Net of 37 million weights, batch 128, 63 steps each of three ways",
                        *trained(place.attacker, 512, 63)),
        "sampling": ("8,192 images of 20 guided steps, 4 times, float32 and bfloat16", sampled.memory,
                     4 * 20 * 2 * sum(card.seconds(sampled, bf16=b) for b in (False, True)) / 60),
        "private_step": ("the same U-Net, batch 512 in parts, 18 steps; noise from the host", 8 * many.held / 4,
                         18 * (3 * card.seconds(many, bf16=False) + 2.5e-8 * weights) / 60),
        "ssim": ("2,500 x 12,000 images of 32x32x3, 4 times", 6 * 2**30, 4 * 3e7 * 1e-7 / 60),
        "nearest": ("2,500 x 12,000 images, 50 neighbours, 4 times", 5 * 2**30, 0.1),
        "features": ("20,000 images through SqueezeNet at 64 pixels, 4 times", 4 * 2**30, 0.1),
        "verdicts": ("one plan of 450 private digits, three times, once on the CPU", 2 * 2**30, 5.0),
        "rates": ("small networks, heads, mixtures, a search", 4 * 2**30, 1.5),
    }  # fmt: skip
    return [
        {"row": name, "size": told[name][0], "memory_gib": round(told[name][1] / 2**30, 1), "bytes_up": 0,
         "bytes_down": 4096, "minutes": round(start + told[name][2], 1), "rates": card.name}
        for name in names
    ]  # fmt: skip


def measured(names: Sequence[str], place: Place, output: Path) -> dict[str, Any]:
    """Runs what the file does not hold yet; a row that fails is kept with its reason, and the others are run."""
    kept: dict[str, Any] = json.loads(output.read_text()) if output.is_file() else {}
    about = {"device": place.device, "small": place.small}
    if kept.get("about") not in (None, about):
        raise SystemExit(f"{output}: holds rows of {kept['about']}; asked for {about}; give another --output")
    rows = kept.setdefault("rows", {})
    kept["about"] = about
    for name in names:
        if "error" not in rows.get(name, {"error": ""}):
            continue
        started = time.perf_counter()
        now = replace(place, products=rows.get("matmul", {}).get("bf16", 0.0))
        try:
            rows[name] = ROWS[name](now)
        except Exception as error:  # noqa: BLE001 - the others are worth having
            rows[name] = {"error": f"{type(error).__name__}: {error}"}
        rows[name]["row_seconds"] = round(time.perf_counter() - started, 1)
        kept["card"] = rows.get("matmul", {}).get("card")
        write_text(output, json.dumps(kept, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        print(json.dumps({name: rows[name]}), flush=True)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", action="append", choices=ROWS, metavar="ROW")
    parser.add_argument("--write-rates", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("runs/gpu.json"))
    given = parser.parse_args()
    names = given.only or list(ROWS)
    if given.dry_run:
        rows = plan_of(names)
        json.dump({"rows": rows, "minutes": round(sum(row["minutes"] for row in rows), 1)}, sys.stdout, indent=1)
        print()
        return 0
    if is_gpu(given.device) and not torch.cuda.is_available():
        print(f"--device {given.device}: torch finds no GPU; --dry-run and --device cpu --small need none",
              file=sys.stderr)  # fmt: skip
        return 2
    kept = measured(names, Place(given.device, given.small), given.output)
    found = kept["rows"].get("rates", {}).get("rates")
    if given.write_rates and found and not given.small:
        rates = {"card": kept["card"]["name"], "rates": found}
        write_text(GPU_FILE, json.dumps(rates, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return 1 if any("error" in row or row.get("met") is False for row in kept["rows"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
