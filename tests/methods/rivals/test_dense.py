"""DENSE: distillation from an ensemble without data, and what of it is released."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.ledger import account, exact_fields
from fedassay.exchange.transcript import SERVER
from fedassay.methods.baselines.ensemble import EnsembleOfClients
from fedassay.methods.rivals.dense import Dense
from fedassay.nets.generator import build_generator
from fedassay.support.errors import DataError

MakeTask = Callable[..., MethodInput]
NETWORKS = {"bodies": "mlp"}


def _accuracy(outcome: Outcome, task: MethodInput) -> float:
    assert outcome.model is not None
    return float((outcome.model.predict(task.test) == task.test.labels).mean())


@pytest.mark.long
def test_the_student_is_better_than_any_client_alone(make_task: MakeTask) -> None:
    task = make_task(records=150)
    dense = Dense.model_validate({"networks": NETWORKS}).run(task)
    alone = [
        _accuracy(EnsembleOfClients.model_validate({"networks": NETWORKS}).run(replace(task, clients=(c,))), task)
        for c in task.clients
    ]
    assert _accuracy(dense, task) > max(alone) + 0.05
    # What it is distilled from is its upper bound, by and large.
    assert abs(dense.utility["accuracy_ensemble"] - _accuracy(dense, task)) < 0.1


@pytest.mark.long
def test_clients_send_what_an_ensemble_sends(make_task: MakeTask) -> None:
    task = make_task()
    dense = Dense.model_validate({"networks": NETWORKS, "rounds": 1}).run(task)
    ensemble = EnsembleOfClients.model_validate({"networks": NETWORKS, "combine": "logits"}).run(task)
    sent = [m.serialized for m in dense.transcript.messages if m.sender != SERVER]
    assert sent == [m.serialized for m in ensemble.transcript.messages]
    assert dense.utility["accuracy_ensemble"] == pytest.approx(_accuracy(ensemble, task))


@pytest.mark.long
def test_distillation_teaches(make_task: MakeTask) -> None:
    task = make_task(records=600)
    short = Dense.model_validate({"networks": NETWORKS, "rounds": 1, "student_steps": 1}).run(task)
    assert _accuracy(short, task) < 0.5
    assert _accuracy(Dense.model_validate({"networks": NETWORKS}).run(task), task) > 0.8


@pytest.mark.parametrize("shape", [(8, 8, 1), (25, 23, 1), (32, 32, 3)])
def test_the_generator_makes_images(shape: tuple[int, int, int]) -> None:
    import torch

    generator = build_generator(shape, latent=5, maps=4, seed=0)
    images = generator(torch.randn(3, 5))
    assert images.shape == (3, shape[2], shape[0], shape[1])
    assert 0 <= images.min().item() <= images.max().item() <= 255
    again = build_generator(shape, latent=5, maps=4, seed=0)
    assert torch.equal(generator.dense.weight, again.dense.weight)


@pytest.mark.long
def test_a_private_run_releases_the_classifiers_alone(make_task: MakeTask) -> None:
    task = make_task(epsilon=5.0)
    outcome = Dense.model_validate({"networks": {**NETWORKS, "local_epochs": 2}, "rounds": 1}).run(task)
    assert 5 * 0.99 <= account(outcome.transcript, "add_remove", 1e-5).epsilon <= 5
    assert exact_fields(outcome.transcript, "add_remove") == ()
    plain = Dense.model_validate({"networks": NETWORKS, "rounds": 1}).run(make_task(records=60))
    assert account(plain.transcript, "add_remove", 1e-5).epsilon == math.inf


def test_bad_input(make_task: MakeTask) -> None:
    task = make_task(records=60)
    nobody = tuple(client.take(np.zeros(0, np.int64)) for client in task.clients)
    with pytest.raises(DataError, match="dense: no client has any record"):
        Dense().run(replace(task, clients=nobody))
    with pytest.raises(DataError, match="dense: training at client/0 has diverged"):
        Dense.model_validate({"networks": {**NETWORKS, "learning_rate": 1e30}}).run(task)
