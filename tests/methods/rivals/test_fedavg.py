"""Federated averaging: the average, what is shared, privacy, resuming and bad input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedassay.methods.shared.rounds as rounds_module
from fedassay.contracts.method import MethodInput
from fedassay.exchange.ledger import account, exact_fields
from fedassay.exchange.transcript import SERVER, Message
from fedassay.methods.rivals.fedavg import FedAvg
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
    task = make_task(backbone="small_cnn", records=120)
    first = FedAvg(start="backbone", local_epochs=1).run(task).transcript.messages[0]
    own = np.concatenate([p.detach().numpy().ravel() for p in task.backbone.module.parameters()])
    np.testing.assert_array_equal(first.fields["parameters"].values[: own.size], own)
    assert first.fields["parameters"].values.size == own.size + 65 * 10


def test_bad_input(make_task: MakeTask) -> None:
    task = make_task(records=60)
    nobody = tuple(client.take(np.zeros(0, np.int64)) for client in task.clients)
    with pytest.raises(DataError, match="no client has any record"):
        _quick().run(dataclasses.replace(task, clients=nobody))
    with pytest.raises(DataError, match="has diverged in round 0"):
        _quick(learning_rate=1e30, local_epochs=3).run(task)
