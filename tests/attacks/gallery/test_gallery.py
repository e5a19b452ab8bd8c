"""The gallery attack on what methods send: who is in is solved for, and known to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery.attack import KEY, Gallery, blocks_of, features_of
from fedassay.attacks.gallery.certificate import named
from fedassay.attacks.gallery.solving import exact_weights, posterior_weights
from fedassay.attacks.gallery.system import system_of
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import MembershipGame, is_member, make_game, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.linear import LinearBlock
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.closed_forms.afl import AFL
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.fedcof import FedCOF
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.methods.closed_forms.one_shot_ridge import OneShotRidge
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.methods.rivals.raw_features import RawFeatures
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
Matrix = NDArray[np.float64]


def attacked(
    method: Method, task: MethodInput, threat: ThreatModel | None = None, attack: Gallery | None = None
) -> tuple[AttackResult, NDArray[np.bool_]]:
    """The attack on a run of a method, and the truth of every candidate."""
    game = game_of(task)
    seen = visible(method.run(task), threat or ThreatModel())
    result = (attack or Gallery()).run(seen, knowledge(task, game))
    clients = {client.name: client for client in task.clients}
    return result, np.concatenate([is_member(each, clients[name]) for name, each in game.questions.items()])


def game_of(task: MethodInput) -> MembershipGame:
    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        raise NotRunError("no shadow is asked for")

    return make_game(task.clients, task.test, task.public, simulate, Seeds(1), classes=10)


def knowledge(task: MethodInput, game: MembershipGame | None) -> Knowledge:
    return Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=game)


METHODS: dict[str, Method] = {
    "fedcgs": FedCGS(),
    "fedcgs, summed": FedCGS(secure_aggregation="all"),
    "fedcgs, float32": FedCGS(transport="float32"),
    "afl": AFL(transport="float64"),
    "fed3r": Fed3R(),
    "fed3r, random features": Fed3R(random_features=40),
    "gh_ofl": GHOFL(),
    "one_shot_ridge": OneShotRidge(secure_aggregation="all"),
    "fedncm": FedNCM(),
    "fedcof": FedCOF(),
    "fedpft, diag": FedPFT(components=1, covariance="diag", transport="float32"),
    "fedpft, full": FedPFT(components=1, covariance="full", transport="float32"),
    "fedpft, spherical": FedPFT(components=1, covariance="spherical", transport="float32"),
}


@pytest.mark.parametrize("name", METHODS)
def test_members_are_named_exactly(name: str, make_task: MakeTask) -> None:
    result, truth = attacked(METHODS[name], make_task())
    scores = result.scores[KEY]
    print(name, result.notes)
    assert np.array_equal(scores > 0.5, truth)
    assert np.array_equal(result.artifacts["named"] == 1, truth)
    assert result.artifacts["whole"].all()


@pytest.mark.parametrize("name", ["fedcgs", "fedcgs, summed", "fedncm", "fedpft, diag", "fedpft, full", "gh_ofl", "afl", "fed3r"])
def test_noised_messages_are_solved_without_a_certificate(name: str, make_task: MakeTask) -> None:
    result, truth = attacked(METHODS[name], make_task(epsilon=8.0))
    assert np.isfinite(result.scores[KEY]).all()
    assert not result.artifacts["whole"].any()
