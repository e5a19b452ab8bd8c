"""Class-conditional generators: DDPM against the paper's formulas, guidance, and training from few images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedassay.nets.denoising import to_model_range, to_uint8
from fedassay.nets.generators import GENERATORS, Computation, one_hot, train_generator
from fedassay.nets.presets import BetaSchedule
from fedassay.nets.sampling import Sampling, sample
from fedassay.nets.trained import load_network

PRESET = replace(GENERATORS["tiny"], width=24, blocks=1, embedding=8, timesteps=60)


def _records(n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, 8, 8, 1), dtype=np.uint8), np.arange(n) % 3


@pytest.mark.parametrize("prediction", ["sample", "epsilon"])
def test_ddpm_is_ancestral_sampling(prediction: str) -> None:
    """Ho et al. 2020, equations 6 and 7, with the image clipped, noise of the posterior's variance."""
    schedule: BetaSchedule = "linear"
    preset = replace(PRESET, prediction=prediction, beta_schedule=schedule)  # type: ignore[arg-type]
    images, labels = _records()
    model = train_generator(images, labels, 3, preset, 30, Computation(0))
    conditions = one_hot(np.array([0, 1, 2, 0]), 3)
    found = sample(model, conditions, Sampling(steps=60, guidance=1.0, sampler="ddpm"), seed=5)
    betas = torch.linspace(1e-4, 0.02, 60)
    alphas = torch.cumprod(1 - betas, dim=0)
    network, source = load_network(model), torch.Generator().manual_seed(5)
    x = torch.randn((4, 1, 8, 8), generator=source)
    keep = torch.ones(4, dtype=torch.bool)
    with torch.no_grad():
        for t in reversed(range(60)):
            before = alphas[t - 1] if t else torch.tensor(1.0)
            predicted = network(x, torch.full((4,), t), torch.tensor(conditions), keep)
            clean = predicted
            if prediction == "epsilon":
                clean = (x - (1 - alphas[t]).sqrt() * predicted) / alphas[t].sqrt()
            clean = clean.clamp(-1, 1)
            mean = (before.sqrt() * betas[t] * clean + (1 - betas[t]).sqrt() * (1 - before) * x) / (1 - alphas[t])
            variance = (1 - before) / (1 - alphas[t]) * betas[t]
            x = mean + (variance.sqrt() * torch.randn(x.shape, generator=source) if t else 0)
    assert np.abs(found.astype(int) - to_uint8(x).astype(int)).max() <= 1
    assert np.array_equal(
        found, sample(model, conditions, Sampling(steps=60, guidance=1.0, sampler="ddpm"), seed=5)
    )
    assert not np.array_equal(found, sample(model, conditions, Sampling(steps=60, guidance=1.0), seed=5))


@pytest.mark.long
def test_the_class_decides_what_is_drawn() -> None:
    """Two classes, black and white."""
    images = np.repeat(np.array([0, 255], np.uint8), 8)[:, None, None, None] * np.ones((1, 8, 8, 1), np.uint8)
    labels = np.repeat([0, 1], 8)
    model = train_generator(images, labels, 2, PRESET, 600, Computation(0))
    drawn = sample(model, one_hot(np.array([0, 1, 0, 1]), 2), Sampling(steps=10, guidance=1.5), seed=1)
    means = drawn.mean(axis=(1, 2, 3))
    assert means[[0, 2]].max() < 64
    assert means[[1, 3]].min() > 192


def test_no_statistic_of_the_records_reaches_the_condition() -> None:
    """Nothing but the weights is fitted: the condition enters as it is."""
    images, labels = _records()
    model = train_generator(images, labels, 3, PRESET, 1, Computation(0))
    np.testing.assert_array_equal(model.whitening(one_hot(labels, 3)), one_hot(labels, 3))
    assert model.warm_start is None


def test_no_records_give_the_network_as_it_starts() -> None:
    images, labels = _records()
    one, two = (train_generator(images[:0], labels[:0], 3, PRESET, 5, Computation(seed)) for seed in (0, 1))
    again = train_generator(images[:0], labels[:0], 3, PRESET, 9, Computation(0))
    assert all(np.array_equal(again.weights[name], value) for name, value in one.weights.items())
    assert not all(np.array_equal(two.weights[name], value) for name, value in one.weights.items())


def test_one_image_is_enough() -> None:
    images, labels = _records(1)
    model = train_generator(images, labels, 3, PRESET, 200, Computation(0))
    drawn = sample(model, one_hot(labels, 3), Sampling(steps=10, guidance=1.0), seed=0)
    error = to_model_range(torch.tensor(drawn)) - to_model_range(torch.tensor(images))
    assert error.square().mean() < 0.1
