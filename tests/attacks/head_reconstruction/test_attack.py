"""Heads of few records: what was planted comes back, and what the equations do not tell is not told."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.head_reconstruction.attack import TRUSTED, HeadReconstruction
from fedassay.attacks.head_reconstruction.common_mean import common_mean
from fedassay.attacks.head_reconstruction.fixed_point import SOLVED, Stationarity
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.data.records import Records
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.heads.estimating import Estimator
from fedassay.heads.estimators import RidgeEstimator, SoftmaxEstimator
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]
Ints = NDArray[np.int64]

WIDTH, CLASSES = 96, 6
ESTIMATOR = SoftmaxEstimator(classes=CLASSES)
_CENTRES = np.random.default_rng(7).normal(size=(CLASSES, WIDTH))


def drawn(labels: Ints, seed: int) -> Matrix:
    """Rectified features of classes that overlap, half of them 0."""
    values = np.random.default_rng(seed).normal(size=(len(labels), WIDTH)) + 0.5 * _CENTRES[labels]
    return np.maximum(values, 0.0).astype(np.float32).astype(np.float64)


def knowledge(size: int = 300, width: int = WIDTH) -> Knowledge:
    labels = np.arange(size) % CLASSES
    features = drawn(labels, 1)[:, :width].astype(np.float32)
    own = Records("attacker", np.zeros((size, 1, 1, 1), np.uint8), labels, lambda _: features)
    return Knowledge(own, CLASSES, None, False, Seeds(0), "cpu", SILENT)


def view(labels: Ints, features: Matrix, estimator: Estimator | None = ESTIMATOR, counted: bool = True) -> View:
    """A client's head over all classes, in float32."""
    head = ESTIMATOR.fit(features, labels)
    fields = {
        "weights": MessageField(head.weights.astype(np.float32), "head", exact()),
        "bias": MessageField(head.bias.astype(np.float32), "head", exact()),
    }
    if counted:
        fields["records"] = MessageField(np.array([len(labels)]), "other", exact("size"))
    estimators = {} if estimator is None else {("client/0", 0): estimator}
    return View((Message(0, "client/0", SERVER, fields),), CLASSES, ThreatModel(), estimators=estimators)


def attacked(labels: list[int], seed: int) -> tuple[AttackResult, Matrix]:
    given = np.array(labels)
    features = drawn(given, seed)
    return HeadReconstruction(starts=8).run(view(given, features), knowledge()), features


def off(found: Matrix, truth: Matrix) -> float:
    return float(np.median(np.linalg.norm(found - truth, axis=1) / np.linalg.norm(truth, axis=1)))


@pytest.mark.parametrize("labels", [[1, 4], [0, 2, 3], [1, 2, 4, 5]])
def test_records_of_one_class_each_come_back(labels: list[int]) -> None:
    result, truth = attacked(labels, 10 + len(labels))
    source = result.vectors[0]
    found = source.vectors.astype(np.float64)
    assert source.labels.tolist() == labels
    assert off(found - found.mean(axis=0), truth - truth.mean(axis=0)) < 0.02
    means = np.array([drawn(np.full(200, label), 3).mean(axis=0) for label in labels])
    assert off(found, truth) < 0.75 * off(means, truth)
    assert result.scores["trusted"].all()
    assert (result.scores["apart"] < TRUSTED).all()


def test_strangers_do_not_come_back() -> None:
    result, truth = attacked([0, 2, 3], 20)
    found = result.vectors[0].vectors.astype(np.float64)
    others = drawn(np.tile([0, 2, 3], 50), 21)
    for vector, record in zip(found, truth, strict=True):
        assert np.linalg.norm(others - vector, axis=1).min() > 1.3 * np.linalg.norm(record - vector)


@pytest.mark.parametrize("labels", [[1, 1], [1, 1, 4]])
def test_several_records_of_a_class_are_not_made_up(labels: list[int]) -> None:
    result, _ = attacked(labels, 30)
    assert not len(result.vectors[0].vectors)
    assert result.notes == ("0 of 1 heads were solved, 0 of 0 vectors may be trusted",)


def test_the_true_logits_are_the_fixed_point() -> None:
    labels = np.array([0, 3, 5])
    features = drawn(labels, 40)
    head = ESTIMATOR.fit(features, labels)
    weights = head.weights.astype(np.float64)
    live = np.abs(weights).max(axis=0) > 1e-7 * np.abs(weights).max()
    equations = Stationarity(weights[:, live], labels, ESTIMATOR.decay)
    left = equations.left(head.scores(features).ravel())
    assert (left**2).sum() / 2 < SOLVED
    other = Stationarity(weights[:, live], labels, 2 * ESTIMATOR.decay).left(head.scores(features).ravel())
    assert (other**2).sum() / 2 > 10 * SOLVED


def test_zeros_of_rectified_features_give_the_mean() -> None:
    own, records = drawn(np.arange(400) % CLASSES, 50), drawn(np.arange(5), 51)
    mean = records.mean(axis=0)
    found = common_mean(records - mean, own)
    assert np.linalg.norm(found - mean) < 0.3 * np.linalg.norm(own.mean(axis=0) - mean)


def test_without_zeros_the_mean_is_told_by_what_features_are_like() -> None:
    rng = np.random.default_rng(52)
    own, records = rng.normal(5.0, 1.0, (400, WIDTH)), rng.normal(5.0, 1.0, (4, WIDTH))
    mean = records.mean(axis=0)
    # Of Gaussian features the differences say nothing of the mean: it is the attacker's own, up to the bins.
    found = common_mean(records - mean, own)
    assert np.linalg.norm(found - mean) < 1.3 * np.linalg.norm(own.mean(axis=0) - mean)


@pytest.mark.parametrize(
    ("labels", "estimator", "counted", "words"),
    [
        ([0, 1], None, True, "trained to convergence"),
        ([0, 1], RidgeEstimator(0.1), True, "no softmax head"),
        ([0, 1], ESTIMATOR, False, "neither its number of records"),
        ([0, 1], SoftmaxEstimator(), True, "rows for classes without any"),
        ([0, 0, 0, 1, 1, 1, 2, 2, 2], ESTIMATOR, True, "has 9 records; 2 to 8 are read"),
        ([0, 1, 2, 3, 4, 5], ESTIMATOR, True, "all of them may be present"),
    ],
)
def test_heads_of_another_kind_are_not_read(
    labels: list[int], estimator: Estimator | None, counted: bool, words: str
) -> None:
    given = np.array(labels)
    with pytest.raises(NothingToReadError, match=words):
        HeadReconstruction().run(view(given, drawn(given, 60), estimator, counted), knowledge())


def test_an_attacker_without_images_of_the_same_features_does_not_run() -> None:
    given = np.array([0, 1])
    with pytest.raises(NotRunError, match="5 records of its own; 20 are needed"):
        HeadReconstruction().run(view(given, drawn(given, 70)), knowledge(5))
    with pytest.raises(NotRunError, match="width 96, the attacker's 48"):
        HeadReconstruction().run(view(given, drawn(given, 70)), knowledge(width=48))
