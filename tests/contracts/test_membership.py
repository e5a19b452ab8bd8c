"""Membership games: balanced questions without the truth in them, and shadows that hold what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedassay.contracts.membership import HeadScores, MembershipGame, Shadow, is_member, make_game, visible
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records, joined
from fedassay.exchange.models import SURE, label_logits
from fedassay.exchange.transcript import SERVER
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.baselines.fedavg import FedAvg
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.support.errors import DataError, NotRunError
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]


class Kept:
    """A method that only remembers what it was run on."""

    def __init__(self) -> None:
        self.runs: list[Sequence[Records]] = []

    def __call__(self, clients: Sequence[Records], seeds: Seeds) -> View:
        del seeds
        self.runs.append(clients)
        return View((), 10, ThreatModel())


def game_of(
    task: MethodInput, method: Callable[[Sequence[Records], Seeds], View], **kwargs: int
) -> MembershipGame:
    return make_game(task.clients, task.test, task.public, method, Seeds(1), classes=10, **kwargs)


def shadows(game: MembershipGame, kind: str, count: int) -> tuple[Shadow, ...]:
    return game.shadows(kind, count, lambda done, total: None)  # type: ignore[arg-type]


def test_half_of_the_candidates_of_each_label_are_members(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=120)
    game = game_of(task, Kept())
    assert set(game.questions) == {client.name for client in task.clients}
    seen: set[bytes] = set()
    for client in task.clients:
        asked = game.questions[client.name]
        truth = is_member(asked, client)
        for label in range(10):
            rows = asked.labels == label
            assert truth[rows].sum() * 2 == rows.sum()
        strangers = {image.tobytes() for image in asked.images[~truth]}
        assert not strangers & {image.tobytes() for each in task.clients for image in each.images}
        assert not strangers & seen
        seen |= strangers


def test_the_order_of_candidates_says_nothing(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=250)
    asked = game_of(task, Kept()).questions["client/0"]
    truth = is_member(asked, task.clients[0])
    place = np.arange(len(asked)) / len(asked)
    # Means of two uniform samples of 200 and more differ by less than 0.1 but once in a thousand draws.
    assert abs(place[truth].mean() - place[~truth].mean()) < 0.1
    assert not hasattr(game_of(task, Kept()), "truth")


def test_a_limit_bounds_the_members_that_are_asked_about(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=200)
    game = game_of(task, Kept(), limit=30)
    for client in task.clients:
        members = is_member(game.questions[client.name], client).sum()
        assert 10 <= members <= 40


@pytest.mark.parametrize("limit", [30, 1000])
def test_online_shadows_hold_half_of_the_candidates_and_as_many_records(make_task: MakeTask, limit: int) -> None:
    task, kept = make_task(clients=3, records=120), Kept()
    game = game_of(task, kept, limit=limit)
    made = shadows(game, "online", 6)
    assert len(kept.runs) == 6
    for run, shadow in zip(kept.runs, made, strict=True):
        for held, client in zip(run, task.clients, strict=True):
            asked = game.questions[client.name]
            included = shadow.included[client.name]
            np.testing.assert_array_equal(is_member(asked, held), included)
            assert abs(included.sum() - len(asked) / 2) <= 5
            assert abs(len(held) - len(client)) <= 10
            np.testing.assert_allclose(
                np.bincount(held.labels, minlength=10), np.bincount(client.labels, minlength=10), atol=1
            )
    for client in task.clients:
        share = np.mean([shadow.included[client.name] for shadow in made], axis=0)
        assert (share == 0.5).all()
    assert len({shadow.included["client/0"].tobytes() for shadow in made}) == 6


def test_offline_shadows_hold_no_candidate(make_task: MakeTask) -> None:
    task, kept = make_task(clients=3, records=90), Kept()
    game = game_of(task, kept)
    shadows(game, "offline", 3)
    everything = joined("candidates", list(game.questions.values()))
    for run in kept.runs:
        for held in run:
            assert len(held)
            assert not is_member(everything, held).any()


def test_shadows_are_made_once_and_are_the_same_for_the_same_seed(make_task: MakeTask) -> None:
    task, first, second = make_task(clients=2, records=60), Kept(), Kept()
    game = game_of(task, first)
    shadows(game, "online", 2)
    made = shadows(game, "online", 3)
    assert len(first.runs) == 3
    again = shadows(game_of(task, second), "online", 3)
    for one, other in zip(made, again, strict=True):
        np.testing.assert_array_equal(one.included["client/1"], other.included["client/1"])


def test_a_control_makes_few_shadows_unless_many_are_asked_for(make_task: MakeTask) -> None:
    game = replace(game_of(make_task(clients=2, records=60), Kept()), most=4)
    made = [len(game.shadows("online", count, lambda done, total: None)) for count in (16, 3, 32)]
    assert made == [4, 3, 32]


def test_what_a_game_lacks_is_said(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=60)
    alone = make_game(task.clients, task.test, None, Kept(), Seeds(1), classes=10)
    with pytest.raises(NotRunError, match="no records of its own"):
        shadows(alone, "offline", 2)
    nobody = task.test.take(np.zeros(0, np.int64))
    with pytest.raises(NotRunError, match="there are no strangers"):
        make_game(task.clients, nobody, None, Kept(), Seeds(1), classes=10)

    def failing(clients: Sequence[Records], seeds: Seeds) -> View:
        raise DataError("useless statistics")

    with pytest.raises(NotRunError, match="failed 5 times: useless statistics"):
        shadows(game_of(task, failing), "online", 1)


def test_a_record_is_known_by_image_and_label(make_task: MakeTask) -> None:
    client = make_task(clients=1, records=30).clients[0]
    wrong = Records("x", client.images, (client.labels + 1) % 10, lambda _: client.features)
    assert is_member(client, client).all()
    assert not is_member(wrong, client).any()


@pytest.mark.parametrize(
    ("threat", "expected"),
    [
        (
            ThreatModel(),
            {("client/0", 0), ("client/1", 0), ("client/0", 1), ("client/1", 1), (SERVER, 0), (SERVER, 1)},
        ),
        (ThreatModel(rounds="last"), {("client/0", 1), ("client/1", 1), (SERVER, 1)}),
        (ThreatModel(view="broadcast"), {(SERVER, 0), (SERVER, 1)}),
        (ThreatModel(view="aggregate"), {(SERVER, 0), (SERVER, 1)}),
    ],
)
def test_the_threat_model_decides_which_networks_are_seen(
    make_task: MakeTask, threat: ThreatModel, expected: set[tuple[str, int]]
) -> None:
    task = make_task(clients=2, records=60)
    outcome = FedAvg(rounds=2, local_epochs=1).run(task)
    assert set(visible(outcome, threat).models) == expected


def test_sent_networks_compute_what_the_method_predicts_with(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=60)
    outcome = FedAvg(local_epochs=3).run(task)
    models = visible(outcome, ThreatModel()).models
    assert outcome.model is not None
    guessed = models[SERVER, 0].scores(task.test).argmax(axis=1)
    np.testing.assert_array_equal(guessed, outcome.model.predict(task.test))
    own = models["client/0", 0].scores(task.test)
    assert np.abs(own - models["client/1", 0].scores(task.test)).max() > 1e-3


def test_label_logits_agree_with_softmax(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=60)
    seen = visible(FedCGS().run(task), ThreatModel())
    head = seen.models[SERVER, 0]
    assert isinstance(head, HeadScores)
    scores = head.scores(task.test)
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    own = chances[np.arange(len(scores)), task.test.labels]
    inside = (own > 1e-12) & (own < 1 - 1e-12)
    found = label_logits(head, task.test)
    np.testing.assert_allclose(found[inside], np.log(own / (1 - own))[inside], rtol=1e-4, atol=1e-4)
    assert np.abs(found).max() <= SURE


def test_a_class_without_a_row_is_never_sure(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=60, labels_of=[0, 1, 2])
    head = visible(FedCGS().run(task), ThreatModel()).models[SERVER, 0]
    logits = label_logits(head, task.test)
    assert (logits[task.test.labels > 2] == -SURE).all()
    assert np.isfinite(logits).all()
