"""Surrogates of private bodies: what they tell with a public seed, and what they refuse to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedassay.attacks.surrogate_bodies.attack import KEY, SurrogateBodies
from fedassay.attacks.surrogate_bodies.scores import ratios
from fedassay.attacks.surrogate_bodies.training import Recipe, Stack, to_tensor
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import MembershipGame, no_questions
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records, joined
from fedassay.exchange.view import ThreatModel, view
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.methods.fedlog.bodies import Shared, body_loss
from fedassay.methods.fedlog.method import FedLog
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.local_training import train
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.optimisation import Minibatches
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]


def held(task: MethodInput) -> tuple[MethodInput, MembershipGame, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Four clients of 12 and 8 records of two classes and one of a third; candidates are that one among 15."""
    everything = joined("all", [*task.clients, task.test])
    left = {label: list(np.flatnonzero(everything.labels == label)) for label in range(10)}
    clients, questions, truth = [], {}, []
    for place in range(4):
        classes = np.random.default_rng(place).permutation(10)[:3]
        rows = [left[label].pop() for label, count in zip(classes, (12, 8, 1), strict=True) for _ in range(count)]
        name = f"client/{place}"
        clients.append(everything.take(np.array(rows), name))
        asked = [rows[-1], *(left[int(classes[2])].pop() for _ in range(15))]
        questions[name] = everything.take(np.array(asked), name)
        truth += [True, *(False,) * 15]
    game = MembershipGame(questions, {}, None, no_questions().simulate, Seeds(0))
    return replace(task, clients=tuple(clients)), game, np.array(truth)


def attacked(task: MethodInput, method: FedLog, game: MembershipGame | None, **keys: Any) -> AttackResult:
    assert task.public is not None
    known = Knowledge(task.public, 10, None, True, Seeds(5), "cpu", SILENT, game=game)
    given = {"bodies": ("mlp", "linear"), "surrogates": 6} | keys
    return SurrogateBodies.model_validate(given).run(view(method.run(task).transcript, ThreatModel()), known)


def first(scores: np.ndarray[Any, Any]) -> list[int]:
    """The place of the true record of every client among its 16 candidates, from 0."""
    return [int((own[1:] >= own[0]).sum()) for own in scores.reshape(4, 16)]


@pytest.mark.long
def test_a_public_seed_tells_architecture_and_record(make_task: MakeTask) -> None:
    task, game, _ = held(make_task(clients=3, records=900))
    for place, body in enumerate(("mlp", "linear")):
        result = attacked(task, FedLog(bodies=(BodySpec(name=body),), public_seed=3), game, public_seed=3)  # type: ignore[arg-type]
        assert result.artifacts["architectures"].tolist() == [place] * 4
        assert sum(first(result.scores[KEY])) <= 8  # of 60; 30 by chance


def test_of_another_clients_sums_it_says_nothing(make_task: MakeTask) -> None:
    """The null: the records that are asked about are none of those that were trained on."""
    task, game, _ = held(make_task(clients=3, records=900))
    asked = {name: each.take(np.arange(1, 16)) for name, each in game.questions.items()}
    others = {name: joined(name, [each.take(np.array([0])), each]) for name, each in asked.items()}
    result = attacked(task, FedLog(public_seed=3), replace(game, questions=others), public_seed=3, bodies=("mlp",))
    values = result.scores[KEY].reshape(4, 16)
    # A record scores the same wherever it stands, and no stranger stands out by what it is asked beside.
    assert np.allclose(values[:, 0], values[:, 1])


def test_classes_that_are_not_there_are_not_scored(make_task: MakeTask) -> None:
    task, game, _ = held(make_task(clients=3, records=900))
    name = "client/0"
    absent = next(label for label in range(10) if label not in task.clients[0].labels)
    questions = {**game.questions, name: game.questions[name].relabelled(np.full(16, absent))}
    values = attacked(task, FedLog(rounds=1), replace(game, questions=questions)).scores[KEY].reshape(4, 16)
    assert np.isnan(values[0]).all()
    assert np.isfinite(values[1:]).all()


