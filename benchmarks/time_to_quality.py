"""Time to quality of the reconstruction attack: processor seconds until SSIM is within 1 % of its final value.

    python benchmarks/time_to_quality.py
    ... python benchmarks/time_to_quality.py --full --plan configs/attacks/feature_diffusion.yaml

Raw features of private images of a plan, Fashion-MNIST if none is named. The attacker's model is trained from the
first guess on (`fedassay.nets.warm_start`) for a rising number of steps, each with the whole schedule of its rate,
and sampled by DDIM at the preset's steps and by `dpm` at 10. What is final is the preset's own training and
sampling. The ratio is that of its seconds, guess included, to those of the shortest training that `dpm` brings
within 1 %. 6,000 attacker images and 300 private ones; `--full` takes all of the plan's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import measure
import numpy as np
from numpy.typing import NDArray

from fedassay.data.records import Records
from fedassay.execution.prepare import prepare
from fedassay.nets.presets import Sampler, preset_named
from fedassay.nets.sampling import Sampling, sample
from fedassay.nets.trained import TrainedDenoiser
from fedassay.nets.training import train
from fedassay.plan.resolve import load_scenario
from fedassay.similarity.metrics import Similarity
from fedassay.support.progress import SILENT
from fedassay.support.types import Floats, Images

PLAN = Path(__file__).resolve().parents[1] / "configs" / "fashion_mnist.yaml"
SAMPLERS: tuple[Sampler, ...] = ("ddim", "dpm")
SHARES = (0.0, 0.05, 0.125, 0.25, 0.5, 1.0)
"""Of the preset's training steps; at 0 a single one, which leaves the first guess."""
ATTACKER, PRIVATE = 6000, 300
TARGET, WITHIN = 4, 0.99


def quality(truth: Images, shown: Images) -> float:
    """Mean SSIM of reconstructions."""
    return float(Similarity(None, "not asked for").measure(truth, shown)["ssim"].mean())


def check(ssim: float, final: float) -> bool:
    """Whether a quality is within 1 % of the final one."""
    return ssim >= WITHIN * final


def few(images: Images, features: Floats, most: int) -> tuple[Images, Floats]:
    """The first so many records; a plan's roles are in random order."""
    return images[:most], features[:most]


def trained(
    share: float, name: str, attacker: tuple[Images, Floats], private: tuple[Images, Floats]
) -> list[dict[str, Any]]:
    """SSIM and processor seconds of a training with a share of the preset's steps, by both samplers."""
    preset = preset_named(name)
    steps = max(1, round(share * preset.steps))
    chosen = replace(preset, steps=steps, warmup=max(1, min(preset.warmup, steps // 6)))
    made: list[TrainedDenoiser] = []
    spent = measure.seconds(lambda: made.append(train(*attacker, chosen, seed=0))).cpu
    rows = []
    for sampler in SAMPLERS:
        start = time.process_time()
        shown = sample(made[0], private[1], Sampling(sampler=sampler), seed=1)
        seconds = spent + time.process_time() - start
        ssim = round(quality(private[0], shown), 4)
        rows.append({"steps": steps, "sampler": sampler, "ssim": ssim, "cpu": round(seconds, 1)})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def run(full: bool = False, repeats: int = 1, plan: Path = PLAN, preset: str = "tiny") -> measure.Row:
    """The row, with SSIM and seconds of every training."""
    scenario = load_scenario(plan, ("similarity.lpips=null",))
    prepared = prepare(scenario.plan, scenario.base, 0, "cpu", SILENT, 1)
    assert prepared.attacker is not None
    most = (len(prepared.attacker), 10**9) if full else (ATTACKER, PRIVATE)
    images, features = few(prepared.attacker.images, prepared.attacker.features, most[0])
    truth, vectors = few(*_joined(prepared.clients), most[1])
    rows = [row for share in SHARES for row in trained(share, preset, (images, features), (truth, vectors))]
    final = next(row for row in rows[::-1] if row["sampler"] == "ddim")
    soonest = min((row for row in rows if check(row["ssim"], final["ssim"])), key=lambda row: row["cpu"])
    ratio = final["cpu"] / soonest["cpu"]
    return {
        "row": f"time to quality, {plan.stem}, preset {preset}, {len(images)} attacker images",
        "ratio": round(ratio, 2),
        "target": TARGET,
        "met": ratio >= TARGET,
        "peer": f"the preset's own training and DDIM: SSIM {final['ssim']} in {final['cpu']} s of processor time",
        "soonest": soonest,
        "dpm_over_ddim": round(rows[-1]["ssim"] / final["ssim"], 4),
        "trainings": rows,
    }


def _joined(clients: tuple[Records, ...]) -> tuple[NDArray[np.uint8], Floats]:
    return np.concatenate([each.images for each in clients]), np.concatenate([each.features for each in clients])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all of the plan's images")
    parser.add_argument("--repeats", type=int, default=1, help="one run says enough")
    parser.add_argument("--plan", type=Path, default=PLAN)
    parser.add_argument("--preset", default="tiny")
    given = parser.parse_args()
    json.dump(run(given.full, plan=given.plan, preset=given.preset), sys.stdout, indent=2)
    print()
