"""A server that chooses the random features of Fed3R-RF so that no two records are alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.audits.stats.roc import auc
from fedassay.contracts.attack import Knowledge
from fedassay.contracts.membership import is_member, make_game, no_questions, visible
from fedassay.contracts.method import MethodInput
from fedassay.exchange.public_map import fourier_features, separating_bandwidth
from fedassay.exchange.view import ThreatModel
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.support.errors import PlanError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]


def told(task: MethodInput, *, malicious: bool, asked: int = 40) -> float:
    """AUC of a gallery that holds some of the members, of all whose sum is sent, and as many strangers."""
    method = Fed3R(random_features=400, secure_aggregation="all")
    outcome = method.run(replace(task, adversary=task.public if malicious else None))
    few = [client.take(np.arange(asked)) for client in task.clients]
    game = make_game(few, task.test, task.public, no_questions().simulate, Seeds(1), classes=10)
    whole = {client.name: np.bincount(client.labels, minlength=10) for client in task.clients}
    known = Knowledge(
        task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=replace(game, sizes=whole)
    )
    scores = Gallery(candidates="asked").run(visible(outcome, ThreatModel()), known).scores[KEY]
    clients = {client.name: client for client in task.clients}
    truth = np.concatenate([is_member(each, clients[name]) for name, each in game.questions.items()])
    return float(auc(scores[~truth], scores[truth]).value)


def test_a_gallery_that_lacks_most_members_tells_those_that_it_has(make_task: MakeTask) -> None:
    """600 members of whom 80 are in the gallery: an honest map leaves them hidden among the others."""
    task = make_task(clients=2, records=600)
    assert told(task, malicious=True) > 0.9
    assert told(task, malicious=False) < 0.75


def test_a_private_sum_is_told_no_better_than_its_noise_allows(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=600, epsilon=1.0)
    assert told(task, malicious=True) < 0.7


def test_no_two_records_are_alike_under_the_map(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=300)
    features = task.clients[0].features
    assert task.public is not None
    width = separating_bandwidth(task.public.features)
    chosen = fourier_features(features.shape[1], 2000, width, np.random.default_rng(0))(features)
    kernel = chosen @ chosen.T
    apart = np.abs(kernel[~np.eye(len(kernel), dtype=bool)])
    # Of 2,000 random features an inner product that is 0 has a deviation of 1 / sqrt(4,000) = .016.
    assert np.quantile(apart, 0.99) < 0.06
    assert np.diag(kernel) == pytest.approx(1, abs=0.1)


def test_a_bandwidth_of_records_that_are_all_equal() -> None:
    assert separating_bandwidth(np.ones((5, 3), np.float32)) == 1.0


def test_without_random_features_the_server_has_no_choice(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=30)
    with pytest.raises(PlanError, match="leaves the server no choice"):
        Fed3R().run(replace(task, adversary=task.public))
