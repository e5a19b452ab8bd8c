"""Common parts of the costs of methods, attacks and audits: heads, networks, memory, from measured rates.

The cost of a component stands beside it (`facts`). Every cost is a few lines: the repeated work, its number, and
the rate. They separate minutes from hours and are not exact.
"""

from __future__ import annotations

import math

from fedassay.contracts.facts import Given
from fedassay.contracts.sizes import Sizes
from fedassay.nets.presets import Preset
from fedassay.plan import rates as rate

_HIDDEN = {"mlp": 128, "mlp_deep": 128, "cnn": 64}


def body(given: Given, sizes: Sizes) -> tuple[float, int, float]:
    """A client body: operations of its forward pass on one image, parameters, and the rate that applies."""
    name = given["name"]
    height, width, channels = sizes.image
    hidden = given.get("hidden") or _HIDDEN.get(name, 0)
    if name in {"linear", "mlp", "mlp_deep"}:
        layers = {"linear": 0, "mlp": 1, "mlp_deep": 2}[name]
        parameters = sizes.pixels * (hidden or 32) + max(layers - 1, 0) * hidden * hidden + hidden * 32
        return 2.0 * parameters, parameters, rate.DENSE_FLOPS
    if name in {"resnet16", "resnet16_group"}:
        # 480 million multiplications at 32x32 (Mendieta et al. 2025, table 3).
        return 9.6e8 * height * width / 1024, 6_450_000, rate.CONVOLUTION_FLOPS
    if name == "mobilenet_v2":
        # 300 million multiplications at 224x224 (Sandler et al. 2018, table 4).
        return 6.0e8 * height * width / 224**2, 2_230_000, rate.CONVOLUTION_FLOPS
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


def one_head(given: Given, sizes: Sizes, private: bool) -> float:
    """One head on all records."""
    return head(sizes, sizes.private)


def local_heads(given: Given, sizes: Sizes, private: bool) -> float:
    """A head a client, by DP-SGD if `private`."""
    if not private:
        return head(sizes, sizes.private) + rate.FIT * (sizes.clients - 1)
    steps = math.ceil(given["dp_sgd"]["epochs"] / given["dp_sgd"]["sampling_rate"]) * sizes.clients
    return float(rate.CALIBRATION + steps * rate.PRIVATE_STEP)


def networks(given: Given, sizes: Sizes, private: bool) -> float:
    """A classifier a client, in every round, by DP-SGD if `private`."""
    rounds, epochs = given.get("rounds", 1), given["local_epochs"]
    seconds = rounds * training(given, sizes, epochs=epochs, batch=given["batch"], private=private)
    return float(seconds + rate.CALIBRATION * private)


def film(preset: Preset, sizes: Sizes) -> float:
    """Parameters of a perceptron on the flattened image."""
    return film_parameters(preset, sizes.pixels)


def film_parameters(preset: Preset, pixels: int) -> float:
    """Parameters of a perceptron on an image of so many numbers."""
    return float(preset.width * (2 * pixels + 6 * preset.blocks * preset.width))


def extraction(sizes: Sizes) -> float:
    """Features of all records, once a seed."""
    images = sizes.private + sizes.attacker + sizes.public + sizes.test + sizes.control
    return sizes.backbone * images / rate.CONVOLUTION_FLOPS


def memory(sizes: Sizes, parameters: float, pictures: bool) -> float:
    """Bytes that a process holds at most: images, features, the clients' networks and their messages.

    Args:
        sizes: Of the plan.
        parameters: Of the largest network that a client trains.
        pictures: Whether an attack reconstructs images by a generator.
    """
    images = sizes.private + sizes.attacker + sizes.public + sizes.test
    held = images * (sizes.pixels + 4 * sizes.width)
    moments = sizes.clients * sizes.width**2 * 8
    # A network, its two Adam moments, its message and the server's copy.
    networks = 5 * 4 * parameters * sizes.clients
    together = 256 * (parameters * 4 + sizes.pixels * 200)
    generated = rate.PICTURES_BYTES * min(sizes.pixels, rate.PICTURES_MOST) * pictures
    return rate.PROCESS_BYTES + generated + held + moments + networks + together
