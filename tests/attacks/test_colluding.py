"""Attacks on sums where some clients tell the server their parts: they run on what is left, all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.gradients.attack import INPUTS, GradientInversion
from fedassay.attacks.gram.attack import GramFactorization
from fedassay.attacks.membership.attack import Membership
from fedassay.attacks.message_algebra import MessageAlgebra
from fedassay.contracts.attack import Attack, AttackResult, Knowledge
from fedassay.contracts.membership import is_member, make_game, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedsgd.method import FedSGD
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]


def colluding(task: MethodInput, count: int) -> MethodInput:
    """The same task, in which the last clients collude."""
    honest = len(task.clients) - count
    parts = [
        client if place < honest else replace(client, name=f"colluder/{place - honest}")
        for place, client in enumerate(task.clients)
    ]
    return replace(task, clients=tuple(parts))


def known(task: MethodInput, count: int) -> Knowledge:
    """What the adversary has: nobody asks about the clients that are on its side."""

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        raise NotRunError("no shadow is asked for")

    victims = task.clients[: len(task.clients) - count]
    game = make_game(victims, task.test, task.public, simulate, Seeds(1), classes=10)
    return Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=game)


def attacked(attack: Attack, method: Method, task: MethodInput, count: int, **threat: str) -> AttackResult:
    outcome = method.run(colluding(task, count))
    return attack.run(
        visible(outcome, ThreatModel.model_validate({**threat, "colluding": count})), known(task, count)
    )


ATTACKS: dict[str, tuple[Attack, Method, int]] = {
    "gallery of FedCGS": (Gallery(), FedCGS(), 90),
    "gallery of GH-OFL": (Gallery(), GHOFL(), 90),
    "gallery of Fed3R through random features": (Gallery(), Fed3R(random_features=40), 90),
    "joint membership": (Membership(tests=("joint", "likelihood_ratio"), shadows=0), FedCGS(), 90),
    "algebra": (MessageAlgebra(), FedCGS(), 9),
    "second moments": (GramFactorization(), FedCGS(), 18),
    "gradients": (GradientInversion(), FedSGD(body={"name": "mlp", "hidden": 128}, batch=2), 30),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_all_but_one_are_as_good_as_seeing_that_one(name: str, make_task: MakeTask) -> None:
    """k = n - 1 of n under secure aggregation: what the attack finds per client of the one that is left."""
    attack, method, records = ATTACKS[name]
    task = make_task(records=records)
    left = attacked(attack, method, task, 2, view="aggregate")
    outcome = method.run(task)
    alone = replace(
        outcome,
        transcript=replace(
            outcome.transcript,
            messages=tuple(
                message
                for message in outcome.transcript.messages
                if not {message.sender, message.receiver} & {"client/1", "client/2"}
            ),
        ),
    )
    own = attack.run(visible(alone, ThreatModel()), known(task, 2))
    assert left.scores.keys() == own.scores.keys()
    for key, values in left.scores.items():
        np.testing.assert_array_equal(values, own.scores[key], key)
    assert [vectors.senders for vectors in left.vectors] == [vectors.senders for vectors in own.vectors]
    for one, two in zip(left.vectors, own.vectors, strict=True):
        np.testing.assert_array_equal(one.vectors, two.vectors)
    for first, second in zip(left.reconstructions, own.reconstructions, strict=True):
        np.testing.assert_array_equal(first.images, second.images)
    assert left.scores or left.vectors or left.reconstructions


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_gallery_names_whoever_is_left(count: int, make_task: MakeTask) -> None:
    task = make_task(clients=5, records=200)
    result = attacked(Gallery(), FedCGS(secure_aggregation="all"), task, count)
    game = known(task, count).game
    assert game is not None
    clients = {client.name: client for client in task.clients}
    truth = np.concatenate([is_member(each, clients[name]) for name, each in game.questions.items()])
    assert set(game.questions) == set(list(clients)[: 5 - count])
    assert result.artifacts["named"].astype(bool).tolist() == truth.tolist()
    assert result.artifacts["whole"].all()


def test_colluders_of_another_run_do_not_help(make_task: MakeTask) -> None:
    """The null control: parts of other records, in as many messages, leave no sum that explains itself."""
    task, other = make_task(clients=5, records=200), make_task(clients=5, records=200, seed=1)
    method = FedCGS(secure_aggregation="all")
    true, wrong = (method.run(each).transcript.messages for each in (task, other))
    honest = visible(method.run(colluding(task, 2)), ThreatModel()).from_clients()[0]
    whole = visible(method.run(task), ThreatModel()).from_clients()[0]
    assert honest.sender == whole.sender == AGGREGATE
    for parts, explained in ((true, True), (wrong, False)):
        own = [message for message in parts if message.sender in ("client/3", "client/4")]
        fields = {
            name: replace(item, sent=item.values - sum(each.fields[name].values for each in own))
            for name, item in whole.fields.items()
        }
        seen = visible(method.run(colluding(task, 2)), ThreatModel())
        left = tuple(replace(each, fields=fields) if each is honest else each for each in seen.messages)
        left = tuple(replace(each, fields=fields) if each.sender == AGGREGATE else each for each in left)
        result = Gallery().run(replace(seen, messages=left), known(task, 2))
        assert bool(result.artifacts["whole"].all()) is explained
        assert bool(result.artifacts["named"].any()) is explained
        assert np.isfinite(result.scores[KEY]).any()


def test_an_image_comes_back_from_what_is_left_of_a_sum_of_gradients(make_task: MakeTask) -> None:
    task = make_task(clients=4, records=40)
    method = FedSGD(body={"name": "mlp", "hidden": 128}, batch=2)
    result = attacked(GradientInversion(), method, task, 2, view="aggregate")
    made = next(item for item in result.reconstructions if item.source.name == INPUTS)
    victims, others = (
        {image.tobytes() for client in part for image in client.images}
        for part in (task.clients[:2], task.clients[2:])
    )
    found = [image.tobytes() for image in made.images[:, 0]]
    assert len(found) == 4
    assert all(image in victims and image not in others for image in found)
