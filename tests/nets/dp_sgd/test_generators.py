"""DP-SGD of diffusion models: every record's gradient against autograd, noise, sampling, Opacus's accountant."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus.accountants import PRVAccountant
from torch import Tensor, nn

from fedassay.nets.denoising import Drawn, build_scheduler, denoising_loss, to_model_range
from fedassay.nets.dp_sgd import loop as private_training
from fedassay.nets.dp_sgd import record_factors
from fedassay.nets.dp_sgd.clipped_sums import ClippedSums, Objective, RecordStreams, trained
from fedassay.nets.dp_sgd.generators import (
    PrivateTraining,
    denoising_objective,
    train_generator_privately,
)
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.record_gradients import RecordGradients
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.nets.generators import GENERATORS, Computation, one_hot
from fedassay.nets.presets import Preset
from fedassay.nets.trained import build_network
from fedassay.privacy.accounting import compose
from fedassay.privacy.events import SubsampledGaussianEvent
from fedassay.privacy.tape import Key, taped
from fedassay.support.optimisation import Optimizer
from fedassay.support.seeds import Seeds

TINY = replace(GENERATORS["tiny"], width=32, blocks=2, embedding=16)
# Two levels, the second with attention, whose output is channels-last.
UNET = replace(GENERATORS["small"], width=8, multipliers=(1, 2), attention_levels=(1,), prediction="sample")
MECHANISM = TrainingMechanism(Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "weights"))
STEPS = PrivateSteps(noise_multiplier=1.0, sampling_rate=0.5, steps=4, norm=1.0, batch=8.0)


def _records(n: int, seed: int = 0, side: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, side, side, 1), dtype=np.uint8), rng.integers(0, 3, n)


def _inputs(n: int, side: int = 8) -> tuple[Tensor, ...]:
    """Images, conditions, and the parts of `Drawn`."""
    source = torch.Generator().manual_seed(1)
    return (
        torch.rand(n, 1, side, side, generator=source) * 2 - 1,
        torch.tensor(one_hot(np.arange(n) % 3, 3)),
        torch.arange(n) % 3 != 0,
        torch.randint(1000, (n,), generator=source),
        torch.randn(n, 1, side, side, generator=source),
    )


def _fresh(preset: Preset, side: int = 8) -> nn.Module:
    network = build_network(preset, (side, side, 1), 3, seed=0)
    with torch.no_grad():
        for index, parameter in enumerate(network.parameters()):
            # Layers that start at zero would hide the gradients of those before them.
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return network


def _assert_gradients_are_those_of_autograd(network: nn.Module, side: int = 8) -> None:
    inputs, scheduler = _inputs(5, side), build_scheduler(UNET)
    gradients = RecordGradients(network)
    with gradients.recording(5):
        denoising_loss(network, scheduler, *inputs[:2], Drawn(*inputs[2:])).sum().backward()
    weights = torch.linspace(0.2, 1, 5)
    norms, sums = gradients.norms(), gradients.weighted_sums(weights)
    wanted = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for index in range(5):
        network.zero_grad()
        one = [value[index : index + 1] for value in inputs]
        denoising_loss(network, scheduler, *one[:2], Drawn(*one[2:])).sum().backward()
        square = 0.0
        for name, parameter in network.named_parameters():
            alone = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(gradients.each(name)[index], alone, rtol=2e-3, atol=2e-5)
            square += float(alone.double().square().sum())
            wanted[name] += weights[index] * alone
        assert norms[index].item() == pytest.approx(math.sqrt(square), rel=1e-4)
    for name, expected in wanted.items():
        torch.testing.assert_close(sums[name], expected, rtol=2e-3, atol=5e-5)
    # No layer is left out: everything but the unused "no condition" path has gradients somewhere.
    assert all(bool(gradients.each(name).any()) for name in wanted)


@pytest.mark.parametrize(
    ("preset", "side"), [(TINY, 8), (UNET, 8), (GENERATORS["small"], 16)], ids=["tiny", "unet", "small"]
)
def test_every_records_gradient_is_that_of_autograd(preset: Preset, side: int) -> None:
    _assert_gradients_are_those_of_autograd(_fresh(preset, side), side)


def test_gradients_need_no_contiguous_inputs() -> None:
    """Where a convolution behind attention is given channels-last, Opacus's are zero without a word."""
    network = _fresh(UNET)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module._forward_pre_hooks.clear()
    strides = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(lambda _, given: strides.append(given[0].is_contiguous()))
    _assert_gradients_are_those_of_autograd(network)
    assert not all(strides)


