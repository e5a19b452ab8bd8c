"""FedPFT's chain: what is handed on, how knowledge arrives, and that a hop protects its own records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.ledger import account
from fedassay.exchange.transcript import SERVER
from fedassay.methods.baselines.centralized import Centralized
from fedassay.methods.fedpft.chain import FedPFTChain
from fedassay.methods.fedpft.messages import sample_message
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.support.errors import DataError, PlanError

MakeTask = Callable[..., MethodInput]
SAME = "replace_one_same_label"


def _accuracy(outcome: Outcome, task: MethodInput) -> float:
    assert outcome.model is not None
    return float((outcome.model.predict(task.test) == task.test.labels).mean())


def _without(task: MethodInput, empty: int) -> MethodInput:
    clients = list(task.clients)
    clients[empty] = clients[empty].take(np.empty(0, dtype=np.int64))
    return replace(task, clients=tuple(clients))


@pytest.mark.long
def test_the_last_of_five_clients_is_within_two_points_of_centralized(make_task: MakeTask) -> None:
    task = make_task(clients=5, records=500, backbone="small_cnn")
    outcome = FedPFTChain().run(task)
    oracle = _accuracy(Centralized().run(task), task)
    assert oracle > 0.85
    assert _accuracy(outcome, task) > oracle - 0.02
    assert outcome.utility["accuracy_client/4"] == _accuracy(outcome, task)


def test_knowledge_gathers_along_the_line(make_task: MakeTask) -> None:
    outcome = FedPFTChain().run(make_task(clients=5, records=500))
    # The first client has learnt from its own 100 records alone.
    assert outcome.utility["accuracy_client/4"] > outcome.utility["accuracy_client/0"] + 0.02


def test_every_hop_says_what_it_has_seen(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=240)
    outcome = FedPFTChain(components=2, order=(2, 0, 1)).run(task)
    messages = outcome.transcript.messages
    hops = [(message.round, message.sender, message.receiver) for message in messages]
    assert hops == [(0, "client/2", "client/0"), (1, "client/0", "client/1")]
    assert SERVER not in {message.receiver for message in messages}
    totals = [int(message.fields["class_counts"].values.sum()) for message in messages]
    assert totals == [len(task.clients[2]), len(task.clients[2]) + len(task.clients[0])]
    assert outcome.transcript.bytes_down == 0
    assert list(outcome.utility) == ["accuracy_client/2", "accuracy_client/0", "accuracy_client/1"]


def test_means_of_the_union_are_handed_on(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=200)
    three = replace(task, clients=(*task.clients, task.clients[0].take(np.arange(5), "client/2")))
    first, second = FedPFTChain(components=1, transport="float32").run(three).transcript.messages
    drawn, classes = sample_message(first, three)
    own = task.clients[1]
    for row, label in enumerate(second.fields["class_ids"].values):
        both = np.concatenate([own.features[own.labels == label], drawn[classes == label]])
        np.testing.assert_allclose(second.fields["means"].values[row], both.mean(axis=0), rtol=1e-3, atol=1e-3)


def test_a_destination_learns_the_labels_of_its_source(make_task: MakeTask) -> None:
    source = make_task(clients=1, records=400, labels_of=[0, 1, 2, 3, 4], backbone="small_cnn")
    other = make_task(clients=1, records=400, labels_of=[5, 6, 7, 8, 9], backbone="small_cnn")
    task = replace(source, clients=(source.clients[0], replace(other.clients[0], name="client/1")))
    outcome = FedPFTChain().run(task)
    assert outcome.utility["accuracy_client/0"] < 0.6
    assert outcome.utility["accuracy_client/1"] > _accuracy(Centralized().run(task), task) - 0.05


@pytest.mark.parametrize(
    ("parameters", "adjacency"),
    [
        ({"components": 1}, SAME),
        ({"components": 1, "covariance": "full"}, SAME),
        ({"components": 1, "counts": "noised", "covariance": "spherical"}, "add_remove"),
        ({"components": 2}, SAME),
        ({"components": 2, "counts": "noised"}, "replace_one"),
    ],
)
def test_a_chain_costs_no_more_than_its_worst_hop(
    make_task: MakeTask, parameters: dict[str, object], adjacency: str
) -> None:
    task = make_task(clients=3, records=300, epsilon=4.0, adjacency=adjacency)
    outcome = FedPFTChain(**parameters).run(task)
    accounted = account(outcome.transcript, task.privacy.adjacency, 1e-5)
    assert accounted.epsilon == pytest.approx(4.0, rel=1e-6)
    assert accounted.exact_fields == ()


def test_noise_is_that_of_the_united_records(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=300, epsilon=10.0, adjacency=SAME)
    first, second = FedPFTChain(components=1).run(task).transcript.messages
    for message in (first, second):
        counts = message.fields["class_counts"].values
        scales = [calibrate_sigma(10.0, 1e-5, math.sqrt(4.5) / int(n)) for n in counts]
        np.testing.assert_allclose(message.fields["means"].release.noise_scale, scales)
    seen = np.concatenate([task.clients[0].labels, task.clients[1].labels])
    np.testing.assert_array_equal(second.fields["class_counts"].values, np.bincount(seen))


def test_one_record_moves_a_hop_no_further_than_its_sensitivity(make_task: MakeTask) -> None:
    base = make_task(clients=3, records=300, epsilon=2.0, adjacency=SAME)
    owner = base.clients[1]
    row = int(np.flatnonzero(owner.labels == owner.labels[0])[0])
    other = replace(
        owner, extract=lambda images: np.where(np.arange(len(images))[:, None] == row, -9.0, owner.extract(images))
    )
    before, after = (
        FedPFTChain(components=1, transport="float32", covariance="spherical").run(task).transcript.messages
        for task in (base, replace(base, clients=(base.clients[0], other, base.clients[2])))
    )
    assert before[0].serialized == after[0].serialized
    # The same seed draws the same noise, so that what is left is the change of the statistic.
    means = [messages[1].fields["means"].values.astype(np.float64) for messages in (before, after)]
    moved = np.linalg.norm(means[1] - means[0], axis=1)
    assert np.count_nonzero(moved) == 1
    changed = int(np.argmax(moved))
    release = before[1].fields["means"].release
    assert release.sensitivity is not None
    count = int(before[1].fields["class_counts"].values[changed])
    assert release.sensitivity[changed] == pytest.approx(2 / count)
    assert moved[changed] <= release.sensitivity[changed]


def test_an_empty_client_hands_on_what_it_got(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=240)
    outcome = FedPFTChain(components=2).run(_without(task, 1))
    first, second = outcome.transcript.messages
    assert first.serialized == second.serialized
    assert (second.sender, second.receiver) == ("client/1", "client/2")
    assert any("client/1 has no records and hands on" in note for note in outcome.notes)
    assert set(outcome.utility) == {f"accuracy_client/{i}" for i in range(3)}
    private = replace(_without(task, 1), privacy=make_task(epsilon=4.0, adjacency=SAME).privacy)
    protected = FedPFTChain(components=1).run(private)
    assert account(protected.transcript, SAME, 1e-5).epsilon == pytest.approx(4.0, rel=1e-6)
    # Where presence is private, an empty client may not show that it is empty.
    hidden = replace(private, privacy=make_task(epsilon=4.0).privacy)
    first, second = FedPFTChain(components=1, counts="noised").run(hidden).transcript.messages
    assert first.serialized != second.serialized
    assert second.fields["class_counts"].release.mechanism == "gaussian"


def test_an_empty_client_at_either_end(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=200)
    for epsilon in (math.inf, 4.0):
        at = replace(task, privacy=make_task(epsilon=epsilon, adjacency=SAME).privacy)
        outcome = FedPFTChain(components=1).run(_without(at, 0))
        assert len(outcome.transcript.messages[0].fields["class_ids"].values) == 0
        assert list(outcome.utility) == ["accuracy_client/1"]
        assert any("without a head" in note and "client/0" in note for note in outcome.notes)
    assert _accuracy(FedPFTChain(components=2).run(_without(task, 1)), task) > 0.7
    with pytest.raises(DataError, match="no client has any record"):
        FedPFTChain().run(_without(_without(task, 0), 1))


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), (0, 1, 3)])
def test_wrong_orders(make_task: MakeTask, order: tuple[int, ...]) -> None:
    with pytest.raises(PlanError, match=r"order \[.*\] for 3 clients; allowed: each of 0 to 2 once"):
        FedPFTChain(order=order).run(make_task(clients=3))
    with pytest.raises(PlanError, match="a chain needs at least 2"):
        FedPFTChain().run(make_task(clients=1))


def test_noised_counts_ask_for_no_more_features_than_are_drawn(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedassay.methods.fedpft.messages.MAX_DRAWN", 120)
    task = make_task(clients=2, records=400, epsilon=2.0, labels_of=[0, 1, 2])
    outcome = FedPFTChain(components=1, counts="noised").run(task)
    _, labels = sample_message(outcome.transcript.messages[0], task)
    assert len(labels) == 120
    assert any(note.startswith("client/1: ") and "120 are drawn" in note for note in outcome.notes)
