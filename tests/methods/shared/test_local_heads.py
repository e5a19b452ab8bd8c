"""Ensembles, averages and distillation of what clients train alone: against naive computations, and bad input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedassay.contracts.method import MethodInput, OnFeatures, Outcome
from fedassay.exchange.ledger import account, exact_fields
from fedassay.heads.linear import train_head
from fedassay.methods.baselines.average import Average
from fedassay.methods.baselines.centralized import Centralized
from fedassay.methods.baselines.ensemble import EnsembleOfClients
from fedassay.methods.rivals.knowledge_distillation import KnowledgeDistillation
from fedassay.methods.shared.local_heads import Ensemble, head_loss
from fedassay.nets.dp_sgd.clipped_sums import record_gradients
from fedassay.nets.local_training import record_objective
from fedassay.support.errors import DataError, PlanError

MakeTask = Callable[..., MethodInput]


def _accuracy(outcome: Outcome, task: MethodInput) -> float:
    assert outcome.model is not None
    return float((outcome.model.predict(task.test) == task.test.labels).mean())


def _heads(task: MethodInput) -> list[tuple[np.ndarray, np.ndarray]]:
    heads = [train_head(c.features, c.labels, classes=task.classes) for c in task.clients]
    return [(head.weights, head.bias) for head in heads]


def _softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def test_one_clients_average_and_ensemble_are_the_centralized_head(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=400)
    oracle = Centralized().run(task)
    assert oracle.model is not None
    expected = oracle.model.predict(task.test)
    for method in (Average(), EnsembleOfClients(), EnsembleOfClients(combine="max")):
        model = method.run(task).model
        assert model is not None
        np.testing.assert_array_equal(model.predict(task.test), expected)


def test_the_average_is_weighted_by_records(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=300)
    first, second, third = task.clients
    task = replace(task, clients=(first, second.take(np.arange(30)), third.take(np.zeros(0, np.int64))))
    messages = Average().run(task).transcript.messages
    assert [int(m.fields["records"].values[0]) for m in messages[:3]] == [100, 30, 0]
    assert not messages[2].fields["head_weights"].values.any()
    held = _heads(replace(task, clients=task.clients[:2]))
    expected = (100 * held[0][0] + 30 * held[1][0]) / 130
    np.testing.assert_allclose(messages[3].fields["head_weights"].values, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("combine", ["mean", "max", "logits"])
def test_members_agree_as_asked(make_task: MakeTask, combine: str) -> None:
    task = make_task(clients=3, records=120)
    model = EnsembleOfClients.model_validate({"combine": combine}).run(task).model
    assert model is not None
    features = task.test.features
    scores = [features @ weights.T + bias for weights, bias in _heads(task)]
    if combine == "logits":
        joined = sum(scores)
    elif combine == "mean":
        joined = sum(_softmax(each) for each in scores)
    else:
        joined = np.max([_softmax(each) for each in scores], axis=0)
    assert (model.predict(task.test) == np.argmax(joined, axis=1)).mean() > 0.995


def test_clients_of_few_classes_answer_for_the_others(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=600)
    halves = [
        client.take(np.flatnonzero(np.isin(client.labels, half)))
        for client, half in zip(task.clients, ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]), strict=True)
    ]
    task = replace(task, clients=tuple(halves))
    alone = EnsembleOfClients().run(replace(task, clients=task.clients[:1]))
    both = EnsembleOfClients().run(task)
    assert _accuracy(alone, task) < 0.56
    assert _accuracy(both, task) > 0.75
    # A class that a client never saw is not what it answers.
    assert alone.model is not None
    assert set(alone.model.predict(task.test)) <= {0, 1, 2, 3, 4}


def test_whole_classifiers_as_members(make_task: MakeTask) -> None:
    task = make_task()
    outcome = EnsembleOfClients.model_validate({"networks": {"bodies": ["mlp", "linear"]}}).run(task)
    assert _accuracy(outcome, task) > 0.8
    sizes = [message.fields["parameters"].values.size for message in outcome.transcript.messages]
    assert sizes[0] == sizes[2] > sizes[1]


def test_classifiers_may_start_from_the_backbone(make_task: MakeTask) -> None:
    task = make_task(backbone="small_cnn", records=150)
    before = {name: value.clone() for name, value in task.backbone.module.state_dict().items()}
    settings = {"start": "backbone", "local_epochs": 5}
    outcome = EnsembleOfClients.model_validate({"networks": settings}).run(task)
    assert _accuracy(outcome, task) > 0.5
    for name, value in task.backbone.module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_a_heads_record_gradients_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    module, inputs, labels = torch.nn.Linear(6, 4), torch.randn(5, 6), torch.tensor([0, 3, 1, 1, 2])
    found = record_gradients(module, record_objective(head_loss), (inputs, labels))
    for index in range(5):
        module.zero_grad()
        head_loss(module(inputs[index : index + 1]), labels[index : index + 1]).sum().backward()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(found[name][index], parameter.grad)


@pytest.mark.long
@pytest.mark.parametrize("method", [Average(), EnsembleOfClients(), KnowledgeDistillation()])
def test_private_heads_spend_their_budget_once(make_task: MakeTask, method: Average) -> None:
    task = make_task(epsilon=3.0, delta=1e-3)
    transcript = method.run(task).transcript
    assert 3 * 0.99 <= account(transcript, "add_remove", 1e-3).epsilon <= 3
    assert exact_fields(transcript, "add_remove") == ()
    assert all("records" not in message.fields for message in transcript.messages)
    assert account(method.run(make_task()).transcript, "add_remove", 1e-3).epsilon == math.inf


@pytest.mark.long
def test_private_heads_learn_with_enough_budget(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=1200, epsilon=50.0)
    assert _accuracy(Average().run(task), task) > 0.75


def test_distillation_tells_the_destination_of_the_sources_classes(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=900)
    source, destination = task.clients
    halves = (
        source.take(np.flatnonzero(source.labels < 7)),
        destination.take(np.flatnonzero(destination.labels > 2)),
    )
    task = replace(task, clients=halves)
    told = KnowledgeDistillation().run(task)
    alone = KnowledgeDistillation(share=0.0).run(task)
    assert _accuracy(told, task) > _accuracy(alone, task) + 0.05
    (message,) = told.transcript.messages
    assert (message.sender, message.receiver) == ("client/0", "client/1")
    assert 0.5 < told.utility["accuracy_client/0"] < 0.75


def test_bad_input(make_task: MakeTask) -> None:
    task = make_task(records=60)
    nobody = tuple(client.take(np.zeros(0, np.int64)) for client in task.clients)
    for method in (Average(), EnsembleOfClients(), KnowledgeDistillation()):
        with pytest.raises(DataError, match="no client has any record"):
            method.run(replace(task, clients=nobody))
    with pytest.raises(DataError, match="no client has any record"):
        EnsembleOfClients.model_validate({"networks": {}}).run(replace(task, clients=nobody))
    with pytest.raises(PlanError, match="a source and a destination"):
        KnowledgeDistillation().run(replace(task, clients=task.clients[:1]))
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.2"):
        train_head(np.ones((2, 3)), np.array([0, 3]), classes=3)


def test_an_ensemble_of_heads_is_of_the_backbones_features_and_one_of_networks_is_not(make_task: MakeTask) -> None:
    model = EnsembleOfClients().run(make_task(clients=2, records=40)).model
    assert isinstance(model, OnFeatures)
    assert model.transform is None
    assert not isinstance(Ensemble([lambda records: np.zeros((len(records), 10))]), OnFeatures)
