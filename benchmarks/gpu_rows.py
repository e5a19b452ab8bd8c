"""The rows of `gpu.py`: each compares GPU and CPU, and only then times anything."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dry_run_rates
import gpu_work
import images32
import measure
import numpy as np
import torch
from dp_sgd_step import data, error_of
from gpu_place import BF16, CLASSES, PIXELS, PIXELS_BF16, TF32, Place, options, seconds_per_step, timed, within
from torch import Tensor

from fedassay.backbones import build
from fedassay.backbones.base import BackboneRequest
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.nets.denoising import Drawn, build_scheduler, denoising_loss, to_model_range
from fedassay.nets.dp_sgd.clipped_sums import ClippedSums
from fedassay.nets.dp_sgd.generators import PrivateTraining, denoising_objective, train_generator_privately
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.generators import Computation, one_hot, unchanged
from fedassay.nets.philox import normals
from fedassay.nets.presets import Preset
from fedassay.nets.sampling import Sampling, sample
from fedassay.nets.trained import TrainedDenoiser, build_network
from fedassay.nets.training import train
from fedassay.plan.resolve import load_scenario
from fedassay.privacy.tape import Key
from fedassay.similarity.nearest import top_k_l2
from fedassay.similarity.ssim_search import most_similar
from fedassay.support.devices import in_bfloat16, is_gpu, placed
from fedassay.support.seeds import Seeds


def moved(preset: Preset, shape: tuple[int, int, int], width: int) -> torch.nn.Module:
    """A network whose last layer, which starts at zero, lets gradients and images through."""
    network = build_network(replace(preset, dropout=0.0), shape, width, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return network


def gradient(preset: Preset, place: Place, device: str, *, bf16: bool = False) -> Tensor:
    """Of a fixed batch under a fixed network, one vector on the host."""
    images, labels = data(4, place.side, 3)
    network = placed(moved(preset, images.shape[1:], CLASSES), device).train()
    forward = in_bfloat16(network, device) if bf16 else network
    generator = torch.Generator().manual_seed(0)
    timesteps = torch.randint(preset.timesteps, (len(images),), generator=generator)
    noise = torch.randn((len(images), 3, place.side, place.side), generator=generator)
    given = (
        to_model_range(torch.from_numpy(images)).to(device),
        torch.from_numpy(one_hot(labels, CLASSES)).to(device),
    )
    losses = denoising_loss(
        forward, build_scheduler(preset), *given,
        Drawn(torch.ones(len(images), dtype=torch.bool, device=device), timesteps.to(device), noise.to(device)),
    )  # fmt: skip
    losses.mean().backward()  # type: ignore[no-untyped-call]
    kept = [torch.zeros_like(w) if w.grad is None else w.grad for w in network.parameters()]
    return torch.cat([each.contiguous().flatten().cpu() for each in kept])


def matmul(place: Place) -> measure.Row:
    """The card's own rates: a bfloat16 product, TF32, a copy, a launch."""
    device, size = place.device, place.pick(8192, 192)
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator) for _ in range(2))
    exact = left[:64].double() @ right.double()
    a, b = (each.to(device, torch.bfloat16) for each in (left, right))
    error = within((a @ b)[:64].double().cpu(), exact, 1e-2, "a bfloat16 product")
    row: measure.Row = {"difference": error, "tolerance": 1e-2}
    row["bf16"] = 2 * size**3 / timed(lambda: a @ b, device, 10)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    whole, other = left.to(device), right.to(device)
    row["tf32"] = 2 * size**3 / timed(lambda: whole @ other, device, 10)
    torch.set_float32_matmul_precision(before)
    block = torch.empty(place.pick(2**31, 2**22), dtype=torch.uint8, device=device)
    target = torch.empty_like(block)
    row["bandwidth"] = 2 * block.numel() / timed(lambda: target.copy_(block), device, 10)
    tiny, count = torch.ones(1, device=device), place.pick(2000, 100)
    row["launch"] = timed(lambda: [tiny.add_(1) for _ in range(count)], device, 5) / count
    memory = torch.cuda.mem_get_info()[1] if is_gpu(device) else 0
    name = torch.cuda.get_device_name() if is_gpu(device) else "a CPU"
    card = gpu_work.Card(name, row["bf16"], row["tf32"], row["bandwidth"], row["launch"], memory, 0.3)
    return row | {"card": gpu_work.as_json(card)}


