"""Co-Boosting: the ensemble's weights and what is released; the batch-norm term of data-free distillation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.ledger import account, exact_fields
from fedassay.exchange.transcript import SERVER
from fedassay.methods.rivals.co_boosting import CoBoosting, Weighted
from fedassay.methods.rivals.dense import Dense
from fedassay.nets.batch_statistics import KeptStatistics

MakeTask = Callable[..., MethodInput]
NETWORKS = {"bodies": "mlp"}


def _made(**more: object) -> CoBoosting:
    return CoBoosting.model_validate({"networks": NETWORKS, **more})


def test_the_weight_of_who_is_wrong_falls() -> None:
    ensemble = Weighted([nn.Identity(), nn.Identity()])
    labels = torch.arange(8) % 10
    right = torch.nn.functional.one_hot(labels, 10).float()
    scores = torch.stack([right, -2 * right])
    for number in range(1, 4):
        ensemble.weigh(scores, labels, 0.1)
        torch.testing.assert_close(ensemble.weights, torch.tensor([0.5 + 0.1 * number, 0.5 - 0.1 * number]))
    for _ in range(9):
        ensemble.weigh(scores, labels, 0.1)
    torch.testing.assert_close(ensemble.weights, torch.tensor([1.0, 0.0]))


def test_weights_start_alike_and_move_after_the_first_round(make_task: MakeTask) -> None:
    task = make_task(records=30)
    still, moved = (_made(rounds=rounds, student_steps=1).run(task).utility for rounds in (1, 2))
    assert still["smallest_weight"] == pytest.approx(1 / 3) == still["largest_weight"]
    assert abs(moved["largest_weight"] - 1 / 3) == pytest.approx(0.01 * 0.99, rel=1e-4)


def test_harder_images_stay_images() -> None:
    ensemble = Weighted([nn.Sequential(nn.Flatten(), nn.Linear(4, 10))])
    images = torch.tensor([0.0, 100.0, 200.0, 255.0]).view(1, 1, 2, 2).repeat(50, 1, 1, 1)
    moved = _made(shift=0.1).harder(images, ensemble, torch.Generator().manual_seed(0))
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 255
    apart = (moved - images).abs()
    torch.testing.assert_close(apart[:, :, 0, 1], torch.full((50, 1), 25.5))
    assert float(apart.max()) == pytest.approx(25.5)


@pytest.mark.long
def test_the_student_learns(make_task: MakeTask) -> None:
    task = make_task(records=300)
    model = _made(rounds=20).run(task).model
    assert model is not None
    assert (model.predict(task.test) == task.test.labels).mean() > 0.7


def test_clients_send_what_those_of_dense_send(make_task: MakeTask) -> None:
    task = make_task(records=60)
    dense = Dense.model_validate({"networks": NETWORKS, "rounds": 1}).run(task).transcript.messages
    sent = [m.serialized for m in _made(rounds=1).run(task).transcript.messages if m.sender != SERVER]
    assert sent == [m.serialized for m in dense if m.sender != SERVER]


def test_a_private_run_releases_the_classifiers_alone(make_task: MakeTask) -> None:
    networks = {**NETWORKS, "local_epochs": 2}
    outcome = _made(networks=networks, rounds=2).run(make_task(epsilon=5.0))
    assert 5 * 0.99 <= account(outcome.transcript, "add_remove", 1e-5).epsilon <= 5
    assert exact_fields(outcome.transcript, "add_remove") == ()


def test_the_distance_is_that_of_the_batch_from_what_was_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU())
    network.train()
    for _ in range(200):
        network(torch.rand(64, 1, 4, 4, generator=generator))
    network.eval()
    known = KeptStatistics([network])
    assert known.layers == 1
    near = torch.rand(512, 1, 4, 4, generator=generator)
    network(near)
    close = float(known.distance().detach())
    images = (3 + near).requires_grad_(True)
    network(images)
    away = known.distance()
    inner = network[0](images)
    mean, variance = inner.mean(dim=(0, 2, 3)), inner.var(dim=(0, 2, 3), correction=0)
    expected = (mean - network[1].running_mean).norm() + (variance - network[1].running_var).norm()
    torch.testing.assert_close(away, expected)
    assert float(away.detach()) > 20 * close
    away.backward()
    assert images.grad is not None
    assert bool(images.grad.abs().sum() > 0)
    known.close()
    network(near)
    assert known._away == {}


@pytest.mark.long
@pytest.mark.parametrize("method", [Dense, CoBoosting])
def test_students_follow_the_statistics_of_networks_that_keep_some(
    make_task: MakeTask, method: type[Dense | CoBoosting]
) -> None:
    task = make_task(records=12)
    twice = tuple(
        Records(c.name, c.images.repeat(2, axis=1).repeat(2, axis=2), c.labels, c.extract)
        for c in (*task.clients, task.test.take(np.arange(4)))
    )
    task = replace(task, clients=twice[:-1], test=twice[-1])
    students = []
    for weight in (0.0, 1.0):
        given = {"bodies": "resnet16", "local_epochs": 1, "batch": 4}
        settings = {"rounds": 2, "generator_steps": 2, "student_steps": 1, "batch": 4, "statistics": weight}
        outcome = method.model_validate({"networks": given, **settings}).run(task)
        up, down = outcome.transcript.messages[0], outcome.transcript.messages[-1]
        assert up.fields["parameters"].size == down.fields["parameters"].size
        students.append(down.fields["parameters"].values)
    assert not np.array_equal(*students)


@pytest.mark.parametrize("method", [Dense, CoBoosting])
def test_networks_that_keep_none_leave_the_term_out(make_task: MakeTask, method: type[Dense | CoBoosting]) -> None:
    task = make_task(records=30)
    runs = [
        method.model_validate({"networks": NETWORKS, "rounds": 1, "statistics": weight}).run(task)
        for weight in (0.0, 1.0)
    ]
    first, second = ([m.serialized for m in run.transcript.messages] for run in runs)
    assert first == second