def test_a_run_whose_layers_lose_gradients_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second step at the latest: in the first one, the last layer is zero and hides the others."""
    images, labels = _records(6)
    training = PrivateTraining(replace(STEPS, sampling_rate=1.0, steps=2))
    train_generator_privately(images, labels, 3, UNET, training, MECHANISM, Computation(0))
    windows = record_factors._windows

    def lost(layer: nn.Conv2d, given: Tensor) -> Tensor:
        return windows(layer, given) * (layer.out_channels == 1)

    monkeypatch.setattr(record_factors, "_windows", lost)
    with pytest.raises(RuntimeError, match="do not add up"):
        train_generator_privately(images, labels, 3, UNET, training, MECHANISM, Computation(0))


def _sums(network: nn.Module, count: int, norm: float, together: int = 64) -> dict[str, Tensor]:
    """Of the first records, each with the time steps and noises of its own stream."""
    images, labels = _records(20)
    training = PrivateTraining(STEPS, draws=2, together=together)
    objective = denoising_objective(UNET, 3, training, "cpu")
    inputs = to_model_range(torch.from_numpy(images))[:count]
    clip = ClippedSums(network, objective, norm, known=True)
    return clip(inputs, torch.from_numpy(labels)[:count], RecordStreams(7, np.arange(count)))


@pytest.mark.parametrize("preset", [TINY, UNET], ids=["tiny", "unet"])
@pytest.mark.parametrize("norm", [1e-3, 1e3])
def test_a_record_adds_its_gradient_scaled_down_to_the_norm(preset: Preset, norm: float) -> None:
    network = _fresh(preset)
    images, labels = _records(20)
    objective = denoising_objective(UNET, 3, PrivateTraining(STEPS, draws=2), "cpu")
    inputs = to_model_range(torch.from_numpy(images))
    before = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for index in range(4):
        after = _sums(network, index + 1, norm)
        own = slice(index, index + 1)
        rows = objective.rows(inputs[own], torch.from_numpy(labels)[own], RecordStreams(7, np.array([index])))
        network.zero_grad()
        objective.total(network, rows).backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]
        alone = torch.cat([grad.flatten() for grad in grads])
        size = float(torch.linalg.vector_norm(alone))
        assert 1e-2 < size < 1e2
        added = torch.cat([(after[name] - before[name]).flatten() for name in after])
        away = torch.linalg.vector_norm(added - min(1, norm / size) * alone)
        assert float(away) < 2e-3 * min(norm, size)
        before = after


def test_clipped_sums_of_virtual_steps_add_up() -> None:
    """Parts of 7 records give the sums that one batch of 20 gives: every record keeps its times and noises."""
    network = _fresh(TINY)
    whole, parts = (_sums(network, 20, 0.3, together) for together in (20, 7))
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("preset", [TINY, UNET], ids=["tiny", "unet"])
def test_empty_batches_release_noise_alone(preset: Preset) -> None:
    """A client without records moves every weight all the same, by steps of Adam's size."""
    images, labels = _records(0)
    started = build_network(preset, (8, 8, 1), 3, seed=0)
    model = train_generator_privately(images, labels, 3, preset, PrivateTraining(STEPS), MECHANISM, Computation(0))
    moved = [np.abs(model.weights[name] - p.detach().numpy()).max() for name, p in started.named_parameters()]
    assert all(0 < each < 10 * STEPS.steps * preset.learning_rate for each in moved)


def test_noise_and_divisor_have_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = torch.optim.AdamW.step

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(torch.cat([p.grad.flatten() for group in self.param_groups for p in group["params"]]))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    images, labels = _records(0)
    steps = PrivateSteps(noise_multiplier=3.0, sampling_rate=0.5, steps=2, norm=2.0, batch=10.0)
    train_generator_privately(images, labels, 3, TINY, PrivateTraining(steps), MECHANISM, Computation(0))
    assert len(seen) == 2
    assert seen[0].std().item() == pytest.approx(0.6, rel=0.03)
    assert abs(torch.corrcoef(torch.stack(seen))[0, 1].item()) < 0.05


def test_draws_of_a_record_are_averaged_before_clipping() -> None:
    objective = denoising_objective(TINY, 3, PrivateTraining(STEPS, draws=3), "cpu")
    images, labels = _records(6)
    inputs = to_model_range(torch.from_numpy(images))
    chosen = np.array([1, 4])
    rows = objective.rows(inputs[chosen], torch.from_numpy(labels[chosen]), RecordStreams(0, chosen))
    assert [len(each) for each in rows] == [6] * 5
    assert torch.equal(rows[0][:3], inputs[[1, 1, 1]])
    assert len(rows[3].unique()) > 3  # time steps differ within a record
    ones = Objective(objective.rows, lambda _, *given: torch.ones(len(given[0])), draws=3)
    assert ones.total(nn.Identity(), rows).item() == 2


