"""Gradients as they are sent: of whom, of what, and clipped and noised in a private run."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedassay.contracts.method import MethodInput
from fedassay.exchange.transcript import SERVER
from fedassay.methods.fedsgd.gradients import clipped_sum, summed_gradient
from fedassay.methods.fedsgd.method import FedSGD
from fedassay.methods.shared.local_networks import LocalNetwork

MakeTask = Callable[..., MethodInput]


def test_a_heads_gradient_is_its_closed_form(make_task: MakeTask) -> None:
    """From weights of 0 every probability is 1 / C."""
    task = make_task()
    outcome = FedSGD(batch=1000).run(task)
    for client, message in zip(task.clients, outcome.transcript.from_clients(), strict=True):
        errors = 0.1 - np.eye(10)[client.labels]
        np.testing.assert_allclose(message.fields["head.weight"].values, errors.T @ client.features, atol=1e-3)
        np.testing.assert_allclose(message.fields["head.bias"].values, errors.sum(axis=0), atol=1e-4)
        assert message.fields["records"].values.tolist() == [len(client)]
        assert {item.kind for item in message.fields.values()} == {"gradient", "other"}


def test_a_batch_is_drawn_anew_for_every_client_and_seed(make_task: MakeTask) -> None:
    drawn = []
    for seed in (0, 1):
        task = make_task(clients=2)
        method = FedSGD(batch=5)
        task = task if seed == 0 else make_task(clients=2, seed=1)
        drawn += [tuple(method._batch(client, task)) for client in task.clients]
    assert len(set(drawn)) == 4
    assert all(len(set(rows)) == 5 for rows in drawn)


def _network(task: MethodInput) -> LocalNetwork:
    return FedSGD(body={"name": "mlp", "hidden": 8})._network(task.clients[0], task)


def test_clipped_sums_are_those_of_single_records(make_task: MakeTask) -> None:
    network = _network(make_task(records=30))
    single = np.array([summed_gradient(network, np.array([row])) for row in range(len(network.labels))])
    norms = np.linalg.norm(single, axis=1)
    clip = float(np.median(norms))
    wanted = (single * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
    np.testing.assert_allclose(clipped_sum(network, clip), wanted, atol=1e-5)
    assert all(parameter.grad is None for parameter in network.module.parameters())


@pytest.mark.parametrize(("adjacency", "factor"), [("add_remove", 1.0), ("replace_one", 2.0)])
def test_a_private_gradient_declares_one_joint_release(adjacency: str, factor: float, make_task: MakeTask) -> None:
    task = make_task(epsilon=8.0, adjacency=adjacency)
    outcome = FedSGD(body={"name": "mlp", "hidden": 8}, clip=0.5).run(task)
    for message in outcome.transcript.from_clients():
        assert "records" not in message.fields
        releases = {item.release for item in message.fields.values()}
        assert len(releases) == 1
        (release,) = releases
        assert (release.mechanism, release.group) == ("gaussian", "gradient")
        assert release.sensitivity == (0.5 * factor,)
    started = [message for message in outcome.transcript.messages if message.sender == SERVER]
    assert all(item.release.mechanism == "public" for message in started for item in message.fields.values())


def test_noise_is_as_large_as_declared(make_task: MakeTask) -> None:
    task = make_task(epsilon=1.0)
    outcome = FedSGD(body={"name": "mlp", "hidden": 64}, clip=1e-6).run(task)
    (message, *_) = outcome.transcript.from_clients()
    values = np.concatenate([item.values.ravel() for item in message.fields.values()]).astype(np.float64)
    scale = message.fields["head.bias"].release.noise_scale
    assert scale is not None
    assert values.std() == pytest.approx(scale[0], rel=5 / math.sqrt(2 * len(values)))


def test_a_client_without_records_sends_zeros_or_noise(make_task: MakeTask) -> None:
    task = make_task()
    empty = task.clients[0].take(np.zeros(0, np.int64))
    network = FedSGD(body="mlp")._network(empty, task)
    assert not summed_gradient(network, np.zeros(0, np.int64)).any()
    assert not clipped_sum(network, 1.0).any()
    assert torch.is_grad_enabled()
