"""Losses of single records: those of a naive computation, and lower for what a generator has learnt by heart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedassay.contracts.method import MethodInput
from fedassay.exchange.models import ScoringGenerator
from fedassay.methods.feddiff.server import DiffusionGenerator, record_losses
from fedassay.nets.denoising import build_scheduler
from fedassay.nets.generators import GENERATORS, Computation, one_hot, train_generator
from fedassay.nets.sampling import Sampling
from fedassay.nets.trained import TrainedDenoiser, load_network
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]


@pytest.fixture(scope="module")
def learnt(make_task: MakeTask) -> tuple[TrainedDenoiser, MethodInput]:
    task = make_task(clients=1, records=24)
    client = task.clients[0]
    model = train_generator(client.images, client.labels, 10, GENERATORS["tiny"], 120, Computation(0))
    return model, task


@pytest.mark.long
def test_the_error_is_that_of_the_noise(learnt: tuple[TrainedDenoiser, MethodInput]) -> None:
    model, task = learnt
    images, conditions = task.test.images[:5], one_hot(task.test.labels[:5], 10)
    found = record_losses(model, images, conditions, (0.2, 0.6), Seeds(3))
    network, scheduler = load_network(model), build_scheduler(model.preset)
    for column, level in enumerate((0.2, 0.6)):
        step = int(level * model.preset.timesteps)
        generator = torch.Generator().manual_seed(Seeds(3).integer("level", column))
        noise = torch.randn((5, 1, 8, 8), generator=generator)
        clean = torch.from_numpy(images).permute(0, 3, 1, 2) / 127.5 - 1
        kept = scheduler.alphas_cumprod[step]
        noisy = kept.sqrt() * clean + (1 - kept).sqrt() * noise
        with torch.no_grad():
            raw = network(
                noisy, torch.full((5,), step), torch.from_numpy(conditions), torch.ones(5, dtype=torch.bool)
            )
        guess = {
            "epsilon": raw,
            "v_prediction": (1 - kept).sqrt() * noisy + kept.sqrt() * raw,
            "sample": (noisy - kept.sqrt() * raw) / (1 - kept).sqrt(),
        }[model.preset.prediction]
        naive = ((guess - noise) ** 2).flatten(1).mean(dim=1).numpy()
        np.testing.assert_allclose(found[:, column], naive, rtol=1e-3)


def test_what_was_trained_on_is_explained_better(learnt: tuple[TrainedDenoiser, MethodInput]) -> None:
    model, task = learnt
    client = task.clients[0]
    own = record_losses(model, client.images, one_hot(client.labels, 10), (0.1, 0.25, 0.5), Seeds(0))
    other = record_losses(model, task.test.images, one_hot(task.test.labels, 10), (0.1, 0.25, 0.5), Seeds(0))
    assert (own.mean(axis=0) < 0.8 * other.mean(axis=0)).all()


def test_batches_change_nothing_and_seeds_do(learnt: tuple[TrainedDenoiser, MethodInput]) -> None:
    model, task = learnt
    images, conditions = task.test.images[:7], one_hot(task.test.labels[:7], 10)
    first = record_losses(model, images, conditions, (0.3,), Seeds(0))
    np.testing.assert_allclose(
        first, record_losses(model, images, conditions, (0.3,), Seeds(0), batch=3), rtol=1e-4
    )
    assert np.abs(first - record_losses(model, images, conditions, (0.3,), Seeds(1))).max() > 1e-4


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5])
def test_levels_lie_inside_the_schedule(learnt: tuple[TrainedDenoiser, MethodInput], level: float) -> None:
    model, task = learnt
    with pytest.raises(ValueError, match="allowed: above 0, below 1"):
        record_losses(model, task.test.images[:1], one_hot(task.test.labels[:1], 10), (level,), Seeds(0))


def test_feddiffs_generators_offer_what_membership_needs(learnt: tuple[TrainedDenoiser, MethodInput]) -> None:
    model, task = learnt
    generator = DiffusionGenerator(model, np.ones(10, np.int64), Sampling(), "cpu")
    assert isinstance(generator, ScoringGenerator)
    assert generator.losses(task.test.take(np.arange(4)), (0.2, 0.5), Seeds(0)).shape == (4, 2)