def test_what_a_record_draws_does_not_depend_on_the_others() -> None:
    objective = denoising_objective(TINY, 3, PrivateTraining(STEPS, draws=2), "cpu")
    images, labels = _records(6)
    inputs, known = to_model_range(torch.from_numpy(images)), torch.from_numpy(labels)

    def rows(chosen: list[int]) -> tuple[Tensor, ...]:
        return objective.rows(inputs[chosen], known[chosen], RecordStreams(5, np.array(chosen)))

    many, few = rows([0, 2, 3, 5]), rows([2, 5])
    for one, other in zip(many, few, strict=True):
        assert torch.equal(one[2:4], other[:2])
        assert torch.equal(one[6:], other[2:])


def test_records_are_sampled_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def spy(self: ClippedSums, inputs: Tensor, *_: Any, check: bool) -> dict[str, Tensor]:
        sizes.append(len(inputs))
        return {name: torch.zeros_like(p) for name, p in trained(self._network).items()}

    monkeypatch.setattr(ClippedSums, "__call__", spy)
    images, labels = _records(200)
    steps = replace(STEPS, sampling_rate=0.1, steps=300)
    train_generator_privately(
        images, labels, 3, replace(TINY, width=8), PrivateTraining(steps), MECHANISM, Computation(0)
    )
    # Binomial(200, 0.1): mean 20, variance 18; a fixed batch size would have none.
    assert np.mean(sizes) == pytest.approx(20, abs=1)
    assert np.var(sizes) == pytest.approx(18, rel=0.3)


@pytest.mark.long
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize(
    ("average", "optimizer"),
    [(0.0, None), (0.9, None), (0.9, Optimizer(name="sgd", momentum=0.9)), (0.0, Optimizer(name="sgd"))],
    ids=["last", "average", "momentum", "sgd"],
)
def test_an_interrupted_run_ends_with_the_same_bits(
    average: float, optimizer: Optimizer | None, watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = _records(20)
    training = PrivateTraining(replace(STEPS, steps=9), draws=2, average=average, optimizer=optimizer)
    monkeypatch.setattr(private_training, "KEPT_EVERY", 4)
    with taped() as first:
        whole = train_generator_privately(images, labels, 3, TINY, training, MECHANISM, Computation(0))

    def stop(done: int, total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    path = tmp_path / "training.safetensors"
    given = (images, labels, 3, TINY, training)
    with pytest.raises(KeyboardInterrupt), taped() if watched else nullcontext():
        train_generator_privately(*given, MECHANISM, Computation(0, progress=stop, checkpoint=path))
    assert path.exists()
    seen: list[int] = []
    with taped() as second:
        resumed = train_generator_privately(
            *given, MECHANISM, Computation(0, progress=lambda done, _: seen.append(done), checkpoint=path)
        )
    assert seen[0] == 5
    assert all(np.array_equal(resumed.weights[name], value) for name, value in whole.weights.items())
    (one,), (other,) = trainings(first).values(), trainings(second).values()
    assert one.facts.failures == other.facts.failures == ()
    assert all(np.array_equal(other.weights[name], value) for name, value in whole.weights.items())
    if watched:
        assert (second.lacks, other.facts.partial) == ([], "")
        assert other.facts.shown == one.facts.shown
        assert other.facts.p_values == one.facts.p_values
        assert other.facts.kept.keys() == one.facts.kept.keys()
    else:
        assert "first 4 steps were taken unobserved" in other.facts.partial
        assert len(second.lacks) == 1


def test_other_streams_do_not_go_on_with_a_checkpoint(tmp_path: Path) -> None:
    images, labels = _records(8)
    path = tmp_path / "training.safetensors"
    for seed in (0, 1):
        seen: list[int] = []
        mechanism = replace(MECHANISM, noise=Seeds(seed))
        train_generator_privately(
            images, labels, 3, TINY, PrivateTraining(STEPS), mechanism,
            Computation(0, progress=lambda done, _, seen=seen: seen.append(done), checkpoint=path),
        )  # fmt: skip
        assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize(("multiplier", "rate", "steps"), [(0.74, 0.1, 50), (1.2, 0.1, 400), (3.5, 0.05, 400)])
def test_our_epsilon_is_opacus_own(multiplier: float, rate: float, steps: int) -> None:
    accountant = PRVAccountant()
    accountant.history = [(multiplier, rate, steps)]
    theirs = accountant.get_epsilon(delta=1e-5)
    ours = compose([SubsampledGaussianEvent(multiplier, rate, steps)], 1e-5).epsilon
    assert math.isclose(ours, theirs, rel_tol=0.01), (ours, theirs)