def training_row(preset: Preset, width: int, place: Place) -> measure.Row:
    """Steps of `fedassay.nets.training.train` in each way that FEDASSAY_GPU offers."""
    device = place.device
    here = gradient(preset, place, "cpu")
    row: measure.Row = {
        "difference": within(gradient(preset, place, device), here, TF32, "a gradient"),
        "difference_bf16": within(gradient(preset, place, device, bf16=True), here, BF16, "a bfloat16 gradient"),
        "tolerance": [TF32, BF16],
    }
    images, _ = data(place.pick(2048, 8), place.side, 3)
    conditions = np.random.default_rng(0).standard_normal((len(images), width)).astype(np.float32)
    work = gpu_work.training_step(preset, images.shape[1:], width, preset.batch)

    def run(tick: Callable[[int, int], None], steps: int) -> None:
        train(images, conditions, replace(preset, steps=steps), seed=0, device=device, progress=tick)

    ways: list[tuple[str, ...]] = [(), ("bf16",)] if place.small else [(), ("bf16",), ("bf16", "compile")]
    for way in ways:
        with options(*way):
            spent = seconds_per_step(run, place.pick(60, 2), device)
        name = "+".join(way) or "float32"
        row[name] = {"seconds": spent, "share": share(work, spent, place)}
    return row | {"batch": preset.batch, "arithmetic": work.arithmetic}


def share(work: gpu_work.Work, seconds: float, place: Place) -> float | None:
    """Of the card's measured bfloat16 rate; None where that is not known."""
    return round(work.arithmetic / seconds / place.products, 4) if place.products else None


def plain_step(place: Place) -> measure.Row:
    """A plain step of the U-Net of Mendieta et al. 2025."""
    return training_row(place.generator, CLASSES, place)


def attack_step(place: Place) -> measure.Row:
    """A step of the attacker's training, the U-Net of Beitollahi et al. 2024 on features."""
    return training_row(place.attacker, place.pick(512, 16), place)


def sums_of(place: Place, device: str) -> dict[str, Tensor]:
    """Clipped sums of one batch."""
    images, labels = data(6, place.side, 3)
    network = moved(place.generator, images.shape[1:], CLASSES).to(device).train()
    training = PrivateTraining(PrivateSteps(1.0, 1.0, 1, 1e-3, 6.0))
    objective = denoising_objective(place.generator, CLASSES, training, device)
    mechanism = mechanism_of()
    clip = ClippedSums(network, objective, training.steps.norm, known=True)
    inputs = to_model_range(torch.from_numpy(images)).to(device)
    found = clip(inputs, torch.from_numpy(labels).to(device), mechanism.streams(0, np.arange(6)), check=True)
    return {name: each.cpu() for name, each in found.items()}


def mechanism_of() -> TrainingMechanism:
    """The same coins and noise every time."""
    return TrainingMechanism(Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "weights"))


def private_step(place: Place) -> measure.Row:
    """A DP-SGD step of the same U-Net; its noise is drawn on the host, in the one mechanism that adds noise."""
    here, there = sums_of(place, "cpu"), sums_of(place, place.device)
    flat = [torch.cat([each[name].flatten() for name in sorted(each)]) for each in (there, here)]
    row: measure.Row = {"difference": within(*flat, TF32, "clipped sums"), "tolerance": TF32}
    for name in sorted(here):
        error_of(there[name], here[name], name)
    records = place.pick(512, 8)
    images, labels = data(records, place.side, 3)

    def run(tick: Callable[[int, int], None], steps: int) -> None:
        private = PrivateSteps(1.0, 1.0, steps, 1.0, float(records))
        train_generator_privately(
            images, labels, CLASSES, place.generator, PrivateTraining(private), mechanism_of(),
            Computation(0, place.device, tick),
        )  # fmt: skip

    spent = seconds_per_step(run, place.pick(15, 2), place.device)
    work = gpu_work.training_step(place.generator, images.shape[1:], CLASSES, records)
    return row | {
        "seconds": spent,
        "share_of_a_plain_steps_arithmetic": share(work, spent, place),
        "batch": records,
    }


