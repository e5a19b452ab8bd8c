"""Membership of persons: whom a game asks about, and what a claim on records allows of a person."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedassay.audits.membership.controls import non_members, pooled_blocks
from fedassay.audits.membership.separation import allowed_by
from fedassay.audits.membership.trials import person_metrics, trials_of, worst_off
from fedassay.audits.memorization.scores import deal, match_classes
from fedassay.contracts.membership import MembershipGame, half_of_each, is_member, make_game
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.view import ThreatModel, View
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints

MakeTask = Callable[..., MethodInput]


def of_persons(records: Records, first: int, each: int = 4) -> Records:
    """The records as those of persons of four, whatever their labels."""
    return replace(records, groups=first + np.arange(len(records)) // each)


def _nothing(clients: Sequence[Records], seeds: Seeds) -> View:
    del clients, seeds
    return View((), 10, ThreatModel())


def _game(task: MethodInput) -> tuple[MembershipGame, list[Records]]:
    clients = [of_persons(client, 1000 * place) for place, client in enumerate(task.clients)]
    return make_game(clients, of_persons(task.test, 9000), task.public, _nothing, Seeds(1), classes=10), clients


def test_persons_are_asked_about_with_all_of_their_records(make_task: MakeTask) -> None:
    game, clients = _game(make_task(clients=3, records=120))
    seen: set[int] = set()
    for client in clients:
        asked = game.questions[client.name]
        assert asked.groups is not None
        assert client.groups is not None
        truth = is_member(asked, client)
        persons = np.unique(asked.groups)
        whole = [len(set(truth[asked.groups == person])) == 1 for person in persons]
        assert all(whole)
        inside, outside = (set(asked.groups[part].tolist()) for part in (truth, ~truth))
        assert len(inside) == len(outside) > 0
        assert not seen & outside
        seen |= outside
        assert all((client.groups == person).sum() == (asked.groups == person).sum() for person in inside)
    blocks = pooled_blocks(game)[1]
    trials = trials_of(game)
    assert trials.person
    assert trials.most == 4
    assert all(len(set(blocks[trials.of == trial])) == 1 for trial in range(trials.of.max() + 1))


def test_shadows_and_halves_hold_persons_whole(make_task: MakeTask) -> None:
    game, clients = _game(make_task(clients=2, records=80))
    for shadow in game.shadows("online", 4, lambda done, total: None):
        for name, included in shadow.included.items():
            groups = game.questions[name].groups
            assert groups is not None
            assert not set(groups[included].tolist()) & set(groups[~included].tolist())
    rng = np.random.default_rng(0)
    halves = []
    for client in clients:
        rows = half_of_each(client.labels, rng, client.groups)
        assert client.groups is not None
        rest = np.setdiff1d(np.arange(len(client)), rows)
        assert not set(client.groups[rows].tolist()) & set(client.groups[rest].tolist())
        halves.append(client.take(rows))
    candidates, blocks = pooled_blocks(game)
    members = np.concatenate([is_member(game.questions[client.name], client) for client in clients])
    asked = non_members(candidates, halves, members, blocks, np.ones(len(blocks), np.bool_), rng)
    trials = trials_of(game)
    chosen = trials.any(asked)
    assert np.array_equal(chosen[trials.of], asked)
    assert chosen[trials.any(members)].sum() == chosen[~trials.any(members)].sum() > 0
    assert not candidates.take(np.flatnonzero(asked)).among(*halves).any()


def test_a_stranger_of_whom_a_client_holds_a_record_is_not_asked_about(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=60)
    client = of_persons(task.clients[0], 0)
    game = make_game([client], of_persons(task.test, 0), None, _nothing, Seeds(1), classes=10)
    asked = game.questions[client.name]
    assert asked.groups is not None
    truth = is_member(asked, client)
    assert not set(asked.groups[~truth].tolist()) & set(np.unique(client.groups).tolist())  # type: ignore[arg-type]


def test_a_claim_on_records_allows_more_of_a_person() -> None:
    claim = PrivacyClaim(epsilon=0.5, delta=1e-6, adjacency="replace_one", source="somebody says so")
    ten = allowed_by(claim, replaced=True, records=10)
    assert ten.epsilon == pytest.approx(5.0)
    assert ten.delta == pytest.approx(1e-6 * math.expm1(5) / math.expm1(0.5))
    assert "person of up to 10 records" in ten.words
    assert allowed_by(claim, replaced=True).epsilon == 0.5
    both = allowed_by(claim.model_copy(update={"adjacency": "add_remove"}), replaced=True, records=10)
    assert both.epsilon == pytest.approx(10.0)
    whole = allowed_by(claim.model_copy(update={"unit": "person"}), replaced=True, records=10)
    assert whole.epsilon == 0.5


def test_those_who_are_worst_off() -> None:
    told = worst_off(np.array([3.0, 2, 1, 0, np.nan]), np.array([True, True, False, False, True]))
    assert told.value == 1.0
    assert told.reason.endswith("with probability 0.17")
    rng = np.random.default_rng(0)
    truth = np.arange(40) % 2 == 0
    drawn = [worst_off(rng.random(40), truth).value or 0.0 for _ in range(400)]
    # By guessing one in 21, to within four standard errors.
    assert np.mean(drawn) == pytest.approx(1 / 21, abs=4 * np.std(drawn) / 20)


def test_figures_of_records_and_clients_stand_beside_those_of_persons(make_task: MakeTask) -> None:
    game, clients = _game(make_task(clients=4, records=160))
    truth = np.concatenate([is_member(game.questions[client.name], client) for client in clients])
    senders = np.concatenate([[name] * len(each) for name, each in game.questions.items()])
    rng = np.random.default_rng(0)
    found = person_metrics(truth + 0.1 * rng.standard_normal(len(truth)), truth, senders, trials_of(game), rng)
    assert {name: metric.value for name, metric in found.items()} == {
        "auc_records": 1.0,
        "auc_clients": 1.0,
        "persons_above_all": 1.0,
    }
    assert found["auc_records"].n == trials_of(game).of.max() + 1
    assert found["auc_clients"].n == 4


def test_memorization_compares_one_record_of_a_person(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=120)
    owners = [of_persons(client, 1000 * place) for place, client in enumerate(task.clients)]
    unseen = of_persons(task.test, 9000)
    rng = np.random.default_rng(0)
    dealt = deal(owners, unseen, rng)
    persons = np.concatenate([_groups(each) for each in dealt])
    assert len(persons) == len(set(persons.tolist())) > 0
    for owner, others in zip(owners, dealt, strict=True):
        ours, theirs = match_classes(owner, others, rng)
        assert len(ours) == len(theirs) > 0
        assert len(set(_groups(owner)[ours].tolist())) == len(ours)
        assert np.array_equal(np.sort(owner.labels[ours]), np.sort(others.labels[theirs]))


def _groups(records: Records) -> Ints:
    assert records.groups is not None
    return records.groups
