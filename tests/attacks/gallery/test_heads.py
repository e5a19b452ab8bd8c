"""The head that a server sends out, and nothing else, names who is in it; other people's heads name nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery.answers import kept_of
from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.gallery.heads import inside_of
from fedassay.attacks.gallery.published import CERTIFIED, answer_of_head, distance
from fedassay.audits.stats.roc import auc
from fedassay.contracts.attack import Knowledge
from fedassay.contracts.membership import is_member, make_game, visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.view import ThreatModel, View
from fedassay.heads.estimating import Estimator
from fedassay.heads.estimators import GaussianEstimator, RidgeEstimator, SoftmaxEstimator
from fedassay.heads.gaussian import Statistics, gaussian_head, moments
from fedassay.heads.linear import LinearHead
from fedassay.heads.penalised import PenalisedEstimator
from fedassay.heads.ridge import ridge_weights, without_bias
from fedassay.methods.baselines.average import Average
from fedassay.methods.baselines.centralized import Centralized
from fedassay.methods.baselines.ensemble import EnsembleOfClients
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.closed_forms.afl import AFL
from fedassay.methods.closed_forms.one_shot_ridge import OneShotRidge
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.methods.shared.heads import HeadTraining
from fedassay.privacy.symmetric import symmetric_noise
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]
Ints = NDArray[np.int64]

WIDTH, CLASSES, MEMBERS, CANDIDATES = 48, 6, 90, 180

ESTIMATORS: dict[str, Estimator] = {
    "softmax": SoftmaxEstimator(),
    "ridge": RidgeEstimator(0.01),
    "gaussian, total": GaussianEstimator("total", 0.1),
    "gaussian, within": GaussianEstimator("within", 0.1),
}


def population(seed: int, size: int) -> tuple[Matrix, Ints]:
    """Features that are not negative, of classes that overlap."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(CLASSES), rng.integers(0, CLASSES, size - CLASSES)])
    # The classes are the same whatever the seed: other seeds are other people.
    centres = np.random.default_rng(7).normal(size=(CLASSES, WIDTH)) * 0.5
    return np.maximum(rng.normal(size=(size, WIDTH)) + centres[labels], 0.0), labels


def sent(head: LinearHead) -> LinearHead:
    """As it arrives, in float32."""
    return LinearHead(head.classes, head.weights.astype(np.float32), head.bias.astype(np.float32))


