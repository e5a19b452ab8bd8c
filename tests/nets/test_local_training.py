"""Client bodies and their training: every record's gradient against autograd, clipping, noise, sampling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional

from fedassay.nets.bodies import BodySpec, build_body, read_bodies
from fedassay.nets.dp_sgd.clipped_sums import ClippedSums, RecordStreams, record_gradients
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps, steps_of
from fedassay.nets.dp_sgd.tape import Training
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.local_training import record_objective, train, train_privately
from fedassay.privacy.tape import Key
from fedassay.support.errors import PlanError
from fedassay.support.optimisation import Minibatches
from fedassay.support.seeds import Seeds

SMALL = ["linear", "mlp", "mlp_deep", "cnn"]
LENETS = ["lenet_mnist", "lenet_cifar", "lenet_cifar_small"]


def _loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")


def _mechanism(seed: int = 0) -> TrainingMechanism:
    return TrainingMechanism(
        Seeds(seed).child("noise"), Seeds(seed).child("coins"), Key("client/0", 0, "parameters")
    )


def clipped_sums(
    module: nn.Module, images: torch.Tensor, labels: torch.Tensor, norm: float, *, check: bool = False
) -> dict[str, torch.Tensor]:
    streams = RecordStreams(0, np.arange(len(labels)))
    return ClippedSums(module, record_objective(_loss), norm)(images, labels, streams, check=check)


def _records(shape: tuple[int, int, int], n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    height, width, channels = shape
    images = torch.tensor(rng.integers(0, 256, (n, channels, height, width), dtype=np.uint8))
    return images, torch.tensor(rng.integers(0, 5, n))


@pytest.mark.parametrize("name", SMALL + LENETS)
def test_bodies_have_the_width_asked_for_and_start_from_their_seed(name: str) -> None:
    shape = (28, 28, 1) if name in LENETS else (8, 9, 3)
    images, _ = _records(shape, 4)
    spec = BodySpec.model_validate({"name": name})
    one, same, other = (build_body(spec, shape, 6, seed) for seed in (1, 1, 2))
    assert one(images).shape == (4, 6)
    assert torch.equal(one(images), same(images))
    assert not torch.equal(one(images), other(images))


def test_images_too_small_for_a_body_are_refused() -> None:
    with pytest.raises(PlanError, match="lenet does not take images of 8x8"):
        build_body(BodySpec(name="lenet_cifar"), (8, 8, 1), 4, 0)


def test_what_a_plan_may_write_for_bodies() -> None:
    assert read_bodies("mlp") == ({"name": "mlp"},)
    assert read_bodies(["mlp", {"name": "cnn", "hidden": 8}]) == ({"name": "mlp"}, {"name": "cnn", "hidden": 8})
    with pytest.raises(ValidationError, match="no hidden width"):
        BodySpec(name="linear", hidden=3)


@pytest.mark.parametrize("name", SMALL + LENETS)
def test_every_records_gradient_is_that_of_autograd(name: str) -> None:
    shape = (28, 28, 1) if name in LENETS else (8, 8, 1)
    images, labels = _records(shape, 7)
    module = build_body(BodySpec.model_validate({"name": name}), shape, 5, 0)
    found = record_gradients(module, record_objective(_loss), (images, labels))
    for index in range(len(labels)):
        module.zero_grad()
        _loss(module(images[index : index + 1]), labels[index : index + 1]).sum().backward()
        for key, parameter in module.named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(found[key][index], parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", [1e-3, 0.5, 1e3])
@pytest.mark.parametrize("name", SMALL + LENETS)
def test_both_ways_to_clipped_sums_agree(name: str, norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (28, 28, 1) if name in LENETS else (8, 8, 1)
    images, labels = _records(shape, 7)
    module = build_body(BodySpec.model_validate({"name": name}), shape, 5, 0)
    gradients = record_gradients(module, record_objective(_loss), (images, labels))
    found = clipped_sums(module, images, labels, norm, check=True)
    monkeypatch.setattr("fedassay.nets.dp_sgd.clipped_sums.RecordGradients", _refuse)
    written = clipped_sums(module, images, labels, norm, check=True)
    sizes = torch.cat([each.flatten(1) for each in gradients.values()], dim=1).norm(dim=1)
    for key, each in gradients.items():
        expected = torch.einsum("n,n...->...", torch.clamp(norm / sizes, max=1), each)
        torch.testing.assert_close(found[key], expected, rtol=1e-3, atol=1e-5 * norm)
        torch.testing.assert_close(written[key], expected, rtol=1e-3, atol=1e-5 * norm)


def _refuse(module: nn.Module) -> None:
    raise TypeError("unknown layers")


def test_layers_without_known_factors_are_clipped_all_the_same() -> None:
    images, labels = _records((8, 8, 1), 7)
    kept = nn.BatchNorm1d(6).eval()
    module = nn.Sequential(build_body(BodySpec(name="linear"), (8, 8, 1), 6, 0), kept, nn.Linear(6, 5))
    sums = clipped_sums(module, images, labels, 1e3)
    _loss(module(images), labels).sum().backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(sums[name], parameter.grad, rtol=1e-4, atol=1e-5)


class _Bypassed(nn.Module):
    """A weight that is used past its layer, where no hook sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.head = nn.Linear(64, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.float().flatten(1) / 255
        scores: torch.Tensor = self.head(self.layer(functional.linear(flat, self.layer.weight).tanh()))
        return scores


def _training(
    module: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    steps: PrivateSteps,
    mechanism: TrainingMechanism,
) -> Training:
    return Training(module, images, labels, record_objective(_loss), steps, Updates(1e-3), mechanism)


def test_training_stops_where_gradients_are_lost() -> None:
    images, labels = _records((8, 8, 1), 20)
    steps = PrivateSteps(noise_multiplier=1, sampling_rate=0.5, steps=3, norm=1, batch=10)
    with pytest.raises(RuntimeError, match="do not add up"):
        train_privately(_training(_Bypassed(), images, labels, steps, _mechanism()))


@pytest.mark.parametrize("middle", [nn.Identity(), nn.BatchNorm1d(6).eval()], ids=["recorded", "written"])
def test_frozen_parameters_stay(middle: nn.Module) -> None:
    images, labels = _records((8, 8, 1), 20)
    body = build_body(BodySpec(name="linear"), (8, 8, 1), 6, 0).requires_grad_(False)
    module = nn.Sequential(body, middle.requires_grad_(False), nn.Linear(6, 5))
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    steps = PrivateSteps(noise_multiplier=1, sampling_rate=0.5, steps=2, norm=1, batch=10)
    module.train = lambda mode=True: module  # type: ignore[method-assign]
    train_privately(_training(module, images, labels, steps, _mechanism()))
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, before[name]) == (not parameter.requires_grad)


