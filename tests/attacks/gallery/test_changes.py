"""Who joined or left between two messages of one sender, and who is in each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedassay.attacks.gallery.attack import Gallery
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import MembershipGame, no_questions
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records, joined
from fedassay.exchange.view import ThreatModel, View, view
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools

MakeTask = Callable[..., MethodInput]

FIRST, LEFT, NEW = 100, 4, 6
"""Records of the first round, those that leave, and those that join."""


def rounds(method: Method, task: MethodInput, records: Sequence[Records]) -> View:
    """One client's messages of a method, run anew on other records in every round."""
    messages = []
    for number, held in enumerate(records):
        outcome = method.run(replace(task, clients=(held,), seeds=Seeds(number)))
        messages += [replace(message, round=number) for message in outcome.transcript.messages]
    return view(replace(outcome.transcript, messages=tuple(messages)), ThreatModel())


def asked(task: MethodInput, seen: View, gallery: Records, attack: Gallery | None = None) -> AttackResult:
    """The attack on captured messages: the same candidates for every sender."""
    senders = dict.fromkeys(message.sender for message in seen.from_clients())
    game: MembershipGame = replace(
        no_questions(), questions=dict.fromkeys(senders, gallery), sizes={}, gallery=gallery
    )
    known = Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=game)
    return (attack or Gallery()).run(seen, known)


def those(gallery: Records, held: Records) -> Bools:
    return gallery.among(held)


def two_rounds(task: MethodInput) -> tuple[Records, Records, Records, Records]:
    """The first round's records, the second's, those that left, and those that joined."""
    own, fresh = task.clients[0], task.test
    first, left = own.take(np.arange(FIRST)), own.take(np.arange(LEFT))
    new = fresh.take(np.arange(NEW))
    return first, joined(own.name, [own.take(np.arange(LEFT, FIRST)), new]), left, new


METHODS: dict[str, Method] = {
    "fedcgs": FedCGS(),
    "fedcgs, summed": FedCGS(secure_aggregation="all"),
    "fedcgs, float32": FedCGS(transport="float32"),
    "fedncm": FedNCM(),
    "fedpft, diag": FedPFT(components=1, covariance="diag", transport="float32"),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_round_and_what_changed_between_them_is_named(name: str, make_task: MakeTask) -> None:
    task = make_task(clients=1, records=FIRST)
    first, second, left, new = two_rounds(task)
    gallery = joined("gallery", [task.test, task.clients[0]])
    result = asked(task, rounds(METHODS[name], task, (first, second)), gallery)
    assert result.artifacts["whole"].all()
    assert np.array_equal(result.artifacts["named"] == 1, those(gallery, joined("ever", [first, new])))
    changes = result.artifacts["changes"]
    assert changes.shape == (len(gallery), 1)
    assert np.array_equal(changes[:, 0] == 1, those(gallery, new))
    assert np.array_equal(changes[:, 0] == -1, those(gallery, left))


@pytest.mark.parametrize("name", ["fedcgs", "fedcgs, summed", "fedncm"])
def test_a_gallery_without_those_who_stayed_names_who_came_and_went(name: str, make_task: MakeTask) -> None:
    """What stays falls out of a difference: neither message alone is explained."""
    task = make_task(clients=1, records=FIRST)
    first, second, left, new = two_rounds(task)
    gallery = joined("gallery", [task.test, left])
    result = asked(task, rounds(METHODS[name], task, (first, second)), gallery)
    assert np.array_equal(result.artifacts["named"] == 1, those(gallery, joined("changed", [left, new])))
    assert np.array_equal(result.artifacts["changes"][:, 0] == -1, those(gallery, left))
    alone = asked(task, rounds(METHODS[name], task, (second,)), gallery)
    assert not alone.artifacts["whole"].any()
    assert not alone.artifacts["named"].any()
    assert alone.artifacts["changes"].shape == (len(gallery), 0)


def test_strangers_that_came_and_went_name_nobody(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=FIRST)
    first, second, _, new = two_rounds(task)
    gallery = task.test.without(new)
    result = asked(task, rounds(FedCGS(), task, (first, second)), gallery)
    assert not result.artifacts["whole"].any()
    assert not result.artifacts["named"].any()
    assert not result.artifacts["changes"].any()


def test_the_same_records_in_two_rounds_are_one_question(make_task: MakeTask) -> None:
    """Two noised messages of the same records are solved together, and tell more than one of them."""
    task = make_task(clients=1, records=FIRST, epsilon=20.0)
    gallery = joined("gallery", [task.test, task.clients[0]])
    truth = those(gallery, task.clients[0])

    def area(result: AttackResult) -> float:
        scores = result.scores["messages/gallery"]
        return float((scores[truth][:, None] > scores[~truth]).mean())

    same = (task.clients[0],) * 4
    once, often = (asked(task, rounds(FedCGS(), task, same[:count]), gallery) for count in (1, 4))
    assert often.artifacts["changes"].shape == (len(gallery), 0)
    assert area(often) > area(once) + 0.02


def test_noise_hides_who_came_and_went(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=FIRST, epsilon=1.0)
    first, second, left, _ = two_rounds(task)
    result = asked(task, rounds(FedCGS(), task, (first, second)), joined("gallery", [task.test, left]))
    assert not result.artifacts["named"].any()
