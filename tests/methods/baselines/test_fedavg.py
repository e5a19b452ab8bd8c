"""Federated averaging: the average, what is shared, privacy, resuming and bad input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import fedassay.methods.shared.rounds as rounds_module
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.ledger import account, exact_fields
from fedassay.exchange.transcript import SERVER, Message
from fedassay.methods.baselines.fedavg import FedAvg
from fedassay.methods.shared.local_networks import LocalNetwork, LocalTraining
from fedassay.methods.shared.sites import Site
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.privacy.tape import taped
from fedassay.support.errors import DataError, PlanError

MakeTask = Callable[..., MethodInput]
QUICK = {"rounds": 2, "local_epochs": 1, "width": 6, "bodies": {"name": "mlp", "hidden": 16}}
PARAMETERS = 64 * 16 + 16 + 16 * 5 + 5 + 5 * 10 + 10


def _quick(**params: object) -> FedAvg:
    return FedAvg.model_validate({**QUICK, **params})


def _sent(messages: tuple[Message, ...], number: int, sender: str) -> list[Message]:
    return [message for message in messages if message.round == number and message.sender == sender]


def test_the_server_averages_by_records(make_task: MakeTask) -> None:
    task = make_task()
    first, second, third = task.clients
    uneven = (first, second.take(np.arange(10)), third.take(np.zeros(0, np.int64)))
    messages = _quick().run(dataclasses.replace(task, clients=uneven)).transcript.messages
    for number in (0, 1):
        vectors, sizes = [], []
        for client in uneven:
            (message,) = _sent(messages, number, client.name)
            vectors.append(message.fields["parameters"].values)
            sizes.append(int(message.fields["records"].values[0]))
        assert sizes == [100, 10, 0]
        expected = np.average(vectors, axis=0, weights=sizes)
        for answer in _sent(messages, number, SERVER)[-3:]:
            np.testing.assert_allclose(answer.fields["parameters"].values, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("share", "size"), [("all", PARAMETERS), ("head", 60), ("body", PARAMETERS - 60)])
def test_only_what_is_shared_is_sent(make_task: MakeTask, share: str, size: int) -> None:
    outcome = _quick(share=share).run(make_task())
    assert {message.fields["parameters"].values.size for message in outcome.transcript.messages} == {size}
    assert outcome.utility["personalized_accuracy"] > 0.1


def test_averaged_bodies_must_be_alike(make_task: MakeTask) -> None:
    several = ["mlp", "cnn"]
    with pytest.raises(PlanError, match="bodies that are averaged must be alike"):
        _quick(bodies=several).run(make_task())
    assert _quick(bodies=several, share="head").run(make_task()).model is not None


def test_one_shot_averaging_learns(make_task: MakeTask) -> None:
    task = make_task()
    outcome = FedAvg().run(task)
    assert outcome.model is not None
    assert (outcome.model.predict(task.test) == task.test.labels).mean() > 0.8
    assert {message.round for message in outcome.transcript.messages} == {0}


@pytest.mark.parametrize("rounds", [1, 3])
def test_private_rounds_share_one_budget_and_send_no_counts(make_task: MakeTask, rounds: int) -> None:
    task = make_task(epsilon=3.0, delta=1e-3)
    outcome = _quick(rounds=rounds, dp_sgd={"sampling_rate": 1.0}).run(task)
    assert 3 * 0.998 <= account(outcome.transcript, "add_remove", 1e-3).epsilon <= 3
    assert exact_fields(outcome.transcript, "add_remove") == ()
    assert all("records" not in message.fields for message in outcome.transcript.messages)


def test_without_privacy_nothing_is_bounded(make_task: MakeTask) -> None:
    outcome = _quick().run(make_task())
    assert account(outcome.transcript, "replace_one_same_label", 1e-5).epsilon == math.inf


@pytest.mark.parametrize("share", ["all", "head"])
def test_a_resumed_run_is_an_uninterrupted_one(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str
) -> None:
    task = make_task(records=60)
    method = _quick(share=share, rounds=3)
    whole = method.run(task)
    keep = rounds_module.keep_round

    def interrupted(task: MethodInput, run: str, number: int, *rest: object) -> None:
        if number == 1:
            raise KeyboardInterrupt
        keep(task, run, number, *rest)

    resumable = dataclasses.replace(task, scratch=tmp_path)
    monkeypatch.setattr(rounds_module, "keep_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        method.run(resumable)
    monkeypatch.undo()
    again = method.run(resumable)
    assert [m.serialized for m in again.transcript.messages] == [m.serialized for m in whole.transcript.messages]
    assert again.utility == whole.utility
    assert again.model is not None
    assert whole.model is not None
    np.testing.assert_array_equal(again.model.predict(task.test), whole.model.predict(task.test))


def test_fine_tuning_helps_clients_of_few_classes_and_sends_nothing(make_task: MakeTask) -> None:
    task = make_task(records=600)
    clients = tuple(
        client.take(np.flatnonzero(np.isin(client.labels, [3 * i, 3 * i + 1])))
        for i, client in enumerate(task.clients)
    )
    task = dataclasses.replace(task, clients=clients)
    plain = _quick(local_epochs=3).run(task)
    tuned = _quick(local_epochs=3, fine_tune={"epochs": 20}).run(task)
    assert tuned.utility["personalized_accuracy_global"] == plain.utility["personalized_accuracy"]
    assert tuned.utility["personalized_accuracy"] > plain.utility["personalized_accuracy"] + 0.05
    assert [m.serialized for m in tuned.transcript.messages] == [m.serialized for m in plain.transcript.messages]
    assert tuned.model is not None
    assert plain.model is not None
    np.testing.assert_array_equal(tuned.model.predict(task.test), plain.model.predict(task.test))


def test_bodies_may_start_from_the_backbone(make_task: MakeTask) -> None:
    task = make_task(backbone="small_cnn", records=60, weights="random")
    first = FedAvg(start="backbone", local_epochs=1).run(task).transcript.messages[0]
    own = np.concatenate([p.detach().numpy().ravel() for p in task.backbone.module.parameters()])
    np.testing.assert_array_equal(first.fields["parameters"].values[: own.size], own)
    assert first.fields["parameters"].values.size == own.size + 65 * 10


def _few_classes(task: MethodInput) -> MethodInput:
    """Every client holds two classes of its own."""
    clients = (
        client.take(np.flatnonzero(np.isin(client.labels, [3 * i, 3 * i + 1])))
        for i, client in enumerate(task.clients)
    )
    return dataclasses.replace(task, clients=tuple(clients))


def test_the_pull_keeps_clients_near_the_start(make_task: MakeTask) -> None:
    task = _few_classes(make_task())
    apart = []
    given = {"rounds": 1, "local_epochs": 20, "optimizer": {"name": "sgd", "learning_rate": 0.05}}
    for strength in (0.0, 1.0, 10.0):
        messages = _quick(proximal=strength, **given).run(task).transcript.messages
        start = _sent(messages, 0, SERVER)[0].fields["parameters"].values
        sent = [_sent(messages, 0, client.name)[0].fields["parameters"].values for client in task.clients]
        apart.append(max(float(np.linalg.norm(each - start)) for each in sent))
    assert apart[0] > apart[1] > 2 * apart[2]


def test_yogi_moves_by_the_published_step(make_task: MakeTask) -> None:
    task = make_task(records=60)
    messages = _quick(server={"learning_rate": 0.02}, learning_rate=5e-3).run(task).transcript.messages
    start, second = (_sent(messages, 0, SERVER)[i].fields["parameters"].values for i in (0, -1))
    sent = np.mean([_sent(messages, 0, c.name)[0].fields["parameters"].values for c in task.clients], axis=0)
    update = sent.astype(np.float64) - start
    # Algorithm 2 of Reddi et al., first round, from m = 0 and v = 1e-6.
    moment = 1e-6 - 0.01 * update**2 * np.sign(1e-6 - update**2)
    np.testing.assert_allclose(second, start + 0.02 * 0.1 * update / (np.sqrt(moment) + 1e-3), atol=1e-6)


def test_two_layers_may_be_the_head(make_task: MakeTask) -> None:
    task = make_task(records=60)
    head = _quick(share="head", head_layers=2).run(task).transcript.messages[-1].fields["parameters"].values
    assert head.size == 16 * 5 + 5 + 5 * 10 + 10
    body = _quick(share="body", head_layers=2).run(task).transcript.messages[-1].fields["parameters"].values
    assert body.size == 64 * 16 + 16
    with pytest.raises(PlanError, match="head_layers: 3 given, and the network has no other layer"):
        _quick(share="head", head_layers=3).run(task)
    with pytest.raises(PlanError, match="head_layers: 4 given; allowed: 3 at most"):
        _quick(share="head", head_layers=4).run(task)


def _heads(method: FedAvg, task: MethodInput, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The clients' heads after a run."""
    sites = []
    make = method.site

    def kept(index: int, client: Records, given: MethodInput) -> Site:
        sites.append(make(index, client, given))
        return sites[-1]

    monkeypatch.setattr(FedAvg, "site", lambda _self, *given: kept(*given))
    method.run(task)
    monkeypatch.undo()
    return [site.head[0].detach().numpy().copy() for site in sites]


