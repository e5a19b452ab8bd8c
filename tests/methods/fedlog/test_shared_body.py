"""A body of cells that a malicious server sends as FedLog's shared start, and heads that leave it as it came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from fedassay.attacks.trapped_sums import TrappedSums
from fedassay.audits.features import encoder
from fedassay.backbones.base import renewed
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.transcript import SERVER
from fedassay.exchange.view import ThreatModel, view
from fedassay.methods.fedlog.method import FedLog
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.cells import Cells, cells_for
from fedassay.support.errors import NothingToReadError, PlanError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
WIDTH = 65


def trapped(task: MethodInput, width: int = WIDTH) -> MethodInput:
    """The same task, whose server has chosen a body of `width` - 1 features by its public records."""
    assert task.public is not None
    network = cells_for(task.public.images, task.public.labels, width - 1, 10.0, Seeds(7))
    backbone = renewed(task.backbone, network, "cells", "the server's own images")
    clients = tuple(replace(client, extract=backbone.extract) for client in task.clients)
    test = replace(task.test, extract=backbone.extract)
    return replace(task, clients=clients, test=test, backbone=backbone, adversary=task.public)


def method(**given: Any) -> FedLog:
    return FedLog.model_validate({"bodies": "mlp_deep", "width": WIDTH, "rounds": 2, "local_epochs": 2} | given)


def attacked(task: MethodInput, outcome: Outcome) -> AttackResult:
    known = Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT)
    return TrappedSums().run(view(outcome.transcript, ThreatModel()), known)


@pytest.mark.parametrize("given", [{}, {"variant": "c", "rounds": 1}, {"optimizer": {"name": "sgd"}}])
def test_records_that_are_alone_in_a_cell_are_read_after_training(
    given: dict[str, Any], make_task: MakeTask
) -> None:
    """Counted by the records themselves; each is read once, however many rounds tell it."""
    task = trapped(make_task(clients=4, records=400))
    (found,) = attacked(task, method(**given).run(task)).vectors
    held, alone = {client.name: client for client in task.clients}, 0
    assert isinstance(task.backbone.module, Cells)
    for client in task.clients:
        cells = task.backbone.module.layout.split(client.features)[..., 0] > 0.5
        alone += sum(int((cells[client.labels == label].sum(axis=0) == 1).sum()) for label in range(10))
    assert len(found.vectors) == alone > 60
    for vector, label, sender in zip(found.vectors, found.labels, found.senders, strict=True):
        apart = np.abs(held[sender].features - vector).max(axis=1)
        assert apart.min() < 2e-3
        assert held[sender].labels[apart.argmin()] == label


def test_heads_teach_nothing_until_the_last(make_task: MakeTask) -> None:
    """The last head is solved for, so that the model predicts, from features that audits can compare."""
    task = trapped(make_task(clients=2, records=400))
    outcome = method(rounds=3).run(task)
    heads = [message.fields["eta"].values for message in outcome.transcript.messages if message.sender == SERVER]
    assert [bool(np.any(head)) for head in heads] == [False] * 6 + [True] * 2
    assert outcome.model is not None
    assert len(np.unique(outcome.model.predict(task.test))) > 1
    assert encoder(cast("AuditContext", SimpleNamespace(outcome=outcome))) is not None


def test_the_server_sends_the_body_that_clients_start_from(make_task: MakeTask) -> None:
    task = trapped(make_task(clients=2, records=100))
    sent = method().run(task).transcript.messages
    first = [each for each in sent if each.sender == SERVER and "body" in each.fields]
    assert [message.round for message in first] == [0, 0]
    body = build_body(BodySpec(name="mlp_deep"), (8, 8, 1), WIDTH - 1, 0)
    module = torch.nn.Sequential(body, torch.nn.ReLU())
    torch.nn.utils.vector_to_parameters(torch.tensor(first[0].fields["body"].values), module.parameters())
    images = task.test.images
    with torch.inference_mode():
        made = module(torch.tensor(images).permute(0, 3, 1, 2)).numpy()
    assert np.abs(made - task.test.features).max() < 2e-3


def test_an_honest_server_sends_no_body(make_task: MakeTask) -> None:
    messages = method().run(make_task(clients=2, records=100)).transcript.messages
    assert not any("body" in message.fields for message in messages)


def test_noise_is_not_read_through(make_task: MakeTask) -> None:
    task = trapped(make_task(clients=2, records=100, epsilon=8.0))
    with pytest.raises(NothingToReadError, match="the sums of 4 messages are noised"):
        attacked(task, method(activation="relu").run(task))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"initialization": "own"}, "allowed: shared"),
        ({"variant": "c"}, "allowed: variant plain, or rounds 1"),
        ({"bodies": "mlp"}, "allowed: bodies mlp_deep"),
        ({"bodies": "cnn"}, "allowed: bodies mlp_deep"),
        ({"activation": "none"}, "allowed: bodies mlp_deep"),
        ({"bodies": {"name": "mlp_deep", "hidden": 8}}, "cells take 16 hidden units, and a body has 8"),
    ],
)
def test_what_cannot_be_a_trap_is_refused(given: dict[str, Any], words: str, make_task: MakeTask) -> None:
    with pytest.raises(PlanError, match=rf"threat\.server: malicious given.*{words}"):
        method(**given).run(trapped(make_task(clients=2, records=100)))


def test_a_malicious_server_without_a_body_is_refused(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=100)
    with pytest.raises(PlanError, match="but no body"):
        method().run(replace(task, adversary=task.public))
