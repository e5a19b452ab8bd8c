"""Rivals over heads: averaging in rounds, voting teachers, ensembles drawn from a distribution over heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.ledger import account, exact_fields
from fedassay.exchange.transcript import SERVER
from fedassay.methods.baselines.average import Average
from fedassay.methods.baselines.fedavg_heads import FedAvgHeads
from fedassay.methods.rivals.fedbe import FedBE
from fedassay.methods.rivals.fedkt import FedKT, agreed
from fedassay.support.errors import DataError, PlanError
from fedassay.support.types import Parameters

MakeTask = Callable[..., MethodInput]


def _accuracy(outcome: Outcome, task: MethodInput) -> float:
    assert outcome.model is not None
    return float((outcome.model.predict(task.test) == task.test.labels).mean())


def _disjoint(task: MethodInput) -> MethodInput:
    """Classes 0 to 4 at one client, the others at the other."""
    clients = (c.take(np.flatnonzero((c.labels < 5) == (i == 0))) for i, c in enumerate(task.clients))
    return replace(task, clients=tuple(clients))


def test_rounds_make_up_for_classes_that_a_client_lacks(make_task: MakeTask) -> None:
    task = _disjoint(make_task(clients=2, records=300))
    once = FedAvgHeads(rounds=1, local_epochs=5).run(task)
    often = FedAvgHeads(rounds=8, local_epochs=5).run(task)
    assert _accuracy(often, task) > _accuracy(once, task) + 0.1
    assert often.transcript.bytes_up == 8 * once.transcript.bytes_up
    assert {m.round for m in often.transcript.messages} == set(range(8))


def test_one_round_from_zeros_is_a_weighted_mean(make_task: MakeTask) -> None:
    task = make_task(records=90)
    first, *others = task.clients
    task = replace(task, clients=(first.take(np.arange(10)), *others))
    messages = FedAvgHeads(rounds=1).run(task).transcript.messages
    sent = {m.sender: m.fields["head_weights"].values for m in messages}
    expected = np.average([sent[c.name] for c in task.clients], axis=0, weights=[len(c) for c in task.clients])
    np.testing.assert_allclose(sent[SERVER], expected, rtol=1e-5, atol=1e-7)


def test_rounds_that_were_kept_are_not_trained_again(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = replace(make_task(records=30), scratch=tmp_path)
    method = FedAvgHeads.model_validate({"rounds": 3, "local_epochs": 1, "server": {}})
    whole = method.run(task)
    monkeypatch.setattr(FedAvgHeads, "_train", lambda *_: pytest.fail("trained again"))
    again = method.run(task)
    assert [m.serialized for m in again.transcript.messages] == [m.serialized for m in whole.transcript.messages]
    assert again.utility == whole.utility


@pytest.mark.parametrize("rounds", [1, 3])
def test_private_rounds_share_one_budget(make_task: MakeTask, rounds: int) -> None:
    method = FedAvgHeads.model_validate({"rounds": rounds, "dp_sgd": {"sampling_rate": 1.0}, "proximal": 0.01})
    outcome = method.run(make_task(epsilon=3.0, delta=1e-3))
    assert 3 * 0.998 <= account(outcome.transcript, "add_remove", 1e-3).epsilon <= 3
    assert exact_fields(outcome.transcript, "add_remove") == ()
    assert all("records" not in message.fields for message in outcome.transcript.messages)


def test_students_vote_where_they_agree() -> None:
    votes = agreed([np.array([0, 1, 2]), np.array([0, 1, 1])], 3)
    np.testing.assert_array_equal(votes, [[2, 0, 0], [0, 2, 0], [0, 0, 0]])


@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 2])
def test_fedkt_sends_students_of_the_votes_alone(make_task: MakeTask, partitions: int) -> None:
    task = make_task(records=300)
    method = FedKT(partitions=partitions, teachers=3)
    outcome = method.run(task)
    assert _accuracy(outcome, task) > 0.8
    message = outcome.transcript.messages[0]
    assert message.fields["head_weights"].shape == (10 * partitions, 64)
    # Labels of public records play no part.
    assert task.public is not None
    blind = replace(task, public=task.public.relabelled(np.zeros(len(task.public), np.int64)))
    again = method.run(blind).transcript.messages
    assert [m.serialized for m in again] == [m.serialized for m in outcome.transcript.messages]


@pytest.mark.parametrize("distribution", ["gaussian", "dirichlet"])
def test_fedbe_distills_what_the_ensemble_knows(make_task: MakeTask, distribution: str) -> None:
    task = _disjoint(make_task(clients=2, records=300))
    outcome = FedBE.model_validate({"distribution": distribution, "epochs": 10}).run(task)
    average = _accuracy(Average().run(task), task)
    assert _accuracy(outcome, task) > average - 0.05
    assert abs(outcome.utility["accuracy_ensemble"] - _accuracy(outcome, task)) < 0.15
    sent = [m.serialized for m in outcome.transcript.messages if m.sender != SERVER]
    assert sent == [m.serialized for m in Average().run(task).transcript.messages if m.sender != SERVER]


def test_a_private_ensemble_releases_the_heads_alone(make_task: MakeTask) -> None:
    outcome = FedBE.model_validate({"epochs": 1, "dp_sgd": {"epochs": 2}}).run(make_task(epsilon=5.0))
    assert 5 * 0.99 <= account(outcome.transcript, "add_remove", 1e-5).epsilon <= 5
    assert exact_fields(outcome.transcript, "add_remove") == ()


@pytest.mark.parametrize("method", [FedKT(), FedBE()])
def test_public_records_are_needed(make_task: MakeTask, method: FedKT | FedBE) -> None:
    with pytest.raises(PlanError, match=r"no public records .*; allowed: data.split.public above 0"):
        method.run(replace(make_task(records=30), public=None))


@pytest.mark.parametrize("method", [FedKT(), FedBE(), FedAvgHeads()])
def test_nobody_has_a_record(make_task: MakeTask, method: FedKT | FedBE | FedAvgHeads) -> None:
    task = make_task(records=30)
    assert isinstance(method, Parameters)
    nobody = tuple(client.take(np.zeros(0, np.int64)) for client in task.clients)
    with pytest.raises(DataError, match="no client has any record"):
        method.run(replace(task, clients=nobody))