def as_records(features: Matrix, labels: Ints) -> Records:
    images = np.frombuffer(features.astype(np.float64).tobytes(), np.uint8).reshape(len(features), 8, WIDTH, 1)
    return Records(
        "candidates",
        images,
        labels,
        lambda rows: np.frombuffer(rows.tobytes()).reshape(len(rows), WIDTH).astype(np.float32),
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_members_come_before_strangers(name: str) -> None:
    features, labels = population(1, CANDIDATES)
    head = sent(ESTIMATORS[name].fit(features[:MEMBERS], labels[:MEMBERS]))
    found = inside_of(ESTIMATORS[name], head, features, labels, MEMBERS, np.random.default_rng(0))
    inside = np.arange(CANDIDATES) < MEMBERS
    best = np.argsort(-found.odds)[:MEMBERS]
    assert inside[best].mean() >= (0.95 if name == "softmax" else 1.0)


@pytest.mark.parametrize("name", ["ridge", "gaussian, total", "gaussian, within"])
@pytest.mark.parametrize("guess", [60, 90, 130])
def test_how_many_members_there_are_need_not_be_known(name: str, guess: int) -> None:
    features, labels = population(2, CANDIDATES)
    head = sent(ESTIMATORS[name].fit(features[:MEMBERS], labels[:MEMBERS]))
    found = inside_of(ESTIMATORS[name], head, features, labels, guess, np.random.default_rng(0))
    assert ((found.odds > 0) == (np.arange(CANDIDATES) < MEMBERS)).all()


@pytest.mark.parametrize("name", ["ridge", "gaussian, total"])
def test_the_list_that_made_a_head_is_certified_and_no_other(name: str) -> None:
    estimator = ESTIMATORS[name]
    features, labels = population(3, CANDIDATES)
    head, rng = sent(estimator.fit(features[:MEMBERS], labels[:MEMBERS])), np.random.default_rng(0)
    right = distance(estimator, head, features[:MEMBERS], labels[:MEMBERS], rng)
    assert right is not None
    assert right < CERTIFIED
    for wrong in (1, 5):
        rows = np.concatenate([np.arange(wrong, MEMBERS), MEMBERS + np.arange(wrong)])
        off = distance(estimator, head, features[rows], labels[rows], rng)
        assert off is not None
        assert off > CERTIFIED


@pytest.mark.parametrize("name", ["softmax", "ridge", "gaussian, total"])
def test_heads_of_other_people_certify_and_name_nobody(name: str) -> None:
    estimator = ESTIMATORS[name]
    features, labels = population(4, CANDIDATES)
    kept = kept_of(as_records(features, labels), CANDIDATES // 2)
    for seed in range(5):
        head = sent(estimator.fit(*population(100 + seed, MEMBERS)))
        told = answer_of_head(
            estimator, head, kept.records.features.astype(np.float64), kept, 45, np.random.default_rng(0)
        )
        assert not told.whole
        assert not told.names.any()


@pytest.mark.parametrize("name", ["ridge", "gaussian, total"])
def test_members_are_named_under_a_certificate(name: str) -> None:
    estimator = ESTIMATORS[name]
    features, labels = population(5, CANDIDATES)
    rows = as_records(features, labels)
    kept = kept_of(rows, CANDIDATES)
    features = kept.records.features.astype(np.float64)
    head = sent(estimator.fit(features[:MEMBERS], labels[:MEMBERS]))
    told = answer_of_head(estimator, head, features, kept, MEMBERS, np.random.default_rng(0))
    assert told.whole
    assert (told.names == (np.arange(CANDIDATES) < MEMBERS)).all()


@pytest.mark.long
def test_candidates_that_hardly_move_a_head_are_not_named_under_its_certificate() -> None:
    """One in a hundred names may be wrong where a certificate is for the list as a whole."""
    estimator, certified, named, wrong = PenalisedEstimator("softmax", 1.0), 0, 0, 0
    truth = np.arange(CANDIDATES) < MEMBERS
    for seed in range(20):
        features, labels = population(40 + seed, CANDIDATES)
        kept = kept_of(as_records(5 * features, labels), CANDIDATES)
        inputs = kept.records.features.astype(np.float64)
        head = sent(estimator.fit(inputs[:MEMBERS], labels[:MEMBERS]))
        told = answer_of_head(estimator, head, inputs, kept, MEMBERS, np.random.default_rng(0))
        certified += told.whole
        named, wrong = named + int(told.names.sum()), wrong + int((told.names & ~truth).sum())
    assert certified
    assert wrong <= 0.01 * named


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda features, labels: (features, np.roll(labels, 1)), id="labels of others"),
        pytest.param(
            lambda features, labels: (features[:, ::-1].copy(), labels), id="features of another backbone"
        ),
    ],
)
def test_candidates_that_are_shown_wrongly_are_not_told(
    broken: Callable[[Matrix, Ints], tuple[Matrix, Ints]],
) -> None:
    features, labels = population(6, CANDIDATES)
    head = sent(RidgeEstimator(0.01).fit(features[:MEMBERS], labels[:MEMBERS]))
    found = inside_of(RidgeEstimator(0.01), head, *broken(features, labels), MEMBERS, np.random.default_rng(0))
    best = np.argsort(-found.odds)[:MEMBERS]
    assert (best < MEMBERS).mean() < 0.8


BROADCAST: dict[str, Method] = {
    "fedcgs": FedCGS(),
    "fedcgs, secure aggregation": FedCGS(secure_aggregation="all"),
    "one_shot_ridge": OneShotRidge(),
    "afl": AFL(transport="float64"),
    "centralized": Centralized(),
    "raw_features": RawFeatures(transport="float32"),
}


