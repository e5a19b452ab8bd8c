"""The papers' experiments on a GPU, as plans: what `gpu_papers.sh` runs, step by step.

    python benchmarks/gpu_papers.py steps                      names, in the order of value
    python benchmarks/gpu_papers.py dry-run [--full]           sizes, memory, bytes, minutes; needs no card
    python benchmarks/gpu_papers.py pack FOLDER                the images as small archives, fetched where need be
    python benchmarks/gpu_papers.py plan STEP FOLDER [--full]  a step's plan, for the images packed into FOLDER
    python benchmarks/gpu_papers.py results FOLDER             what the records in FOLDER say, one line a finding

Sizes are made for half an hour of one data-centre GPU: fewer optimiser steps, larger batches and fewer
sampling steps than the papers'. `--full` has the papers' own, for whoever has a card for days. Every record says
which it was.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import public_data
import yaml

from fedassay.backbones.weights import published_url
from fedassay.data.images import LoadedData
from fedassay.support.weights import hub_file

CIFAR, FASHION, TRUNK = "cifar10.npz", "fashion_mnist.npz", "squeezenet1_1.pt"
"""As they are called once they are packed."""
CIFAR_TRAIN, CIFAR_TEST, FASHION_TEST = 6000, 1000, 2000
"""Images taken along; of Fashion-MNIST all 60,000 for training."""
FASHION_TRAIN = 60_000
PACKED = {CIFAR: 19_802_525, FASHION: 27_345_778, TRUNK: 4_958_716}
"""Bytes of the archives, as packed once, and of the weights, as torchvision says (4.729 MiB)."""
CARRIED = 56 * 2**20
"""Bytes that they may have: with the code, 64 MiB are carried to a card."""
RECORD = 4 * 2**20
"""Bytes that come back from a step, its record with pictures, at most."""
Plan = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """What differs between half an hour and the papers.

    Attributes:
        preset: Of the attacker's model.
        vectors: That are reconstructed.
        epochs, batch: Of a client's generator without privacy.
        private_epochs, rate: Of a client's generator by DP-SGD: passes, and share of the records in a step.
        sampler, steps: How generators are sampled.
        classifier_epochs, classifier_batch: Of the server's classifier.
        memorized: Share of the training set whose generator is asked for copies.
    """

    preset: str
    vectors: int | None
    epochs: int
    batch: int
    private_epochs: int
    rate: float
    sampler: str
    steps: int
    classifier_epochs: int
    classifier_batch: int
    memorized: float


LEASE = Size("paper_short", 300, 50, 512, 10, 0.1, "ddim", 50, 20, 512, 0.1)
FULL = Size("paper", None, 200, 128, 200, 0.02, "ddpm", 1000, 50, 128, 0.8)


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        about: The table it is for.
        plan: Makes its plan.
        files: What it needs of the packed folder.
        cost: Bytes of memory on the card, seconds there.
    """

    about: str
    plan: Callable[[Size], Plan]
    files: tuple[str, ...]
    cost: Callable[[Size], tuple[float, float]]


def reconstruction(data: Plan, backbone: Plan, size: Size) -> Plan:
    """Raw features and mixtures, inverted by the attacker's U-Net."""
    return {
        "seeds": [0],
        "data": data,
        "clients": {"count": 1, "partition": "iid"},
        "backbone": backbone,
        "methods": [
            {"raw_features": {}},
            {"fedpft": {"label": "K10-diag", "components": 10, "covariance": "diag"}},
        ],
        "attacks": [{"feature_diffusion": {"preset": size.preset, "max_vectors": size.vectors}}],
        "audits": [{"reconstruction": {}}],
    }


def cifar_reconstruction(size: Size) -> Plan:
    """Tables 6 and 7 of Beitollahi et al. 2024 on some of CIFAR-10, SqueezeNet in the place of ResNet-50."""
    data = {"name": "npz", "path": CIFAR, "split": {"private": 0.1, "attacker": 0.9}}
    return reconstruction(data, {"name": "squeezenet1_1", "weights": TRUNK, "input_size": 64}, size)


def fashion_reconstruction(size: Size) -> Plan:
    """The same on Fashion-MNIST, with a small network that is trained on public images."""
    data = {"name": "npz", "path": FASHION, "split": {"private": 0.01, "attacker": 0.9, "public": 0.05}}
    return reconstruction(data, {"name": "small_cnn", "weights": "public"}, size)


def feddiff(size: Size, shares: Plan, clients: int, own: Plan) -> Plan:
    """FedDiff on Fashion-MNIST at 32x32."""
    method = {
        "preset": "paper",
        "epochs": size.epochs,
        "batch": size.batch,
        "sampler": size.sampler,
        "steps": size.steps,
        "classifier": {"preset": "resnet16", "epochs": size.classifier_epochs, "batch": size.classifier_batch},
    }
    apart = {"partition": "dirichlet", "alpha": 0.01, "min_records": 2} if clients > 1 else {"partition": "iid"}
    return {
        "seeds": [0],
        "data": {"name": "npz", "path": FASHION, "size": 32, "split": shares},
        "clients": {"count": clients, **apart},
        "backbone": {"name": "pixels"},
        "methods": [{"feddiff": method}],
    } | own