def sampling(place: Place) -> measure.Row:
    """Sampling with noise drawn on the device."""
    preset, device, side = place.generator, place.device, place.side
    drawn = [normals(3, range(64), 1, (3, side, side), each).cpu() for each in ("cpu", device)]
    noise = float((drawn[0] - drawn[1]).abs().max())
    assert noise <= 1e-5, f"counted noise: GPU and CPU differ by {noise:.2g}; allowed: 1e-5"
    weights = {n: w.detach().numpy() for n, w in moved(preset, (side, side, 3), CLASSES).named_parameters()}
    model = TrainedDenoiser(preset, (side, side, 3), unchanged(CLASSES), weights, None)
    few = one_hot(np.arange(8) % CLASSES, CLASSES)

    def images(where: str, steps: int, count: int = 8) -> Any:
        rows = few if count == 8 else one_hot(np.arange(count) % CLASSES, CLASSES)
        return sample(model, rows, Sampling(steps=steps), seed=1, counted=True, device=where).astype(np.float64)

    count, steps = place.pick(8192, 16), place.pick(20, 2)
    row: measure.Row = {"noise_difference": noise, "tolerance": [PIXELS, PIXELS_BF16]}
    for way, allowed in ((), PIXELS), (("bf16",), PIXELS_BF16):
        with options(*way):
            away = float(np.abs(images(device, 4) - images("cpu", 4)).mean())
            name = "+".join(way) or "float32"
            assert away <= allowed, f"{name}: sampled pixels differ by {away:.2g} of 255; allowed: {allowed:g}"
            spent = timed(lambda: images(device, steps, count), device, place.repeats)
        work = gpu_work.sampling_step(preset, (side, side, 3), CLASSES, count, guided=True)
        row[name] = {"seconds_per_image_and_step": spent / count / steps, "pixels": away}
        row[name]["share"] = share(work, spent / steps, place)
    return row


def ssim(place: Place) -> measure.Row:
    """The exact search for the most similar image."""
    queries, gallery, source = images32.load(place.pick(2500, 20), place.pick(12000, 60))
    few = [most_similar(queries[:60], gallery[:400], device=each) for each in ("cpu", place.device)]
    np.testing.assert_array_equal(few[0].indices, few[1].indices)
    away = float(np.abs(few[0].values - few[1].values).max())
    assert away <= 1e-9, f"SSIM: GPU and CPU differ by {away:.2g}; allowed: 1e-9"
    spent = timed(lambda: most_similar(queries, gallery, device=place.device), place.device, place.repeats)
    pairs = len(queries) * len(gallery)
    row: measure.Row = {"difference": away, "tolerance": 1e-9, "seconds": spent, "pairs": pairs, "data": source}
    return row | {"us_per_pair": 1e6 * spent / pairs}


def nearest(place: Place) -> measure.Row:
    """The exact search for the 50 nearest images."""
    queries, gallery, source = images32.load(place.pick(2500, 20), place.pick(12000, 120))
    x, y = (each.reshape(len(each), -1).astype(np.float32) / 255 for each in (queries, gallery))
    here, there = (top_k_l2(x[:50], y, 50, device=each) for each in ("cpu", place.device))
    away = float(np.abs(here.distances - there.distances).max())
    assert away <= 1e-4, f"distances: GPU and CPU differ by {away:.2g}; allowed: 1e-4"
    assert np.mean(here.indices == there.indices) > 0.999, "other neighbours on the GPU than on the CPU"
    spent = timed(lambda: top_k_l2(x, y, 50, device=place.device), place.device, place.repeats)
    return {"difference": away, "tolerance": 1e-4, "seconds": spent, "pairs": len(x) * len(y), "data": source}


