"""DP-SGD of diffusion models: every record's gradient against autograd, noise, sampling, Opacus's accountant."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.accountants import PRVAccountant
from torch import Tensor, nn

from fedassay.nets import private_generators
from fedassay.nets.denoising import build_scheduler, denoising_loss
from fedassay.nets.generators import GENERATORS, one_hot
from fedassay.nets.local_training import PrivateSteps
from fedassay.nets.presets import Preset
from fedassay.nets.private_generators import PrivateTraining, train_generator_privately
from fedassay.nets.trained import build_network
from fedassay.privacy.accounting import SubsampledGaussianEvent, compose

TINY = replace(GENERATORS["tiny"], width=32, blocks=2, embedding=16)
# Two levels, the second with attention, whose output is channels-last: the case that Opacus gets wrong by itself.
UNET = replace(GENERATORS["small"], width=8, multipliers=(1, 2), attention_levels=(1,), prediction="sample")
STEPS = PrivateSteps(noise_multiplier=1.0, sampling_rate=0.5, steps=4, norm=1.0, batch=8.0)


def _records(n: int, seed: int = 0, side: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, side, side, 1), dtype=np.uint8), rng.integers(0, 3, n)


def _inputs(n: int) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(1)
    return {
        "images": torch.rand(n, 1, 8, 8, generator=source) * 2 - 1,
        "conditions": torch.tensor(one_hot(np.arange(n) % 3, 3)),
        "keep": torch.arange(n) % 3 != 0,
        "timesteps": torch.randint(1000, (n,), generator=source),
        "noise": torch.randn(n, 1, 8, 8, generator=source),
    }


def _fresh(preset: Preset) -> nn.Module:
    network = build_network(preset, (8, 8, 1), 3, seed=0)
    with torch.no_grad():
        for index, parameter in enumerate(network.parameters()):
            # Layers that start at zero would hide the gradients of those before them.
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    return network


@pytest.mark.parametrize("preset", [TINY, UNET], ids=["tiny", "unet"])
def test_every_records_gradient_is_that_of_autograd(preset: Preset) -> None:
    network, inputs, scheduler = _fresh(preset), _inputs(5), build_scheduler(preset)
    module: Any = GradSampleModule(network, loss_reduction="sum")
    denoising_loss(module, scheduler, **inputs).sum().backward()
    found = {name: p.grad_sample.clone() for name, p in network.named_parameters()}
    alone = _fresh(preset)
    for index in range(5):
        alone.zero_grad()
        one = {name: value[index : index + 1] for name, value in inputs.items()}
        denoising_loss(alone, scheduler, **one).sum().backward()
        for name, parameter in alone.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(found[name][index], expected, rtol=2e-3, atol=2e-5)
    # No layer is left out: everything but the unused "no condition" path has gradients somewhere.
    assert all(bool(each.any()) for each in found.values())


def test_without_the_contiguous_inputs_a_run_is_refused() -> None:
    """What Opacus does silently: per-record gradients of a convolution behind attention are zero."""
    images, labels = _records(6)
    training = PrivateTraining(replace(STEPS, sampling_rate=1.0, steps=1))
    train_generator_privately(images, labels, 3, UNET, training, seed=0)
    original = private_generators.build_network

    def broken(*args: Any, **kwargs: Any) -> nn.Module:
        network = _perturbed(original(*args, **kwargs))
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                module._forward_pre_hooks.clear()
        return network

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_generators, "build_network", broken)
        with pytest.raises(RuntimeError, match="do not add up"):
            train_generator_privately(images, labels, 3, UNET, training, seed=0)


def _perturbed(network: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05)
    return network


def test_clipped_sums_of_virtual_steps_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same noise, same time steps: parts of 7 records give the gradient that one batch of 20 gives."""
    images, labels = _records(20)
    inputs = _inputs(20)

    def same_for_each_record(module: Any, scheduler: Any, records: Any, chosen: Tensor, *_: Any) -> None:
        one = {name: value[chosen] for name, value in inputs.items()}
        denoising_loss(module, scheduler, **one).sum().backward()

    monkeypatch.setattr(private_generators, "_gradients", same_for_each_record)
    training = PrivateTraining(replace(STEPS, sampling_rate=1.0, steps=1, norm=0.3))
    whole, parts = (
        train_generator_privately(images, labels, 3, TINY, replace(training, together=together), seed=0).weights
        for together in (20, 7)
    )
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("preset", [TINY, UNET], ids=["tiny", "unet"])
def test_empty_batches_release_noise_alone(preset: Preset) -> None:
    """A client without records moves every weight all the same, by steps of Adam's size."""
    images, labels = _records(0)
    started = build_network(preset, (8, 8, 1), 3, seed=0)
    model = train_generator_privately(images, labels, 3, preset, PrivateTraining(STEPS), seed=0)
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
    train_generator_privately(images, labels, 3, TINY, PrivateTraining(steps), seed=0)
    assert len(seen) == 2
    assert seen[0].std().item() == pytest.approx(0.6, rel=0.03)
    assert abs(torch.corrcoef(torch.stack(seen))[0, 1].item()) < 0.05


def test_draws_of_a_record_are_averaged_before_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    original = private_generators._check_sums

    def spy(module: Any) -> None:
        shapes.extend(len(p.grad_sample) for p in module.parameters())
        original(module)

    monkeypatch.setattr(private_generators, "_check_sums", spy)
    images, labels = _records(6)
    training = PrivateTraining(replace(STEPS, sampling_rate=1.0, steps=1), draws=3)
    train_generator_privately(images, labels, 3, TINY, training, seed=0)
    assert set(shapes) == {6}


def test_records_are_sampled_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def spy(module: Any, scheduler: Any, records: Any, chosen: Tensor, *rest: Any) -> None:
        sizes.append(len(chosen))
        for parameter in module.parameters():
            parameter.grad_sample = torch.zeros((len(chosen), *parameter.shape))
            parameter.grad = torch.zeros_like(parameter)

    monkeypatch.setattr(private_generators, "_gradients", spy)
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
    whole = train_generator_privately(images, labels, 3, TINY, training, seed=0)

    def stop(done: int, total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    path = tmp_path / "training.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_generator_privately(images, labels, 3, TINY, training, seed=0, progress=stop, checkpoint=path)
    assert path.exists()
    seen: list[int] = []
    resumed = train_generator_privately(
        images, labels, 3, TINY, training, seed=0, progress=lambda done, _: seen.append(done), checkpoint=path
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
