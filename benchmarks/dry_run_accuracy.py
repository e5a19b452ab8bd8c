"""How far `fedassay run --dry-run` is off: its estimate beside the measured processor seconds of ten small plans.

    OMP_NUM_THREADS=1 python benchmarks/dry_run_accuracy.py              the four quickest
    OMP_NUM_THREADS=1 python benchmarks/dry_run_accuracy.py --full       all ten: about 15 minutes of one processor
    OMP_NUM_THREADS=1 python benchmarks/dry_run_accuracy.py --only digits --only own_images

Shipped plans, some with settings that make them small, and one on a folder of images that the script writes. Every
plan runs in a process of its own with one job, one thread and an empty cache, and is estimated from the same file
and settings. The row is met where every ratio lies between a half and two.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from fedassay.plan.estimate import estimate
from fedassay.plan.resolve import load_scenario

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
OWN = """
name: own_images
seeds: [0]
data: {name: image_folder, path: images, size: 12, split: {private: 0.3, attacker: 0.4, public: 0.15, test: 0.15}}
clients: {count: 3, partition: iid}
backbone: {name: small_cnn, weights: public}
privacy: {epsilon: [.inf, 5]}
methods: [fedpft: {components: 2, covariance: diag}, fedcgs: {}]
attacks: [message_algebra: {}, feature_diffusion: {preset: tiny, samples: 1}]
audits: [message: {}, reconstruction: {control_records: 100}, dp_claim: {}]
"""


@dataclass(frozen=True)
class Small:
    """A plan that takes a minute or two.

    Attributes:
        plan: File under configs, or "" for the one on own images.
        settings: `--set` of the run.
    """

    plan: str
    settings: tuple[str, ...] = ()


PLANS = {
    "digits": Small("digits.yaml"),
    "closed_forms": Small("closed_forms.yaml"),
    "feddiff_digits": Small("feddiff_digits.yaml"),
    "fedlog_digits": Small("fedlog_digits.yaml"),
    "fedlog_figure1": Small("fedlog_figure1.yaml"),
    "fmf_published": Small("fmf_published.yaml"),
    "persons": Small("persons.yaml"),
    "gradient_inversion": Small("attacks/gradient_inversion.yaml"),
    "quickstart": Small("quickstart.yaml"),
    "photographs": Small("photographs.yaml"),
    "own_images": Small(""),
}


FEW = ("fedlog_figure1", "fmf_published", "closed_forms", "own_images")


def write_own(folder: Path) -> Path:
    """A folder of images with a folder for each class, and a plan beside it."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        place = folder / "images" / f"digit{label}"
        place.mkdir(parents=True, exist_ok=True)
        enlarged = Image.fromarray((image * 15.9).astype(np.uint8)).resize((12, 12))
        enlarged.save(place / f"{number}.png")
    (folder / "own_images.yaml").write_text(OWN)
    return folder / "own_images.yaml"


def compared(name: str, folder: Path) -> dict[str, float | str]:
    """Estimate and measured processor seconds of a plan."""
    small = PLANS[name]
    file = CONFIGS / small.plan if small.plan else write_own(folder)
    expected = estimate(load_scenario(file, small.settings)).seconds
    assert expected is not None, f"{name}: no estimate"
    settings = [part for each in small.settings for part in ("--set", each)]
    command = [sys.executable, "-m", "fedassay", "run", str(file), *settings, "-o", str(folder / name), "--quiet"]
    done = measure.run_process(command, {"FEDASSAY_CACHE": str(folder / f"{name}.cache"), "OMP_NUM_THREADS": "1"})
    assert done.code == 0, f"{name}: fedassay run ended with exit code {done.code}"
    return {
        "plan": name,
        "estimated": round(expected, 1),
        "cpu_seconds": round(done.timing.cpu, 1),
        "ratio": round(expected / done.timing.cpu, 2),
    }


def check(ratio: float) -> bool:
    """Whether an estimate is within a factor of two of what was measured."""
    return 0.5 <= ratio <= 2


def run(full: bool = False, repeats: int = 1, only: tuple[str, ...] = ()) -> measure.Row:
    """The row, with a line for each plan; `full` takes all ten."""
    names = only or (tuple(PLANS) if full else FEW)
    with tempfile.TemporaryDirectory() as folder:
        plans = []
        for name in names:
            plans.append(compared(name, Path(folder)))
            print(json.dumps(plans[-1]), file=sys.stderr, flush=True)
    ratios = [float(each["ratio"]) for each in plans]
    worst = max(ratios, key=lambda ratio: max(ratio, 1 / ratio))
    return {
        "row": f"`--dry-run` on {len(plans)} plans, estimated over measured",
        "ratio": worst,
        "target": "0.5 to 2 on every plan",
        "met": all(map(check, ratios)),
        "peer": "none: estimated over measured processor seconds, the worst",
        "plans": plans,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all ten plans, and not the four quickest")
    parser.add_argument("--repeats", type=int, default=1, help="one run says enough")
    parser.add_argument("--only", action="append", choices=list(PLANS), default=[])
    given = parser.parse_args()
    json.dump(run(given.full, only=tuple(given.only)), sys.stdout, indent=2)
    print()
