"""Whose records are that came back from sums over clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gram_messages import CLASSES, KNOWLEDGE, message, sparse, vectors
from numpy.typing import NDArray

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.contracts.attack import AttackResult
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import Transcript
from fedassay.exchange.view import ThreatModel, view

WIDTH = 72


class Federation:
    """Clients with records of their own, and the sums of some of them in each round."""

    def __init__(self, clients: int = 3, records: int = 5, seed: int = 0) -> None:
        self.features, self.labels = sparse(clients * records, WIDTH, seed=seed)
        self.owner = np.repeat(np.arange(clients), records)

    def sent(self, cohort: list[int], number: int) -> list[Message]:
        return [
            message(self.features[own], self.labels[own], secure=True, sender=f"client/{i}", number=number)
            for i in cohort
            for own in [self.owner == i]
        ]

    def open(self, client: int, kind: Any) -> Message:
        """What one client sends openly: its sums, means or counts by class."""
        own = self.owner == client
        member = (self.labels[own][:, None] == np.arange(CLASSES)).astype(float)
        counts, sums = member.sum(axis=0), member.T @ self.features[own]
        values = {
            "class_counts": counts.astype(np.int64),
            "class_sums": sums,
            "class_means": sums / np.maximum(counts, 1)[:, None],
        }[kind]
        return Message(0, f"client/{client}", "server", {"open": MessageField(values, kind, exact())})

    def right(self, result: AttackResult) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """How many clients are possible for each vector, and whether its owner is among them."""
        apart = np.linalg.norm(vectors(result)[:, None] - self.features, axis=2)
        truth = self.owner[apart.argmin(axis=1)]
        possible = result.artifacts["possible"].astype(bool)
        names = [int(str(name).partition("/")[2]) for name in result.artifacts["clients"]]
        return possible.sum(axis=1), np.asarray(possible[np.arange(len(truth)), [names.index(t) for t in truth]])


def attacked(messages: list[Message]) -> AttackResult:
    return GramFactorization().run(
        view(Transcript("captured", CLASSES, tuple(messages)), ThreatModel()), KNOWLEDGE
    )


def test_one_round_of_sums_says_nothing_of_owners_and_why() -> None:
    federation = Federation()
    result = attacked(federation.sent([0, 1, 2], 0))
    size, right = federation.right(result)
    assert right.all()
    assert (size == 3).all()
    assert set(result.artifacts["evidence"]) == {""}
    assert "nothing is seen of single clients, and every sum is over the same" in str(
        result.artifacts["unattributed"]
    )
    assert any("not attributable" in note for note in result.notes)


@pytest.mark.parametrize(("cohorts", "told"), [([[0, 1, 2], [0, 1]], 1), ([[0, 1, 2], [0, 1], [0, 2]], 3)])
def test_clients_that_come_and_go_are_told_from_those_that_stay(cohorts: list[list[int]], told: int) -> None:
    federation = Federation()
    sent = [each for number, cohort in enumerate(cohorts) for each in federation.sent(cohort, number)]
    result = attacked(sent)
    size, right = federation.right(result)
    assert right.all()
    apart = np.linalg.norm(vectors(result)[:, None] - federation.features, axis=2)
    owners = federation.owner[apart.argmin(axis=1)]
    assert len(set(owners[size == 1])) == told
    if told == 3:
        assert (size == 1).all()


def test_sums_over_the_same_clients_in_two_rounds_tell_nothing() -> None:
    federation = Federation()
    result = attacked(federation.sent([0, 1, 2], 0) + federation.sent([0, 1, 2], 1))
    assert (federation.right(result)[0] == 3).all()


def test_records_that_changed_between_rounds_are_given_to_nobody() -> None:
    """Both clients take part twice, and one has other records then: nothing says which one."""
    federation = Federation(clients=3, records=4)
    first, second = federation.sent([0, 1], 0), federation.sent([0, 2], 1)
    result = attacked([*first, second[0], replace(second[1], sender="client/1")])
    size = result.artifacts["possible"].sum(axis=1)
    assert (size == 2).all()


@pytest.mark.parametrize("kind", ["class_sums", "class_means"])
def test_open_sums_or_means_say_which_records_they_are_made_of(kind: str) -> None:
    federation = Federation()
    result = attacked([*federation.sent([0, 1, 2], 0), *(federation.open(i, kind) for i in range(3))])
    size, right = federation.right(result)
    assert right.all()
    assert (size == 1).all()
    assert all("sums" in str(each) for each in result.artifacts["evidence"])


def test_open_sums_of_other_records_say_nothing() -> None:
    federation, other = Federation(), Federation(seed=1)
    result = attacked([*federation.sent([0, 1, 2], 0), *(other.open(i, "class_sums") for i in range(3))])
    assert (federation.right(result)[0] == 3).all()
    assert "leaves several clients" in str(result.artifacts["unattributed"])


def test_counts_leave_the_clients_that_hold_the_class() -> None:
    federation = Federation()
    federation.labels = np.array([0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 0, 0, 0, 0, 3])
    result = attacked([*federation.sent([0, 1, 2], 0), *(federation.open(i, "class_counts") for i in range(3))])
    size, right = federation.right(result)
    labels = result.vectors[0].labels
    assert right.all()
    assert set(labels[size == 1]) == {2, 3}
    assert set(labels[size == 2]) == {0, 1}


def test_a_client_whose_own_message_is_seen_is_told_apart() -> None:
    federation = Federation(clients=2)
    seen = message(federation.features[:5], federation.labels[:5], sender="client/0", number=1)
    result = attacked([*federation.sent([0, 1], 0), seen])
    size, right = federation.right(result)
    assert right.all()
    assert (size == 1).all()
    assert set(result.artifacts["evidence"]) == {"own_message", "sender"}


def test_vectors_shuffled_among_clients_are_attributed_at_chance() -> None:
    """The control: with owners drawn at random, the same attribution is right as often as chance says."""
    rng, hits = np.random.default_rng(0), []
    for seed in range(4):
        federation = Federation(seed=seed)
        sent = [
            each for n, cohort in enumerate([[0, 1, 2], [0, 1], [0, 2]]) for each in federation.sent(cohort, n)
        ]
        result = attacked(sent)
        for _ in range(20):
            federation.owner = rng.permutation(federation.owner)
            hits.append(federation.right(result)[1].mean())
    assert np.mean(hits) == pytest.approx(1 / 3, abs=0.05)


def test_sums_of_unknown_clients_are_not_attributed() -> None:
    federation = Federation()
    seen = view(Transcript("captured", CLASSES, tuple(federation.sent([0, 1], 0))), ThreatModel())
    result = GramFactorization().run(replace(seen, cohorts={}), KNOWLEDGE)
    assert not result.artifacts["possible"].any()
    assert "the senders of the summed messages are not known" in str(result.artifacts["unattributed"])


def test_messages_of_single_clients_have_nothing_to_attribute() -> None:
    features, labels = sparse(8)
    result = attacked([message(features, labels)])
    assert "possible" not in result.artifacts