def test_a_stack_trains_as_each_body_alone() -> None:
    """Against the method's own training of one body, without the orders that the two draw differently."""
    rng, recipe = np.random.default_rng(0), Recipe(3, 8, 1e-2, 0.0)
    images, labels = rng.integers(0, 255, (2, 8, 8, 8, 1)).astype(np.uint8), rng.integers(0, 4, (2, 8))
    head = rng.normal(size=(4, 6)).astype(np.float32)

    def bodies() -> list[nn.Module]:
        return [nn.Sequential(build_body(BodySpec(name="mlp"), (8, 8, 1), 5, seed), nn.ReLU()) for seed in (1, 2)]

    stack = Stack(bodies(), "cpu")
    stack.train(
        to_tensor(images, "cpu"),
        torch.tensor(labels),
        torch.tensor(head),
        recipe,
        torch.Generator().manual_seed(0),
    )
    for place, body in enumerate(bodies()):
        loss = body_loss(Shared(head), clip=None, through=False, alpha=0, beta=0, device="cpu")
        # One minibatch holds all records, so that their order does not matter.
        given = (to_tensor(images[place], "cpu"), torch.tensor(labels[place]), loss)
        train(body, *given, Minibatches(3, 8, 1e-2), torch.Generator().manual_seed(1))
        with torch.inference_mode():
            expected = body(to_tensor(images[0], "cpu")).numpy()
        assert np.allclose(stack.features(images[0])[place], expected, atol=1e-4)


def test_the_ratio_is_that_of_two_gaussians() -> None:
    """Against the densities themselves, one record, and a covariance that surrogates show exactly."""
    rng = np.random.default_rng(1)
    middle, noise = rng.normal(size=(7, 3)), rng.normal(size=(40, 7, 3))
    under = middle + noise - noise.mean(axis=0)
    own, mean = rng.normal(size=(40, 3)), rng.normal(size=3)
    spread = np.cov((under - middle).reshape(-1, 3).T, bias=True) * 40 / 39
    spread += 0.1 * np.trace(spread) / 3 * np.eye(3)
    away, moved = middle - middle.mean(axis=0), mean - own.mean(axis=0)

    def exponent(rest: np.ndarray[Any, Any]) -> float:
        return float(-rest @ np.linalg.inv(spread) @ rest / 2)

    expected = [exponent(moved - each) - exponent(moved) for each in away]
    assert np.allclose(ratios(mean, own, under, 1), expected)


def test_what_it_cannot_read_it_refuses(make_task: MakeTask) -> None:
    task, game, _ = held(make_task(clients=3, records=900))
    with pytest.raises(NotRunError, match="no candidates"):
        attacked(task, FedLog(rounds=1), None)
    private = replace(task, privacy=make_task(epsilon=5.0).privacy)
    with pytest.raises(NothingToReadError, match="without noise"):
        attacked(private, FedLog(rounds=1), game)
    with pytest.raises(NothingToReadError):
        attacked(task, FedLog(rounds=2, variant="c"), game)
    some: Records | None = task.public
    assert some is not None
    few = replace(task, public=some.take(np.flatnonzero(some.labels != task.clients[0].labels[-1])))
    with pytest.raises(NotRunError, match="no image of class"):
        attacked(few, FedLog(rounds=1), game)


@pytest.mark.parametrize("name", ["resnet16", "mobilenet_v2"])
def test_a_body_that_mixes_records_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} given, whose batch normalisation"):
        SurrogateBodies.model_validate({"bodies": ["mlp", name]})


@pytest.mark.long
def test_membership_judges_it_though_raw_features_say_nothing_to_it(tmp_path: Path) -> None:
    """The audit's second control is raw features, which an attack on private bodies has nothing to read in."""
    plan = parse_plan(
        {
            "name": "surrogates",
            "data": {"name": "digits", "split": {"private": 0.06, "attacker": 0.4, "test": 0.2, "control": 0.2}},
            "clients": {"count": 3, "partition": "iid"},
            "backbone": {"name": "pixels"},
            "methods": [{"fedlog": {"rounds": 1, "public_seed": 0, "bodies": ["linear"]}}],
            "attacks": [{"surrogate_bodies": {"public_seed": 0, "surrogates": 2, "bodies": ["linear"]}}],
            "audits": [{"membership": {"trials": 0, "releases": 0}}],
        },
        "plan",
    )
    record = run_scenario(resolve(plan, tmp_path, "plan"), tmp_path, RunOptions(device="cpu", quiet=True))[1]
    assert not record.errors
    (found,) = record.cells[0].findings
    assert (found.attack, found.source) == ("surrogate_bodies", "messages")
    assert found.verdict != "not_run"
    assert found.metrics["auc"].value is not None
