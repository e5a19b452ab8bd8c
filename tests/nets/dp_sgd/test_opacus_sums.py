"""The two engines of DP-SGD give the same clipped sums, on every network that is trained with noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.backbones.base import initialised
from fedassay.methods.rivals.fedcvae import _bound
from fedassay.nets.bodies import BodyName, BodySpec, build_body
from fedassay.nets.cvae import CVAEKind, build_cvae, one_hot
from fedassay.nets.denoising import to_model_range
from fedassay.nets.dp_sgd.clipped_sums import ClippedSums, Objective, RecordStreams
from fedassay.nets.dp_sgd.generators import PrivateTraining, denoising_objective
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.record_gradients import RecordGradients
from fedassay.nets.dp_sgd.steps import Engine, PrivateSteps
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.generators import GENERATORS
from fedassay.nets.local_training import record_objective, train_privately
from fedassay.nets.trained import build_network
from fedassay.privacy.tape import Key
from fedassay.support.errors import PlanError
from fedassay.support.seeds import Seeds

N, CLASSES = 4, 3
Case = Callable[[], tuple[nn.Module, Tensor, Objective]]


def _images(side: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (N, side, side, 1), dtype=np.uint8)


LABELS = torch.arange(N) % CLASSES


def _loss(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")


def _moved(network: nn.Module) -> nn.Module:
    """Layers that start at zero would hide the gradients of those before them."""
    with torch.no_grad():
        for index, parameter in enumerate(network.parameters()):
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return network.train()


def _body(name: BodyName) -> Case:
    def make() -> tuple[nn.Module, Tensor, Objective]:
        images = torch.from_numpy(_images(32)).permute(0, 3, 1, 2).contiguous()
        body = build_body(BodySpec(name=name), (32, 32, 1), 6, 0)
        network = nn.Sequential(body, nn.ReLU(), initialised(lambda: nn.Linear(6, CLASSES), 0))
        return _moved(network), images, record_objective(_loss)

    return make


def _generator(name: str) -> Case:
    def make() -> tuple[nn.Module, Tensor, Objective]:
        preset = replace(GENERATORS[name], dropout=0.0)  # type: ignore[index]
        network = build_network(preset, (16, 16, 1), CLASSES, seed=0)
        steps = PrivateTraining(PrivateSteps(1.0, 1.0, 1, 1.0, 1.0), draws=2)
        objective = denoising_objective(preset, CLASSES, steps, "cpu")
        return _moved(network), to_model_range(torch.from_numpy(_images(16))), objective

    return make


def _autoencoder(kind: CVAEKind) -> Case:
    def make() -> tuple[nn.Module, Tensor, Objective]:
        network = build_cvae((8, 8, 1), CLASSES, latent=4, hidden=16, kind=kind, beta=1.0, seed=0)
        pixels = torch.from_numpy(_images(8)).flatten(1).float() / 255
        rows = torch.cat([pixels, one_hot(LABELS, CLASSES)], dim=1)
        drawn = lambda chosen, normals: torch.cat([chosen, normals(4)], dim=1)  # noqa: E731
        return _moved(network), rows, record_objective(_bound, drawn)

    return make


NETWORKS: dict[str, Case] = {
    **{f"body {name}": _body(name) for name in get_args(BodyName)},
    **{f"generator {name}": _generator(name) for name in GENERATORS if name != "paper"},
    **{f"autoencoder {kind}": _autoencoder(kind) for kind in get_args(CVAEKind)},
    "head": lambda: (
        _moved(initialised(lambda: nn.Linear(5, CLASSES), 0)),
        torch.randn(N, 5, generator=torch.Generator().manual_seed(0)),
        record_objective(_loss),
    ),
}


def _sums(engine: Engine, case: Case, norm: float, count: int = N) -> dict[str, Tensor]:
    network, inputs, objective = case()
    clip = ClippedSums(network, objective, norm, engine=engine)
    streams = RecordStreams(7, np.arange(count))
    return clip(inputs[:count], LABELS[:count], streams, check=count > 0)


def _known(case: Case) -> bool:
    try:
        RecordGradients(case()[0])
    except TypeError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_both_engines_give_the_same_clipped_sums(name: str) -> None:
    case = NETWORKS[name]
    if not _known(case):
        with pytest.raises(PlanError, match="engine: opacus does not take"):
            _sums("opacus", case, 1.0)
        return
    for norm in (1e-2, 1e3):
        fast, opacus = _sums("fast", case, norm), _sums("opacus", case, norm)
        assert list(fast) == list(opacus)
        one, other = (torch.cat([each.flatten() for each in sums.values()]) for sums in (fast, opacus))
        away = torch.linalg.vector_norm(one - other) / torch.linalg.vector_norm(one)
        # Opacus divides by the norm plus 1e-6, and sums in another order.
        assert float(away) < 1e-3, norm
        assert float(torch.linalg.vector_norm(other)) <= N * norm * (1 + 1e-5)


def test_empty_batches_have_sums_of_zero() -> None:
    assert not any(each.any() for each in _sums("opacus", NETWORKS["head"], 1.0, count=0).values())


def test_nothing_of_opacus_stays_on_a_network() -> None:
    network, inputs, objective = NETWORKS["body cnn"]()
    before = {name: len(module._forward_hooks) for name, module in network.named_modules()}
    ClippedSums(network, objective, 1.0, engine="opacus")(inputs, LABELS, RecordStreams(0, np.arange(N)))
    assert before == {name: len(module._forward_hooks) for name, module in network.named_modules()}
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(hasattr(parameter, "grad_sample") for parameter in network.parameters())


def test_a_layer_whose_gradients_are_lost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without contiguous images a convolution behind channels-last ones gets gradients of zero."""

    class Last(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.contiguous(memory_format=torch.channels_last)

    network = nn.Sequential(Last(), nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 36, CLASSES))
    images = torch.rand(N, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    clip = ClippedSums(network, record_objective(_loss), 1.0, engine="opacus")
    clip(images, LABELS, RecordStreams(0, np.arange(N)), check=True)
    monkeypatch.setattr("fedassay.nets.dp_sgd.opacus_sums._contiguous", lambda _, given: given)
    with pytest.raises(RuntimeError, match="do not add up"):
        clip(images, LABELS, RecordStreams(0, np.arange(N)), check=True)


def test_a_training_ends_the_same_under_either_engine() -> None:
    weights = []
    for engine in get_args(Engine):
        network, inputs, _ = NETWORKS["body mlp"]()
        mechanism = TrainingMechanism(
            Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "parameters")
        )
        steps = PrivateSteps(1.0, 0.5, 5, 1.0, 2.0, engine)
        objective = record_objective(_loss)
        train_privately(Training(network, inputs, LABELS, objective, steps, Updates(1e-3), mechanism))
        weights.append(torch.cat([each.detach().flatten() for each in network.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-3, atol=1e-4)