def features(place: Place) -> measure.Row:
    """Features of a frozen network: SqueezeNet at 64 pixels, random weights."""
    images, _, _ = images32.load(place.pick(2500, 12), 1)
    images = np.concatenate([images] * place.pick(8, 1))
    asked = BackboneRequest(
        "squeezenet1_1", "random", place.pick(64, 32), images.shape[1:], CLASSES, None, 0, "cpu", Path()
    )
    here, there = build(asked), build(replace(asked, device=place.device))
    some = [torch.from_numpy(each.extract(images[:12])) for each in (there, here)]
    away = within(some[0], some[1], TF32, "features")
    spent = timed(lambda: there.extract(images), place.device, place.repeats)
    return {"difference": away, "tolerance": TF32, "seconds": spent, "images_per_second": len(images) / spent}


PLAN = """
name: verdicts
seeds: [3]
data: {name: digits, limit: %d, split: {private: 0.3, attacker: 0.3, public: 0.1, test: 0.3}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods:
  - raw_features: {transport: float32}
  - feddiff: {preset: %s, epochs: %d, steps: 4, classifier: {epochs: 1}}
attacks: [{feature_diffusion: {samples: 2, steps: 4, max_vectors: 24}}]
audits:
  - memorization: {neighbours: 5, control_records: 8, permutations: 200, samples_per_record: 1}
  - reconstruction: {control_records: 30, permutations: 200}
resources: {threads: 1}
"""


def verdicts(place: Place) -> measure.Row:
    """One plan on the CPU and on the GPU, plainly and in bfloat16: the verdicts, and how far metrics are apart."""
    found: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, kept = Path(name), os.environ.get("FEDASSAY_CACHE")
        (folder / "plan.yaml").write_text(
            PLAN % (place.pick(1500, 120), "tiny" if place.small else "small", place.pick(60, 1))
        )
        scenario = load_scenario(folder / "plan.yaml")
        ways = (("cpu", ()), (place.device, ()), (place.device, ("bf16",)))
        for number, (device, way) in enumerate(ways[: 2 if place.small else 3]):
            os.environ["FEDASSAY_CACHE"] = str(folder / f"cache{number}")
            with options(*way):
                _, record = run_scenario(scenario, folder / str(number), RunOptions(device=device, quiet=True))
            found[f"{number} {device} {'+'.join(way) or 'float32'}"] = [
                (cell.label, finding.audit, finding.source, finding.verdict) for cell in record.cells
                for finding in cell.findings
            ]  # fmt: skip
        os.environ.pop("FEDASSAY_CACHE")
        if kept is not None:
            os.environ["FEDASSAY_CACHE"] = kept
    first, *others = found.values()
    differing = [name for name, other in zip(list(found)[1:], others, strict=True) if other != first]
    return {"findings": len(first), "differing": differing, "met": not differing, "found": found}


def rates(place: Place) -> measure.Row:
    """What `fedassay run --dry-run --device cuda` turns sizes into seconds with."""
    step = seconds_per_step(
        lambda tick, steps: train(
            *_pairs(place), replace(place.generator, steps=steps), seed=0, device=place.device, progress=tick
        ),
        place.pick(40, 2), place.device,
    )  # fmt: skip
    work = gpu_work.training_step(place.generator, (place.side, place.side, 3), CLASSES, place.generator.batch)
    measured = {} if place.small else dry_run_rates.measured(place.device)
    return {"rates": measured | {"UNET_FLOPS": float(f"{work.arithmetic / step:.2g}")}}


def _pairs(place: Place) -> tuple[Any, Any]:
    images, labels = data(place.pick(512, 8), place.side, 3)
    return images, one_hot(labels, CLASSES)


ROWS: dict[str, Callable[[Place], measure.Row]] = {
    "matmul": matmul,
    "plain_step": plain_step,
    "attack_step": attack_step,
    "sampling": sampling,
    "private_step": private_step,
    "ssim": ssim,
    "nearest": nearest,
    "features": features,
    "verdicts": verdicts,
    "rates": rates,
}
"""In the order of value: a card that is given back early has answered the first ones."""