def asked(method: Method, task: MethodInput, threat: ThreatModel) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores of the game's candidates under a threat model, and the truth of each."""

    def simulate(clients: Sequence[Records], seeds: Seeds) -> View:
        raise NotRunError("no shadow is asked for")

    game = make_game(task.clients, task.test, task.public, simulate, Seeds(1), classes=10)
    knowledge = Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT, game=game)
    result = Gallery().run(visible(method.run(task), threat), knowledge)
    clients = {client.name: client for client in task.clients}
    truth = np.concatenate([is_member(each, clients[name]) for name, each in game.questions.items()])
    return result.scores[KEY], truth


@pytest.mark.long
@pytest.mark.parametrize("name", BROADCAST)
def test_the_broadcast_model_alone_tells_members(name: str, make_task: Callable[..., MethodInput]) -> None:
    scores, truth = asked(BROADCAST[name], make_task(), ThreatModel(view="broadcast"))
    assert auc(scores[~truth], scores[truth]).value > 0.9


@pytest.mark.long
@pytest.mark.parametrize("method", [Average(), EnsembleOfClients()], ids=["average", "ensemble"])
def test_heads_of_single_clients_tell_their_members(method: Method, make_task: Callable[..., MethodInput]) -> None:
    scores, truth = asked(method, make_task(), ThreatModel())
    assert auc(scores[~truth], scores[truth]).value > 0.9


@pytest.mark.parametrize(
    "method", [FedPFT(components=1), FedCGS(generated=HeadTraining())], ids=["fedpft", "fedcgs"]
)
def test_heads_of_the_servers_own_samples_solve_no_equations_of_records(
    method: Method, make_task: Callable[..., MethodInput]
) -> None:
    with pytest.raises(NothingToReadError, match="no head solves equations"):
        asked(method, make_task(), ThreatModel(view="broadcast"))


PRIVATE: dict[str, Method] = {
    "fedcgs": FedCGS(secure_aggregation="all", noise="central"),
    "one_shot_ridge": OneShotRidge(),
    "afl": AFL(),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PRIVATE)
def test_heads_of_noised_statistics_are_read_through_their_noise(
    name: str, make_task: Callable[..., MethodInput]
) -> None:
    """More at a larger epsilon, and almost nothing at 1."""
    found = []
    for epsilon in (1.0, 1000.0):
        scores, truth = asked(PRIVATE[name], make_task(clients=1, epsilon=epsilon), ThreatModel(view="broadcast"))
        found.append(auc(scores[~truth], scores[truth]).value)
    assert found[0] < 0.62
    assert found[1] > 0.75


@pytest.mark.parametrize("name", ["ridge", "gaussian, total"])
def test_heads_of_noised_statistics_are_never_certified(name: str) -> None:
    features, labels = population(8, CANDIDATES)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    scale, rng = 0.3, np.random.default_rng(0)
    own, inside = features[:MEMBERS], np.eye(CLASSES)[labels[:MEMBERS]]
    noise = symmetric_noise(WIDTH, scale, rng)
    sums = inside.T @ own + scale * rng.normal(size=(CLASSES, WIDTH))
    estimator: Estimator
    if name == "ridge":
        estimator = RidgeEstimator(0.01, scale)
        head = without_bias(np.arange(CLASSES), ridge_weights(own.T @ own + noise, sums, 0.01, noise=scale))
    else:
        estimator, shift = GaussianEstimator("total", 0.1, scale), scale * np.sqrt(WIDTH) / MEMBERS
        given = Statistics(inside.sum(axis=0), sums, own.T @ own + noise)
        head = gaussian_head(moments(given), 0.1, shift=shift).head
    kept = kept_of(as_records(features, labels), CANDIDATES)
    told = answer_of_head(estimator, sent(head), features, kept, MEMBERS, np.random.default_rng(0))
    truth = np.arange(CANDIDATES) < MEMBERS
    assert not told.whole
    area = auc(told.weights[~truth], told.weights[truth]).value
    assert area is not None
    assert area > 0.6