@pytest.mark.parametrize("norm", [1e-3, 0.5, 1e3])
def test_sums_are_clipped_record_by_record(norm: float) -> None:
    images, labels = _records((8, 8, 1), 300)
    module = build_body(BodySpec(name="mlp", hidden=6), (8, 8, 1), 5, 0)
    gradients = record_gradients(module, record_objective(_loss), (images, labels))
    flat = torch.cat([each.flatten(1) for each in gradients.values()], dim=1)
    scales = torch.clamp(norm / flat.norm(dim=1), max=1)
    naive = (flat * scales[:, None]).sum(dim=0)
    sums = clipped_sums(module, images, labels, norm)  # 300 records: more than one chunk
    found = torch.cat([each.flatten() for each in sums.values()])
    torch.testing.assert_close(found, naive, rtol=1e-3, atol=1e-5)
    one = clipped_sums(module, images[:1], labels[:1], norm)
    assert torch.cat([each.flatten() for each in one.values()]).norm() <= norm * (1 + 1e-5)


def test_without_noise_clipping_and_sampling_it_is_plain_training() -> None:
    images, labels = _records((8, 8, 1), 40)
    plain, private = (build_body(BodySpec(name="mlp", hidden=8), (8, 8, 1), 5, 0) for _ in range(2))
    train(plain, images, labels, _loss, Minibatches(5, 40, 1e-3), torch.Generator().manual_seed(0))
    steps = PrivateSteps(noise_multiplier=0, sampling_rate=1, steps=5, norm=1e6, batch=40)
    train_privately(_training(private, images, labels, steps, _mechanism()))
    for ours, theirs in zip(private.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


class _Spy(nn.Module):
    """One weight; remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4000))


def test_noise_has_its_scale_and_empty_clients_release_noise_alone() -> None:
    """The gradient that the optimiser sees is N(0, (z C / batch)^2) where there are no records."""
    module = _Spy()
    images, labels = _records((8, 8, 1), 0)
    steps = PrivateSteps(noise_multiplier=3.0, sampling_rate=0.5, steps=1, norm=2.0, batch=10.0)
    train_privately(_training(module, images, labels, steps, _mechanism(1)))
    assert module.weight.grad is not None
    assert module.weight.grad.std().item() == pytest.approx(0.6, rel=0.05)
    assert abs(module.weight.grad.mean().item()) < 0.05


def test_records_are_sampled_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def spy(self: ClippedSums, inputs: torch.Tensor, *rest: object, check: bool) -> dict[str, torch.Tensor]:
        sizes.append(len(inputs))
        return {name: torch.zeros_like(parameter) for name, parameter in self._network.named_parameters()}

    monkeypatch.setattr(ClippedSums, "__call__", spy)
    images, labels = _records((8, 8, 1), 200)
    steps = PrivateSteps(noise_multiplier=1, sampling_rate=0.1, steps=400, norm=1, batch=20)
    train_privately(
        _training(build_body(BodySpec(name="linear"), (8, 8, 1), 5, 0), images, labels, steps, _mechanism())
    )
    # Binomial(200, 0.1): mean 20, variance 18; a fixed batch size would have none.
    assert np.mean(sizes) == pytest.approx(20, abs=1)
    assert np.var(sizes) == pytest.approx(18, rel=0.3)


def test_no_records_no_steps() -> None:
    images, labels = _records((8, 8, 1), 0)
    module = build_body(BodySpec(name="linear"), (8, 8, 1), 5, 0)
    before = [parameter.clone() for parameter in module.parameters()]
    train(module, images, labels, _loss, Minibatches(3, 4, 1.0), torch.Generator())
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_the_number_of_steps_does_not_depend_on_the_records() -> None:
    assert steps_of(5, 0.1) == 50
    assert steps_of(1, 1.0) == 1
    assert steps_of(1, 0.3) == 4
