"""DP-SGD of diffusion models: every record's gradient against autograd, noise, sampling, Opacus's accountant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus.accountants import PRVAccountant
from torch import Tensor, nn

from fedassay.nets import private_generators, record_factors
from fedassay.nets.denoising import build_scheduler, denoising_loss
from fedassay.nets.generators import GENERATORS, one_hot
from fedassay.nets.presets import Preset
from fedassay.nets.private_generators import PrivateTraining, train_generator_privately
from fedassay.nets.private_steps import PrivateSteps
from fedassay.nets.record_gradients import RecordGradients
from fedassay.nets.trained import build_network
from fedassay.privacy.accounting import compose
from fedassay.privacy.events import SubsampledGaussianEvent

TINY = replace(GENERATORS["tiny"], width=32, blocks=2, embedding=16)
# Two levels, the second with attention, whose output is channels-last.
UNET = replace(GENERATORS["small"], width=8, multipliers=(1, 2), attention_levels=(1,), prediction="sample")
DOOR = TrainingDoor(Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "weights"))
STEPS = PrivateSteps(noise_multiplier=1.0, sampling_rate=0.5, steps=4, norm=1.0, batch=8.0)


def _records(n: int, seed: int = 0, side: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, side, side, 1), dtype=np.uint8), rng.integers(0, 3, n)


def _inputs(n: int, side: int = 8) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(1)
    return {
        "images": torch.rand(n, 1, side, side, generator=source) * 2 - 1,
        "conditions": torch.tensor(one_hot(np.arange(n) % 3, 3)),
        "keep": torch.arange(n) % 3 != 0,
        "timesteps": torch.randint(1000, (n,), generator=source),
        "noise": torch.randn(n, 1, side, side, generator=source),
    }


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
        denoising_loss(network, scheduler, **inputs).sum().backward()
    weights = torch.linspace(0.2, 1, 5)
    norms, sums = gradients.norms(), gradients.weighted_sums(weights)
    wanted = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for index in range(5):
        network.zero_grad()
        one = {name: value[index : index + 1] for name, value in inputs.items()}
        denoising_loss(network, scheduler, **one).sum().backward()
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
    train_generator_privately(images, labels, 3, UNET, training, seed=0, door=DOOR)
    windows = record_factors._windows

    def lost(layer: nn.Conv2d, given: Tensor) -> Tensor:
        return windows(layer, given) * (layer.out_channels == 1)

    monkeypatch.setattr(record_factors, "_windows", lost)
    with pytest.raises(RuntimeError, match="do not add up"):
        train_generator_privately(images, labels, 3, UNET, training, seed=0, door=DOOR)


@pytest.mark.parametrize("preset", [TINY, UNET], ids=["tiny", "unet"])
@pytest.mark.parametrize("norm", [1e-3, 1e3])
def test_a_record_adds_its_gradient_scaled_down_to_the_norm(preset: Preset, norm: float) -> None:
    network, inputs, scheduler = _fresh(preset), _inputs(4), build_scheduler(preset)
    gradients = RecordGradients(network)
    found = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    expected = torch.zeros(sum(p.numel() for p in network.parameters()))
    for index in range(4):
        one = {name: value[index : index + 1] for name, value in inputs.items()}
        with gradients.recording(1):
            denoising_loss(network, scheduler, **one).sum().backward()
        before = torch.cat([each.flatten() for each in found.values()])
        private_generators._add_clipped(found, gradients, norm)
        added = torch.cat([each.flatten() for each in found.values()]) - before
        alone = torch.cat([gradients.each(name).flatten() for name in found])
        size = float(torch.linalg.vector_norm(alone))
        assert 1e-2 < size < 1e2
        assert float(torch.linalg.vector_norm(added)) == pytest.approx(min(norm, size), rel=1e-3)
        expected += min(1, norm / size) * alone
    together = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    with gradients.recording(4):
        denoising_loss(network, scheduler, **inputs).sum().backward()
    private_generators._add_clipped(together, gradients, norm)
    away = torch.cat([each.flatten() for each in together.values()]) - expected
    assert float(torch.linalg.vector_norm(away)) < 1e-3 * float(torch.linalg.vector_norm(expected))


def test_clipped_sums_of_virtual_steps_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same noise, same time steps: parts of 7 records give the gradient that one batch of 20 gives."""
    images, labels = _records(20)
    inputs = _inputs(20)

    def same_for_each_record(
        network: Any, scheduler: Any, records: Any, chosen: Tensor, *_: Any
    ) -> Callable[[], Tensor]:
        one = {name: value[chosen] for name, value in inputs.items()}
        return lambda: denoising_loss(network, scheduler, **one).sum()

    monkeypatch.setattr(private_generators, "_drawn_loss", same_for_each_record)
    training = PrivateTraining(replace(STEPS, sampling_rate=1.0, steps=1, norm=0.3))
    whole, parts = (
        train_generator_privately(images, labels, 3, TINY, replace(training, together=together), seed=0, door=DOOR).weights
        for together in (20, 7)
    )
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("preset", [TINY, UNET], ids=["tiny", "unet"])
def test_empty_batches_release_noise_alone(preset: Preset) -> None:
    """A client without records moves every weight all the same, by steps of Adam's size."""
    images, labels = _records(0)
    started = build_network(preset, (8, 8, 1), 3, seed=0)
    model = train_generator_privately(images, labels, 3, preset, PrivateTraining(STEPS), seed=0, door=DOOR)
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
    train_generator_privately(images, labels, 3, TINY, PrivateTraining(steps), seed=0, door=DOOR)
    assert len(seen) == 2
    assert seen[0].std().item() == pytest.approx(0.6, rel=0.03)
    assert abs(torch.corrcoef(torch.stack(seen))[0, 1].item()) < 0.05


