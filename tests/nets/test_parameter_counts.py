"""Every network that a paper gives a number of parameters for has that number, within 2 percent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from fedassay.nets.bodies import BodyName, BodySpec, build_body, features_of
from fedassay.nets.cvae import build_cvae
from fedassay.nets.generators import GENERATORS, GeneratorName
from fedassay.nets.resnet import build_resnet16
from fedassay.nets.trained import build_network

COLOUR, GREY = (32, 32, 3), (28, 28, 1)
MENDIETA, YU = "Mendieta et al. 2025, table 3", "Yu et al. 2026, layers of table A.1"


def _classifier(name: BodyName, shape: tuple[int, int, int], classes: int, width: int = 2) -> nn.Module:
    spec = BodySpec(name=name)
    features = features_of(spec, width)
    return nn.Sequential(build_body(spec, shape, features, 0), nn.Linear(features, classes))


def _generator(name: GeneratorName) -> nn.Module:
    return build_network(GENERATORS[name], COLOUR, 10, seed=0)


PAPERS: list[tuple[str, str, float, Callable[[], nn.Module]]] = [
    (MENDIETA, "FedAvg, DENSE, OneShot-Ens", 6.44e6, lambda: _classifier("resnet16", COLOUR, 10)),
    (MENDIETA, "the same, for DP-SGD", 6.44e6, lambda: _classifier("resnet16_group", COLOUR, 10)),
    ("Mendieta et al. 2025, section 3.1", "the server's", 6.44e6, lambda: build_resnet16(3, 10, 0)),
    (
        "torchvision's documentation, ImageNet's 1,000 classes",
        "MobileNetV2",
        3_504_872,
        lambda: _classifier("mobilenet_v2", COLOUR, 1000),
    ),
    (
        MENDIETA,
        "FedCVAE",
        5.97e6,
        lambda: build_cvae(COLOUR, 10, latent=10, hidden=502, kind="residual", beta=1.0, seed=0),
    ),
    (MENDIETA, "FedDiff", 5.81e6, lambda: _generator("paper")),
    (MENDIETA, "FedDiff_s", 1.46e6, lambda: _generator("small")),
    (YU, "MNIST", 260 + 5_020 + 16_050 + 510, lambda: _classifier("lenet_mnist", GREY, 10, 51)),
    (YU, "CIFAR-10", 456 + 2_416 + 48_120 + 12_100 + 1_010, lambda: _classifier("lenet_cifar", COLOUR, 10, 101)),
    (
        YU,
        "CIFAR-100",
        456 + 2_416 + 48_120 + 12_100 + 10_100,
        lambda: _classifier("lenet_cifar", COLOUR, 100, 101),
    ),
]
"""The paper and where it says so, whose network, the number, and ours."""


@pytest.mark.parametrize(
    ("paper", "whose", "count", "build"), PAPERS, ids=[f"{paper}: {whose}" for paper, whose, *_ in PAPERS]
)
def test_as_many_parameters_as_in_the_paper(
    paper: str, whose: str, count: float, build: Callable[[], nn.Module]
) -> None:
    own = sum(parameter.numel() for parameter in build().parameters())
    assert own == pytest.approx(count, rel=0.02), f"{whose} ({paper}): {count:,.0f} there, {own:,} here"
