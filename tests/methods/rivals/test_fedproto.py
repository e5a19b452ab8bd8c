"""FedProto: prototypes against naive means, what the distance does, privacy and resuming."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedassay.methods.rivals.fedproto as fedproto_module
import fedassay.methods.shared.rounds as rounds_module
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.ledger import account, exact_fields
from fedassay.exchange.transcript import SERVER
from fedassay.methods.rivals.fedproto import FedProto
from fedassay.support.errors import DataError

MakeTask = Callable[..., MethodInput]
QUICK = {"rounds": 3, "local_epochs": 2, "width": 7, "bodies": {"name": "mlp", "hidden": 16}}


def _quick(**params: object) -> FedProto:
    return FedProto.model_validate({**QUICK, **params})


def _spread(outcome: Outcome) -> float:
    """Mean distance between the clients' prototypes of a class in the last round."""
    last = max(message.round for message in outcome.transcript.messages)
    sent = [m for m in outcome.transcript.messages if m.round == last and m.sender != SERVER]
    rows = np.stack([message.fields["prototypes"].values for message in sent])
    return float(np.linalg.norm(rows - rows.mean(axis=0), axis=2).mean() / np.linalg.norm(rows, axis=2).mean())


def test_prototypes_are_the_naive_means(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task()
    first, second, third = task.clients
    uneven = (first, second.take(np.flatnonzero(second.labels < 4)), third.take(np.zeros(0, np.int64)))
    task = replace(task, clients=uneven)
    seen: dict[tuple[int, str], np.ndarray] = {}
    original = fedproto_module._sums

    def spying(features: np.ndarray, client: object, *rest: object) -> object:
        seen[rest[2], client.name] = features  # type: ignore[attr-defined, index]
        return original(features, client, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fedproto_module, "_sums", spying)
    messages = _quick().run(task).transcript.messages
    for number in range(3):
        features = np.concatenate([seen[number, client.name] for client in uneven])
        labels = np.concatenate([client.labels for client in uneven])
        downs = [m for m in messages if m.round == number and m.sender == SERVER]
        assert len(downs) == 3
        np.testing.assert_array_equal(downs[0].fields["class_ids"].values, np.unique(labels))
        for row, label in enumerate(downs[0].fields["class_ids"].values):
            expected = features[labels == label].mean(axis=0)
            np.testing.assert_allclose(downs[0].fields["prototypes"].values[row], expected, rtol=1e-4, atol=1e-5)
        (up,) = [m for m in messages if m.round == number and m.sender == "client/1"]
        assert set(up.fields["class_ids"].values) == {0, 1, 2, 3}


def test_the_distance_brings_the_clients_prototypes_together(make_task: MakeTask) -> None:
    task = make_task(records=600)
    assert _spread(_quick(strength=5.0).run(task)) < 0.7 * _spread(_quick(strength=0.0).run(task))


def test_it_learns(make_task: MakeTask) -> None:
    outcome = FedProto().run(make_task())
    assert outcome.utility["personalized_accuracy"] > 0.7
    assert outcome.communication["paper_parameters_up"] == 5 * 3 * 10 * 31


@pytest.mark.long
def test_private_rounds(make_task: MakeTask) -> None:
    task = make_task(epsilon=5.0)
    outcome = _quick().run(task)
    assert 5 * 0.98 <= account(outcome.transcript, "add_remove", 1e-5).epsilon <= 5
    assert exact_fields(outcome.transcript, "add_remove") == ()
    assert outcome.mechanisms
    published = _quick(body="private").run(task)
    assert account(published.transcript, "add_remove", 1e-5).epsilon == math.inf
    assert exact_fields(published.transcript, "add_remove") == ("body_dependence",)
    assert not published.mechanisms


def test_a_resumed_run_is_an_uninterrupted_one(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(records=60)
    whole = _quick().run(task)
    keep = rounds_module.keep_round

    def interrupted(task: MethodInput, run: str, number: int, *rest: object) -> None:
        if number == 1:
            raise KeyboardInterrupt
        keep(task, run, number, *rest)  # type: ignore[arg-type]

    resumable = replace(task, scratch=tmp_path)
    monkeypatch.setattr(rounds_module, "keep_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _quick().run(resumable)
    monkeypatch.undo()
    again = _quick().run(resumable)
    assert [m.serialized for m in again.transcript.messages] == [m.serialized for m in whole.transcript.messages]
    assert again.utility == whole.utility


def test_bad_input(make_task: MakeTask) -> None:
    task = make_task(records=60)
    nobody = tuple(client.take(np.zeros(0, np.int64)) for client in task.clients)
    with pytest.raises(DataError, match="no client has any record"):
        _quick().run(replace(task, clients=nobody))
    with pytest.raises(DataError, match="has diverged in round"):
        _quick(learning_rate=1e30).run(task)
