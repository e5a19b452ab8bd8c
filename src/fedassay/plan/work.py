"""What methods, attacks and audits cost: seconds and memory from sizes, parameters and measured rates.

Every cost is a few lines: what is repeated, how often, and the rate. They are meant to tell minutes from hours,
not to be exact. A component that has no entry here is named in the output as not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from fedassay.nets.generators import GENERATORS
from fedassay.nets.presets import PRESETS, Preset
from fedassay.plan import rates as rate
from fedassay.plan.sizes import Sizes

Given = Mapping[str, Any]
"""Parameters of a component, defaults filled in."""

_HIDDEN = {"mlp": 128, "mlp_deep": 128, "cnn": 64}
_UNET_OPERATIONS = 1.2e10
"""Of the U-Net of preset `paper` on a 32x32 colour image (Ho et al. 2020), forward."""


def body(given: Given, sizes: Sizes) -> tuple[float, int, float]:
    """A client body: operations of its forward pass on one image, parameters, and the rate that applies."""
    name = given["name"]
    height, width, channels = sizes.image
    hidden = given.get("hidden") or _HIDDEN.get(name, 0)
    if name in {"linear", "mlp", "mlp_deep"}:
        layers = {"linear": 0, "mlp": 1, "mlp_deep": 2}[name]
        parameters = sizes.pixels * (hidden or 32) + max(layers - 1, 0) * hidden * hidden + hidden * 32
        return 2.0 * parameters, parameters, rate.DENSE_FLOPS
    maps, kernel = {"cnn": ((16, 32), 3), "lenet_mnist": ((10, 20), 5)}.get(name, ((6, 16), 5))
    first = kernel**2 * channels * maps[0]
    second = kernel**2 * maps[0] * maps[1]
    # Two poolings; the 5x5 convolutions of the lenets have no padding.
    rows, columns = (side // 4 if name == "cnn" else ((side - 4) // 2 - 4) // 2 for side in (height, width))
    dense = maps[1] * rows * columns * (hidden or (32 if name == "lenet_mnist" else 120))
    operations = 2.0 * (height * width * first + height * width / 4 * second + dense)
    return operations, first + second + dense, rate.CONVOLUTION_FLOPS


def training(
    given: Given, sizes: Sizes, *, epochs: float, batch: int, private: bool, records: float | None = None
) -> float:
    """Training the body of every client for some passes over its records, by DP-SGD if `private`."""
    total = sizes.private if records is None else records
    kinds = given.get("bodies") or [{"name": "mlp"}]
    operations, parameters, speed = body(kinds[0], sizes)
    if given.get("start") == "backbone":
        operations, parameters, speed = sizes.backbone, 100_000, rate.CONVOLUTION_FLOPS
    seconds = 3 * operations * total * epochs / speed
    if not private:
        return seconds + rate.STEP * epochs * total / batch
    steps = math.ceil(epochs / given["dp_sgd"]["sampling_rate"]) * sizes.clients
    return float(rate.PRIVATE_RECORD * seconds + steps * (rate.PRIVATE_STEP + rate.PRIVATE_PARAMETER * parameters))


def head(sizes: Sizes, records: float) -> float:
    """Fitting one head on features."""
    return rate.HEAD * records * sizes.width * sizes.classes + rate.FIT


def _local_heads(given: Given, sizes: Sizes, private: bool) -> float:
    if not private:
        return head(sizes, sizes.private) + rate.FIT * (sizes.clients - 1)
    steps = math.ceil(given["dp_sgd"]["epochs"] / given["dp_sgd"]["sampling_rate"]) * sizes.clients
    return float(rate.CALIBRATION + steps * rate.PRIVATE_STEP)


def _networks(given: Given, sizes: Sizes, private: bool) -> float:
    rounds, epochs = given.get("rounds", 1), given["local_epochs"]
    seconds = rounds * training(given, sizes, epochs=epochs, batch=given["batch"], private=private)
    return float(seconds + rate.CALIBRATION * private)


def _ensemble(given: Given, sizes: Sizes, private: bool) -> float:
    inner = given["networks"]
    return _local_heads(given, sizes, private) if inner is None else _networks(inner, sizes, private)


def _mixtures(given: Given, sizes: Sizes, private: bool) -> float:
    each = given["components"]
    components = max(each) if isinstance(each, list | tuple) else each
    cost = rate.MIXTURE * sizes.private * components * sizes.width
    cost *= sizes.width / 8 if given["covariance"] == "full" and components > 1 else 1
    return float(cost + head(sizes, sizes.private))


def _chain(given: Given, sizes: Sizes, private: bool) -> float:
    # Client i works on what all before it had: half of all on average; each trains a head.
    return _mixtures(given, sizes, private) * sizes.clients / 2


def _fedcgs(given: Given, sizes: Sizes, private: bool) -> float:
    width = given["expansion"] or sizes.width
    seconds = 2.0 * sizes.private * width**2 / rate.DENSE_FLOPS + width**3 / rate.DENSE_FLOPS
    personal = given.get("personalize")
    if personal is not None:
        seconds += 3 * sizes.backbone * sizes.private * personal["epochs"] / rate.CONVOLUTION_FLOPS
    return seconds


def _fedlog(given: Given, sizes: Sizes, private: bool) -> float:
    by_noise = private and given["body"] == "dp_sgd"
    records = sizes.public if private and given["body"] == "public" else None
    each = training(
        given, sizes, epochs=given["local_epochs"], batch=given["batch"], private=by_noise, records=records
    )
    return float(given["rounds"] * (each + 0.2) + rate.CALIBRATION * by_noise)


def _ccvr(given: Given, sizes: Sizes, private: bool) -> float:
    return _networks(given["fedavg"], sizes, private) + head(sizes, sizes.private)


def _dense(given: Given, sizes: Sizes, private: bool) -> float:
    inner = given["networks"]
    operations, _, speed = body(inner["bodies"][0], sizes)
    # Every client's classifier and the student, forwards and backwards; the generator costs about ten bodies.
    against = 3 * operations * given["batch"] * (sizes.clients + 11) * given["generator_steps"]
    learning = 3 * operations * given["batch"] * given["student_steps"]
    return float(_networks(inner, sizes, private) + given["rounds"] * (against + learning) / speed)


def _fedcvae(given: Given, sizes: Sizes, private: bool) -> float:
    parameters = 2 * sizes.pixels * given["hidden"] + given["hidden"] ** 2
    seconds = 6.0 * parameters * sizes.private * given["local_epochs"] / rate.DENSE_FLOPS
    steps = given["local_epochs"] * sizes.private / given["batch"]
    if private:
        steps = math.ceil(given["local_epochs"] / given["dp_sgd"]["sampling_rate"]) * sizes.clients
        seconds = rate.PRIVATE_RECORD * seconds + steps * (rate.PRIVATE_STEP + rate.PRIVATE_PARAMETER * parameters)
    inner = given["classifier"]
    after = training(inner, sizes, epochs=inner["local_epochs"], batch=inner["batch"], private=False)
    return float(seconds + rate.STEP * steps + after + rate.CALIBRATION * private)


def _film(preset: Preset, sizes: Sizes) -> float:
    """Parameters of a perceptron on the flattened image."""
    return float(preset.width * (2 * sizes.pixels + 6 * preset.blocks * preset.width))


def _feddiff(given: Given, sizes: Sizes, private: bool) -> float:
    presets = [GENERATORS[name] for name in given["preset"]]
    epochs = given["dp_sgd"]["epochs"] if private else given["epochs"]
    total = 0.0
    for preset in presets:
        if preset.architecture == "unet":
            # 300 MFLOPs, multiplications counted, of the paper's U-Net at 32x32; the square of the width.
            operations = 6.0e8 * (preset.width / 24) ** 2 * sizes.pixels / 3072
            speed = rate.CONVOLUTION_FLOPS
        else:
            operations, speed = 2.0 * _film(preset, sizes), rate.DENSE_FLOPS
        trained = 3 * operations * sizes.private * epochs * (rate.PRIVATE_RECORD if private else 1)
        steps = 1000 if given["sampler"] == "ddpm" and given["steps"] is None else given["steps"] or 40
        sampled = 2 * operations * sizes.private * steps
        batches = epochs * sizes.private / (given["batch"] or preset.batch)
        total += (trained + sampled) / speed + batches * 3 * rate.STEP
    return total / len(presets) + rate.CALIBRATION * private


METHODS: dict[str, Callable[[Given, Sizes, bool], float]] = {
    "raw_features": lambda given, sizes, private: head(sizes, sizes.private),
    "centralized": lambda given, sizes, private: head(sizes, sizes.private),
    "fedpft": _mixtures,
    "fedpft_chain": _chain,
    "fedcgs": _fedcgs,
    "fedlog": _fedlog,
    "ensemble": _ensemble,
    "average": _local_heads,
    "knowledge_distillation": _local_heads,
    "fedavg": _networks,
    "fedproto": _networks,
    "ccvr": _ccvr,
    "dense": _dense,
    "fedcvae": _fedcvae,
    "feddiff": _feddiff,
}
"""Seconds of a method at one cell, from its parameters, the sizes, and whether epsilon is finite."""


def extraction(sizes: Sizes) -> float:
    """Features of all records, once a seed."""
    images = sizes.private + sizes.attacker + sizes.public + sizes.test
    return sizes.backbone * images / rate.CONVOLUTION_FLOPS


def _diffusion(given: Given, sizes: Sizes, cells: int) -> float:
    preset = PRESETS[given["preset"]]
    rows = min(sizes.private, given["limit"] or sizes.private) * given["samples"]
    if preset.architecture == "unet":
        operations = _UNET_OPERATIONS * sizes.pixels / 3072
        speed = rate.CONVOLUTION_FLOPS
    else:
        operations, speed = 2.0 * _film(preset, sizes), rate.DENSE_FLOPS
    fitted = 3 * operations * preset.steps * preset.batch / speed
    return float(fitted + cells * operations * rows * (given["steps"] or preset.sampling_steps) / speed)


def _inversion(given: Given, sizes: Sizes, cells: int) -> float:
    steps = given.get("steps") or {"tiny": 150, "small": 600, "paper": 3000}[given["preset"]]
    return cells * 100 * steps * 3 * sizes.backbone / rate.CONVOLUTION_FLOPS


ATTACKS: dict[str, Callable[[Given, Sizes, int], float]] = {
    "feature_diffusion": _diffusion,
    "feature_inversion": _inversion,
    "message_algebra": lambda given, sizes, cells: rate.AUDIT * cells / 10,
    "label_distribution": lambda given, sizes, cells: rate.AUDIT * cells / 10,
    "gram_factorization": lambda given, sizes, cells: rate.AUDIT * cells,
}
"""Seconds of an attack over so many cells of one seed; `membership` reruns methods, see `estimate`."""


def _reconstruction(given: Given, sizes: Sizes, cells: int) -> float:
    pairs = sizes.private * (sizes.attacker + sizes.private)
    return cells * (rate.SSIM * pairs * sizes.pixels + 10 * rate.AUDIT)


AUDITS: dict[str, Callable[[Given, Sizes, int], float]] = {
    "reconstruction": _reconstruction,
    "inversion": lambda given, sizes, cells: 2 * rate.AUDIT * cells,
    "message": lambda given, sizes, cells: rate.AUDIT * cells,
    "membership": lambda given, sizes, cells: rate.AUDIT * cells,
    "memorization": lambda given, sizes, cells: rate.AUDIT * cells,
    "dp_claim": lambda given, sizes, cells: rate.AUDIT * cells,
    "ledger": lambda given, sizes, cells: 0.0,
}
"""Seconds of an audit over so many cells of one seed; `dp_claim` in mode `rerun` reruns methods."""


def memory(sizes: Sizes, parameters: float) -> float:
    """Bytes that a process holds at most: images, features, the clients' networks and their messages."""
    images = sizes.private + sizes.attacker + sizes.public + sizes.test
    held = images * (sizes.pixels + 4 * sizes.width)
    moments = sizes.clients * sizes.width**2 * 8
    # A network, its two Adam moments, its message and the server's copy.
    networks = 5 * 4 * parameters * sizes.clients
    together = 256 * (parameters * 4 + sizes.pixels * 200)
    return rate.PROCESS_BYTES + held + moments + networks + together
