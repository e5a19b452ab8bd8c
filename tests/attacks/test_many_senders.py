"""Attacks that ask about every sender go over the messages as often for many senders as for few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedassay.attacks.attribute_likelihood import of_messages
from fedassay.attacks.gallery.attack import Gallery
from fedassay.attacks.membership.attack import Membership
from fedassay.attacks.membership.signals import groups_of
from fedassay.attacks.surrogate_bodies.attack import seen
from fedassay.contracts.attack import Knowledge
from fedassay.contracts.membership import MembershipGame, make_game, visible
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.transcript import Message
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.mixtures.population import population_of
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
Work = Callable[[View, MembershipGame, MethodInput], object]


class Counted(tuple[Message, ...]):
    """Messages that count how often somebody goes over them."""

    taken = 0

    def __iter__(self) -> Iterator[Message]:
        type(self).taken += 1
        return super().__iter__()


def game_of(task: MethodInput) -> MembershipGame:
    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        raise NotRunError("no shadow is asked for")

    return make_game(task.clients, task.test, task.public, simulate, Seeds(1), classes=10)


def known(game: MembershipGame, task: MethodInput) -> Knowledge:
    return Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=game)


def gallery(view: View, game: MembershipGame, task: MethodInput) -> object:
    return Gallery(candidates="asked", decoys=0).run(view, known(game, task))


def membership(view: View, game: MembershipGame, task: MethodInput) -> object:
    return Membership(tests=("likelihood_ratio",)).run(view, known(game, task))


def attributes(view: View, game: MembershipGame, task: MethodInput) -> object:
    assert task.public is not None
    people = population_of(task.public.features.astype(np.float64), task.public.labels, 10)
    groups = groups_of("messages", view, list(game.questions))
    return [of_messages(view, group, game.questions[group.sender], game, people) for group in groups]


def surrogates(view: View, game: MembershipGame, task: MethodInput) -> object:
    return [seen(view, name) for name in game.questions]


@pytest.mark.parametrize("work", [gallery, membership, attributes, surrogates])
def test_messages_are_grouped_by_sender_once(
    work: Work, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for clients in (3, 12):
        task = make_task(clients=clients, records=120)
        game, view = game_of(task), visible(FedCGS().run(task), ThreatModel())
        counted = replace(view, messages=Counted(view.messages))
        monkeypatch.setattr(Counted, "taken", 0)
        work(counted, game, task)
        taken.append(Counted.taken)
    assert 0 < taken[1] == taken[0]