def test_fedbabu_leaves_the_head_as_it_started_until_fine_tuning(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _few_classes(make_task())
    method = _quick(share="body", schedule="body")
    start = method.site(0, task.clients[0], task).head[0].detach().numpy()
    for head in _heads(method, task, monkeypatch):
        np.testing.assert_array_equal(head, start)
    tuned = _quick(share="body", schedule="body", fine_tune={"epochs": 10}).run(task)
    assert tuned.utility["personalized_accuracy"] > tuned.utility["personalized_accuracy_global"]


def test_fedrep_trains_head_then_body(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    task = _few_classes(make_task())
    method = _quick(share="body", schedule="alternating", head_epochs=3, rounds=1)
    phases: list[set[str]] = []
    train = LocalTraining.__call__

    def watched(self: LocalTraining, network: LocalNetwork, *given: object) -> None:
        before = {name: each.detach().clone() for name, each in network.module.named_parameters()}
        train(self, network, *given)
        after = dict(network.module.named_parameters())
        phases.append({name.split(".")[0] for name in before if not torch.equal(before[name], after[name])})

    monkeypatch.setattr(LocalTraining, "__call__", watched)
    method.run(task)
    assert phases == [{"1"}, {"0"}] * 3
    monkeypatch.undo()
    with pytest.raises(PlanError, match=r"FedRep.* has no private form"):
        method.run(make_task(epsilon=1.0))
    with pytest.raises(ValidationError, match="schedule alternating with share all; allowed: share body"):
        _quick(schedule="alternating")


def _twice_as_large(task: MethodInput) -> MethodInput:
    """Every pixel is four."""
    clients, test = (
        tuple(
            Records(each.name, each.images.repeat(2, axis=1).repeat(2, axis=2), each.labels, each.extract)
            for each in records
        )
        for records in (task.clients, (task.test.take(np.arange(4)),))
    )
    return dataclasses.replace(task, clients=clients, test=test[0])


@pytest.mark.long
def test_networks_with_batch_normalisation_send_its_statistics(make_task: MakeTask) -> None:
    task = _twice_as_large(make_task(records=6))
    method = FedAvg.model_validate({"bodies": "resnet16", "local_epochs": 1, "batch": 4})
    outcome = method.run(task)
    last = outcome.transcript.messages[-1].fields["parameters"].values
    module = method.site(0, task.clients[0], task).network.module
    parameters = sum(each.numel() for each in module.parameters())
    statistics = sum(each.numel() for name, each in module.named_buffers() if "running" in name)
    assert last.size == parameters + statistics
    # The running variances of the averaged model are those of the clients, averaged.
    sent = [_sent(outcome.transcript.messages, 0, c.name)[0].fields["parameters"].values for c in task.clients]
    np.testing.assert_allclose(last[parameters:], np.mean(sent, axis=0)[parameters:], rtol=1e-4, atol=1e-6)
    assert np.abs(sent[0][parameters:] - sent[1][parameters:]).max() > 0
    received = outcome.networks["client/0", 0].network()
    own = [each.numpy().ravel() for name, each in received.named_buffers() if "running" in name]
    np.testing.assert_array_equal(np.concatenate(own), sent[0][parameters:])
    with pytest.raises(PlanError, match=r"mixes the records of a batch.*resnet16_group"):
        method.run(dataclasses.replace(task, privacy=make_task(epsilon=5.0).privacy))


@pytest.mark.slow
def test_the_form_without_batch_normalisation_trains_privately(make_task: MakeTask) -> None:
    task = _twice_as_large(make_task(clients=2, records=8, epsilon=5.0))
    given = {"bodies": "resnet16_group", "local_epochs": 1, "dp_sgd": {"sampling_rate": 0.5}}
    with taped() as tape:
        outcome = FedAvg.model_validate(given).run(task)
    assert not tape.faults
    assert all(entry.facts.failures == () for entry in trainings(tape).values())
    assert exact_fields(outcome.transcript, "add_remove") == ()
    assert account(outcome.transcript, "add_remove", 1e-5).epsilon <= 5


def test_bad_input(make_task: MakeTask) -> None:
    task = make_task(records=60)
    nobody = tuple(client.take(np.zeros(0, np.int64)) for client in task.clients)
    with pytest.raises(DataError, match="no client has any record"):
        _quick().run(dataclasses.replace(task, clients=nobody))
    with pytest.raises(DataError, match="has diverged in round 0"):
        _quick(learning_rate=1e30, local_epochs=3).run(task)