def test_draws_of_a_record_are_averaged_before_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    original = RecordGradients.check

    def spy(self: RecordGradients, loss: Callable[[], Tensor]) -> None:
        shapes.append(len(self.norms()))
        original(self, loss)

    monkeypatch.setattr(RecordGradients, "check", spy)
    images, labels = _records(6)
    training = PrivateTraining(replace(STEPS, sampling_rate=1.0, steps=1), draws=3)
    train_generator_privately(images, labels, 3, TINY, training, seed=0, door=DOOR)
    assert shapes == [6]
    monkeypatch.setattr(private_generators, "denoising_loss", lambda *_, keep, **__: torch.ones(len(keep)))
    records = private_generators._Records(torch.zeros(6, 1, 8, 8), torch.zeros(6, 3))
    chosen, generator = torch.tensor([1, 4]), torch.Generator().manual_seed(0)
    given = (nn.Identity(), None, records, chosen, 3, TINY, generator, "cpu")
    assert private_generators._drawn_loss(*given)().item() == 2


def test_records_are_sampled_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def spy(network: Any, scheduler: Any, records: Any, chosen: Tensor, *rest: Any) -> Callable[[], Tensor]:
        sizes.append(len(chosen))
        return lambda: torch.zeros((), requires_grad=True)

    monkeypatch.setattr(private_generators, "_drawn_loss", spy)
    images, labels = _records(200)
    steps = replace(STEPS, sampling_rate=0.1, steps=300)
    train_generator_privately(
        images, labels, 3, replace(TINY, width=8), PrivateTraining(steps, together=1000), seed=0
    )
    # Binomial(200, 0.1): mean 20, variance 18; a fixed batch size would have none.
    assert np.mean(sizes) == pytest.approx(20, abs=1)
    assert np.var(sizes) == pytest.approx(18, rel=0.3)


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_an_interrupted_run_ends_with_the_same_bits(
    average: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = _records(20)
    training = PrivateTraining(replace(STEPS, steps=9), draws=2, average=average)
    monkeypatch.setattr(private_generators, "_KEPT_EVERY", 4)
    whole = train_generator_privately(images, labels, 3, TINY, training, seed=0, door=DOOR)

    def stop(done: int, total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    path = tmp_path / "training.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_generator_privately(images, labels, 3, TINY, training, seed=0, door=DOOR, progress=stop, checkpoint=path)
    assert path.exists()
    seen: list[int] = []
    resumed = train_generator_privately(
        images, labels, 3, TINY, training, seed=0, door=DOOR, progress=lambda done, _: seen.append(done), checkpoint=path
    )
    assert seen[0] == 5
    assert all(np.array_equal(resumed.weights[name], value) for name, value in whole.weights.items())


@pytest.mark.parametrize(("multiplier", "rate", "steps"), [(0.74, 0.1, 50), (1.2, 0.1, 400), (3.5, 0.05, 400)])
def test_our_epsilon_is_opacus_own(multiplier: float, rate: float, steps: int) -> None:
    accountant = PRVAccountant()
    accountant.history = [(multiplier, rate, steps)]
    theirs = accountant.get_epsilon(delta=1e-5)
    ours = compose([SubsampledGaussianEvent(multiplier, rate, steps)], 1e-5).epsilon
    assert math.isclose(ours, theirs, rel_tol=0.01), (ours, theirs)
