"""The rates that `fedassay run --dry-run` estimates with, measured on this machine.

    OMP_NUM_THREADS=1 python benchmarks/dry_run_rates.py

Prints JSON: the constants of `fedassay.plan.rates`, one thread. Processor time, not elapsed time, so that a
busy machine does not change the result much. `benchmarks/gpu.py` measures the same on a GPU, in elapsed time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np
import torch

from fedassay.heads.linear import train_head
from fedassay.methods.shared.local_heads import head_loss
from fedassay.mixtures import fit_mixtures
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.local_training import record_objective, train, train_privately
from fedassay.plan.sizes import Sizes
from fedassay.plan.work import body
from fedassay.privacy.accounting import calibrate_noise_multiplier
from fedassay.privacy.tape import Key
from fedassay.similarity.ssim_search import most_similar
from fedassay.support.devices import is_gpu
from fedassay.support.optimisation import Minibatches
from fedassay.support.seeds import Seeds

RECORDS, EPOCHS, BATCH = 1000, 4, 100
SIZES = Sizes(
    private=RECORDS, attacker=0, public=0, test=0, control=0, clients=1, classes=10, image=(28, 28, 1), width=64,
    backbone=0.0,
)  # fmt: skip


def seconds(call: Callable[[], object], device: str = "cpu") -> float:
    """Of the processor on a CPU; elapsed, with the card waited for, on a GPU."""
    call()
    if not is_gpu(device):
        start = time.process_time()
        call()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def plain(name: str, batch: int, device: str) -> float:
    images, labels, module = records(name, device)

    def run() -> None:
        generator = torch.Generator().manual_seed(0)
        train(module, images, labels, head_loss, Minibatches(EPOCHS, batch, 1e-3), generator)

    return seconds(run, device)


def private(name: str, records_of: int, device: str) -> float:
    images, labels, module = records(name, device)
    steps = PrivateSteps(1.0, BATCH / RECORDS, EPOCHS * RECORDS // BATCH, 1.0, BATCH)

    def run() -> None:
        mechanism = TrainingMechanism(
            Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "parameters")
        )
        given = (module, images[:records_of], labels[:records_of], record_objective(head_loss))
        train_privately(Training(*given, steps, Updates(1e-3), mechanism))

    return seconds(run, device)


def records(name: str, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.nn.Module]:
    rng = np.random.default_rng(0)
    images = torch.tensor(rng.integers(0, 256, (RECORDS, 1, 28, 28), dtype=np.uint8))
    labels = torch.tensor(rng.integers(0, 10, RECORDS))
    module = build_body(BodySpec.model_validate({"name": name}), (28, 28, 1), 10, 0)
    return images.to(device), labels.to(device), module.to(device)


def measured(device: str) -> dict[str, float]:
    """Every rate that these sizes give, rounded to two figures."""
    rng = np.random.default_rng(0)
    # An optimiser step besides its arithmetic: what small batches cost more than large ones.
    small, large = (plain("linear", batch, device) for batch in (10, RECORDS))
    step = (small - large) / (EPOCHS * (RECORDS // 10 - 1))
    rates: dict[str, float] = {"STEP": step}
    for constant, name in (("DENSE_FLOPS", "mlp"), ("CONVOLUTION_FLOPS", "cnn")):
        operations = body({"name": name}, SIZES)[0]
        spent = plain(name, BATCH, device) - step * EPOCHS * RECORDS / BATCH
        rates[constant] = 3 * operations * RECORDS * EPOCHS / spent
    steps = EPOCHS * RECORDS // BATCH
    # Ten records a step: what a step costs whatever is in it, by two networks of different size.
    little, much = (private(name, 100, device) / steps for name in ("linear", "mlp"))
    counts = [body({"name": name}, SIZES)[1] for name in ("linear", "mlp")]
    rates["PRIVATE_PARAMETER"] = (much - little) / (counts[1] - counts[0])
    rates["PRIVATE_STEP"] = little - counts[0] * rates["PRIVATE_PARAMETER"]
    rates["PRIVATE_RECORD"] = (private("cnn", RECORDS, device) - private("cnn", 100, device)) / (
        0.9 * (plain("cnn", BATCH, device) - steps * step)
    )
    # The first time: a calibration is kept.
    start = time.process_time()
    calibrate_noise_multiplier(9.5, 1e-5, sampling_rate=0.1, steps=200, adjacency="add_remove")
    rates["CALIBRATION"] = time.process_time() - start
    features = rng.standard_normal((2000, 64)).astype(np.float32)
    labels = rng.integers(0, 10, 2000)
    features[np.arange(2000), labels] += 2
    rates["HEAD"] = seconds(lambda: train_head(features, labels, device=device), device) / (2000 * 64 * 10)
    groups = [features[labels == label] for label in range(10)]
    fit = seconds(
        lambda: fit_mixtures(
            groups, 10, "diag", generators=[np.random.default_rng(i) for i in range(10)], device=device
        ),
        device,
    )
    rates["MIXTURE"] = fit / (2000 * 10 * 64)
    images = rng.integers(0, 256, (800, 28, 28, 1), dtype=np.uint8)
    rates["SSIM"] = seconds(lambda: most_similar(images, images, device=device), device) / (800 * 800 * 784)
    return {name: float(f"{value:.2g}") for name, value in rates.items()}


def main() -> None:
    torch.set_num_threads(1)
    print(json.dumps(measured("cpu"), indent=1))


if __name__ == "__main__":
    main()