def feddiff_plain(size: Size) -> Plan:
    """Table 1 of Mendieta et al. 2025, Dirichlet 0.01."""
    return feddiff(size, {"private": 1.0}, 10, {})


def feddiff_private(size: Size) -> Plan:
    """Table 4 of Mendieta et al. 2025, epsilon 10."""
    plan = feddiff(size, {"private": 1.0}, 10, {"privacy": {"epsilon": 10, "delta": 1e-4}})
    batch = max(1, round(size.rate * FASHION_TRAIN / 10))
    steps = {"epochs": size.private_epochs, "sampling_rate": size.rate, "batch": batch, "draws": 1}
    plan["methods"][0]["feddiff"]["dp_sgd"] = {**steps, "learning_rate": 1e-3}
    return plan


def memorization(size: Size) -> Plan:
    """Section 5.2 of Mendieta et al. 2025: five times as many images as records, of one client's generator."""
    shares = {"private": size.memorized, "attacker": 0.1}
    return feddiff(size, shares, 1, {"audits": [{"memorization": {"samples_per_record": 5}}]})


def _sampled(images: float, size: Size, preset: Any, image: tuple[int, int, int], width: int, steps: int) -> float:
    """Seconds of sampling with guidance, from counts of a batch of 4,096."""
    import gpu_work

    work = gpu_work.sampling_step(preset, image, width, 4096, guided=True)
    return images * steps * _card().seconds(work, bf16=True) / 4096


def _card() -> Any:
    import gpu_work

    return gpu_work.card_of(Path("runs/gpu.json"))


def cost_of_reconstruction(image: tuple[int, int, int], width: int, private: int) -> Callable[[Size], Any]:
    """One model for both methods; ten images of a raw vector, one of a drawn one."""

    def cost(size: Size) -> tuple[float, float]:
        import gpu_work

        from fedassay.nets.presets import PRESETS

        preset = PRESETS[size.preset]
        work = gpu_work.training_step(preset, image, width, preset.batch)
        images = 11 * min(private, size.vectors or private)
        # The audit's controls sample as many again.
        sampled = _sampled(2 * images, size, preset, image, width, preset.sampling_steps)
        return work.memory, preset.steps * _card().seconds(work, bf16=True) + sampled

    return cost


def cost_of_feddiff(records: int, clients: int, drawn: float, *, private: bool) -> Callable[[Size], Any]:
    """Clients one after the other, then the images and the classifier."""

    def cost(size: Size) -> tuple[float, float]:
        import gpu_work

        from fedassay.nets.generators import GENERATORS
        from fedassay.plan import rates

        count = round(records * (size.memorized if clients == 1 else 1))
        preset, image = GENERATORS["paper"], (32, 32, 1)
        batch = round(size.rate * count / clients) if private else size.batch
        work = gpu_work.training_step(preset, image, 10, batch)
        one = _card().seconds(work, bf16=not private)
        steps = size.epochs * math.ceil(count / clients / batch) * clients
        if private:
            steps = math.ceil(size.private_epochs / size.rate) * clients
            # Noise is drawn on the host, in the one mechanism that adds noise.
            one = rates.PRIVATE_RECORD * one + rates.PRIVATE_PARAMETER * work.parameters / 20
        sampled = _sampled(drawn * count, size, preset, image, 10, size.steps)
        # 6.4 million weights, a GFLOP forward; 5 ms of launches a step.
        classifier = size.classifier_epochs * count * (3e9 / 6e13 + 5e-3 / size.classifier_batch)
        return work.memory, steps * one + sampled + classifier

    return cost


