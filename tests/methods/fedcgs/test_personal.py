"""FedCGS's second round: what it sends, what its loss is, and that it helps clients with few classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedassay.contracts.method import MethodInput
from fedassay.exchange.ledger import account
from fedassay.exchange.transcript import SERVER
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedcgs.personal import Personalize, _train, prototype_distance
from fedassay.support.errors import PlanError

MakeTask = Callable[..., MethodInput]


def _skewed(make_task: MakeTask, epsilon: float = math.inf) -> MethodInput:
    """Two clients of three classes each."""
    tasks = [
        make_task(clients=1, records=120, labels_of=held, backbone="small_cnn", epsilon=epsilon)
        for held in ([0, 1, 8], [3, 5, 9])
    ]
    clients = tuple(replace(task.clients[0], name=f"client/{i}") for i, task in enumerate(tasks))
    return replace(tasks[0], clients=clients)


def _personal(**given: object) -> FedCGS:
    return FedCGS.model_validate({"personalize": given})


def test_clients_that_fine_tune_do_better_on_their_own_classes(make_task: MakeTask) -> None:
    task = _skewed(make_task)
    outcome = _personal(epochs=3).run(task)
    assert outcome.utility["personalized_accuracy"] >= outcome.utility["personalized_accuracy_global"]
    assert outcome.utility["personalized_accuracy"] > 0.9
    again = _personal(epochs=3).run(task)
    assert outcome.utility == again.utility
    # The frozen backbone is everybody's and must stay as it is.
    assert not any(parameter.requires_grad for parameter in task.backbone.module.parameters())


@pytest.mark.parametrize(
    ("optimizer", "same"),
    [
        # The paper's, by name: its rate stands beside.
        ({"name": "sgd", "momentum": 0.5, "weight_decay": 5e-4}, True),
        ({"name": "sgd", "momentum": 0.5, "weight_decay": 5e-4, "learning_rate": 0.01}, True),
        ({"name": "sgd"}, False),
        ({"name": "adamw", "learning_rate": 1e-3}, False),
    ],
    ids=["the paper's", "and its rate", "without momentum", "another"],
)
def test_a_client_fine_tunes_by_the_optimiser_of_the_plan(
    optimizer: dict[str, object], same: bool, make_task: MakeTask
) -> None:
    def trained(**given: object) -> list[torch.Tensor]:
        task = _skewed(make_task)
        body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
        top = torch.nn.Linear(4, task.classes)
        for index, parameter in enumerate([*body.parameters(), *top.parameters()]):
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(index))
        settings = Personalize.model_validate({"epochs": 3, **given})
        _train(settings, body, top, task.clients[0], torch.full((task.classes, 4), math.nan), task, clip=False)
        return [*body.parameters(), *top.parameters()]

    pairs = zip(trained(), trained(optimizer=optimizer), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs) == same


def test_the_second_round_sends_prototypes_down_and_nothing_up(make_task: MakeTask) -> None:
    task = _skewed(make_task)
    plain, outcome = FedCGS().run(task), _personal(epochs=1).run(task)
    second = [message for message in outcome.transcript.messages if message.round == 1]
    assert [(m.sender, m.receiver) for m in second] == [(SERVER, "client/0"), (SERVER, "client/1")]
    assert outcome.transcript.bytes_up == plain.transcript.bytes_up
    assert outcome.transcript.bytes_down > plain.transcript.bytes_down
    for label, mean in zip(
        second[0].fields["class_ids"].values, second[0].fields["prototypes"].values, strict=True
    ):
        held = [c.features[c.labels == label] for c in task.clients]
        np.testing.assert_allclose(mean, np.concatenate(held).mean(axis=0), rtol=1e-4, atol=1e-5)
    private = _skewed(make_task, epsilon=5.0)
    protected = _personal(epochs=1).run(private)
    assert account(protected.transcript, "add_remove", 1e-5).epsilon == pytest.approx(5.0, rel=1e-6)


def test_a_stronger_lambda_keeps_features_nearer_to_the_prototypes() -> None:
    features = torch.tensor([[3.0, 4.0], [1.0, 0.0], [7.0, 7.0]], requires_grad=True)
    prototypes = torch.tensor([[0.0, 0.0], [1.0, 1.0], [math.nan, math.nan]])
    distances = prototype_distance(features, torch.tensor([0, 1, 2]), prototypes)
    assert distances.tolist() == [25.0, 1.0, 0.0]
    distances.sum().backward()  # type: ignore[no-untyped-call]
    assert features.grad is not None
    assert features.grad.tolist() == [[6.0, 8.0], [0.0, -2.0], [0.0, 0.0]]


def test_parameters_are_written_as_plans_write_them(make_task: MakeTask) -> None:
    method = _personal(**{"lambda": 0.5, "epochs": 2, "head": "fresh"})
    written = method.model_dump(mode="json")
    assert written["personalize"] == {"lambda": 0.5, "epochs": 2, "learning_rate": 0.01, "head": "fresh"}
    assert FedCGS.model_validate(written) == method
    named = _personal(optimizer={"name": "sgd", "momentum": 0.9})
    assert named.model_dump(mode="json")["personalize"]["optimizer"]["momentum"] == 0.9
    assert FedCGS.model_validate(named.model_dump(mode="json")) == named
    assert Personalize().strength == 1.0
    with pytest.raises(PlanError, match="personalize with expansion 100"):
        FedCGS(expansion=100, personalize=Personalize()).run(make_task(clients=1))