STEPS: dict[str, Step] = {
    "cifar_reconstruction": Step(
        "FedPFT, tables 6 and 7, some of CIFAR-10", cifar_reconstruction, (CIFAR, TRUNK),
        cost_of_reconstruction((32, 32, 3), 512, CIFAR_TRAIN // 10),
    ),
    "fashion_reconstruction": Step(
        "the same on Fashion-MNIST", fashion_reconstruction, (FASHION,),
        cost_of_reconstruction((28, 28, 1), 64, FASHION_TRAIN // 100),
    ),
    "feddiff_plain": Step(
        "FedDiff, table 1, Fashion-MNIST, 60,000 images", feddiff_plain, (FASHION,),
        cost_of_feddiff(FASHION_TRAIN, 10, 1, private=False),
    ),
    "feddiff_private": Step(
        "FedDiff, table 4, epsilon 10", feddiff_private, (FASHION,),
        cost_of_feddiff(FASHION_TRAIN, 10, 1, private=True),
    ),
    "memorization": Step(
        "FedDiff, section 5.2, 5 images a record", memorization, (FASHION,),
        cost_of_feddiff(FASHION_TRAIN, 1, 6, private=False),
    ),
}  # fmt: skip
"""In the order of value."""

START = 45.0
"""Seconds of a step besides: imports, features, the CPU's part of audits."""


def plan_of(name: str, size: Size, folder: Path) -> Plan:
    """A step's plan; its files are those of the packed folder."""
    plan = {"name": name, **STEPS[name].plan(size)}
    plan["data"]["path"] = str(folder.resolve() / plan["data"]["path"])
    if str(plan["backbone"].get("weights")).endswith(".pt"):
        plan["backbone"]["weights"] = str(folder.resolve() / plan["backbone"]["weights"])
    return plan


def dry_run(size: Size) -> list[dict[str, Any]]:
    """What every step takes."""
    rows = []
    for name, step in STEPS.items():
        memory, seconds = step.cost(size)
        rows.append({
            "step": name, "for": step.about, "memory_gib": round(memory / 2**30, 1), "files": list(step.files),
            "bytes_up": sum(PACKED[file] for file in step.files), "bytes_down": RECORD,
            "minutes": round((START + seconds) / 60, 1), "rates": _card().name,
        })  # fmt: skip
    return rows


def pack(folder: Path, cifar: LoadedData, fashion: LoadedData, trunk: Path) -> dict[str, int]:
    """Writes the archives; bytes of each file.

    Args:
        folder: Made where it is not there.
        cifar: 32x32 colour images, `CIFAR_TRAIN` and `CIFAR_TEST` of which are taken along.
        fashion: 28x28 grey images, `FASHION_TRAIN` and `FASHION_TEST` of which are.
        trunk: A state dict of SqueezeNet's.

    Raises:
        SystemExit: A data set has no test images, or the archives are too large.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, data, train, test in (
        (CIFAR, cifar, CIFAR_TRAIN, CIFAR_TEST),
        (FASHION, fashion, FASHION_TRAIN, FASHION_TEST),
    ):
        if data.test is None:
            raise SystemExit(f"{data.source}: has no test images")
        np.savez_compressed(folder / name, allow_pickle=False,
                            x_train=data.train.images[:train], y_train=data.train.labels[:train],
                            x_test=data.test.images[:test], y_test=data.test.labels[:test])  # fmt: skip
    shutil.copyfile(trunk, folder / TRUNK)
    sizes = {name: (folder / name).stat().st_size for name in (CIFAR, FASHION, TRUNK)}
    if sum(sizes.values()) > CARRIED:
        raise SystemExit(f"packed: {sum(sizes.values())} bytes; allowed: {CARRIED}")
    return sizes


def weights_file(weights: str) -> Path:
    """SqueezeNet's weights as torchvision publishes them, fetched where they are not there; or a file."""
    url = published_url("squeezenet1_1", weights)
    return Path(weights) if url is None else hub_file(url)


def results(folder: Path) -> list[str]:
    """A line for every finding and every accuracy in the records of a folder's steps."""
    lines = []
    for path in sorted(folder.glob("*/record.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        where = f"{path.parent.name} ({record['environment']['gpu'] or record['environment']['device']})"
        for cell in record["cells"]:
            called = f"{where} {cell['label']}, epsilon {cell['epsilon']}"
            lines.append(f"{called}: {json.dumps(cell['utility'], sort_keys=True)}")
            for finding in cell["findings"]:
                metrics = {name: found["value"] for name, found in finding["metrics"].items()}
                named = " ".join(str(finding[key]) for key in ("audit", "source", "selection", "verdict"))
                lines.append(f"{called}: {named} {json.dumps(metrics, sort_keys=True)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("steps", "dry-run", "pack", "plan", "results"))
    parser.add_argument("given", nargs="*")
    parser.add_argument("--full", action="store_true")
    public_data.add_arguments(parser)
    given = parser.parse_args()
    size = FULL if given.full else LEASE
    match given.what, given.given:
        case "steps", []:
            print("\n".join(STEPS))
        case "dry-run", []:
            rows = dry_run(size)
            json.dump(
                {"steps": rows, "minutes": round(sum(row["minutes"] for row in rows), 1)}, sys.stdout, indent=1
            )
            print()
        case "pack", [folder]:
            cifar, fashion = (public_data.loaded(each) for each in (given.data, "fashion_mnist"))
            print(json.dumps(pack(Path(folder), cifar, fashion, weights_file(given.weights)), indent=1))
        case "plan", [name, folder] if name in STEPS:
            print(yaml.safe_dump(plan_of(name, size, Path(folder)), sort_keys=False), end="")
        case "results", [folder]:
            print("\n".join(results(Path(folder))))
        case _:
            parser.error(f"{given.what} {' '.join(given.given)}: see above")


if __name__ == "__main__":
    public_data.ended(main)
