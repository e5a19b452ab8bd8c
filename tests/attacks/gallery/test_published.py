"""Scikit-learn's models as they are published: members are named whatever the loss, the penalty and the scaler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.preprocessing import StandardScaler

from fedassay.attacks.gallery import attack, precision
from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.gallery.unknown import estimator_of
from fedassay.audits.stats.roc import auc
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import MembershipGame
from fedassay.data.records import Records
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.sent_head import head_in, scaler_in
from fedassay.exchange.view import ThreatModel, View
from fedassay.heads.penalised import head_of
from fedassay.support.errors import FedassayError, NothingToReadError
from fedassay.support.progress import SILENT, Progress
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]

WIDTH, CLASSES, MEMBERS = 40, 5, 60
INSIDE = np.arange(2 * MEMBERS) < MEMBERS


def candidates(seed: int, classes: int = CLASSES, centre: float = 0.0) -> Records:
    """Twice as many as there are members, of classes that overlap, around a centre in every feature."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes)] * 2 + [rng.integers(0, classes, 2 * (MEMBERS - classes))])
    labels = np.concatenate([labels[::2], labels[1::2]])
    centres = np.random.default_rng(7).normal(size=(classes, WIDTH)) * 0.5 + centre
    features = rng.normal(size=(len(labels), WIDTH)) + centres[labels]
    images = np.frombuffer(features.tobytes(), np.uint8).reshape(len(features), 8, WIDTH, 1)
    return Records("gallery", images, labels, lambda rows: np.frombuffer(rows.tobytes()).reshape(-1, WIDTH))


def published(model: Any, scaler: StandardScaler | None) -> Message:
    """What stands in a file of a model, or of a scaler alone."""
    fields: dict[str, tuple[str, Any]] = {}
    if model is not None:
        rows = np.atleast_2d(model.coef_)
        fields = {"weights": ("head", rows), "bias": ("head", np.broadcast_to(model.intercept_, len(rows)))}
        fields["head_classes"] = ("other", model.classes_)
    if scaler is not None:
        fields["mean"], fields["variance"] = ("scaler_mean", scaler.mean_), ("scaler_variance", scaler.var_)
        fields["count"] = ("scaler_count", np.array([scaler.n_samples_seen_]))
    return Message(
        0, "file", "server", {name: MessageField(each, kind, exact()) for name, (kind, each) in fields.items()}
    )


def attacked(
    message: Message, gallery: Records, classes: int = CLASSES, progress: Progress = SILENT
) -> AttackResult:
    """The attack on a file of which nobody says what it is."""

    def simulate(records: Any, seeds: Seeds) -> View:
        raise FedassayError("no shadows")

    game = MembershipGame({"file": gallery}, {}, None, simulate, Seeds(0), gallery=gallery)
    known = Knowledge(None, classes, None, False, Seeds(0), "cpu", progress, game=game)
    return Gallery().run(View((message,), classes, ThreatModel()), known)


def how_well(result: AttackResult) -> float:
    scores = result.scores[KEY]
    found = auc(scores[~INSIDE], scores[INSIDE]).value
    assert found is not None
    return found


@pytest.mark.parametrize("model", [RidgeClassifier(fit_intercept=False), LogisticRegression(fit_intercept=False)])
def test_a_head_without_a_bias_is_read(model: Any) -> None:
    gallery = candidates(10)
    result = attacked(published(model.fit(gallery.features[INSIDE], gallery.labels[INSIDE]), None), gallery)
    assert how_well(result) > 0.99
    assert np.asarray(result.artifacts["whole"]).all()


@pytest.mark.parametrize("scaled", [True, False])
def test_a_ridge_classifier_in_a_file_names_its_members(scaled: bool) -> None:
    gallery = candidates(1)
    scaler = StandardScaler().fit(gallery.features[INSIDE]) if scaled else None
    inputs = gallery.features if scaler is None else scaler.transform(gallery.features)
    model = RidgeClassifier(alpha=10.0).fit(inputs[INSIDE], gallery.labels[INSIDE])
    result = attacked(published(model, scaler), gallery)
    assert np.asarray(result.artifacts["whole"]).all()
    assert (np.asarray(result.artifacts["named"], np.bool_) == INSIDE).all()


@pytest.mark.long
@pytest.mark.parametrize("classes", [2, CLASSES])
def test_logistic_regression_after_a_scaler_ranks_its_members(classes: int) -> None:
    gallery = candidates(2, classes)
    scaler = StandardScaler().fit(gallery.features[INSIDE])
    inputs = scaler.transform(gallery.features)
    model = LogisticRegression().fit(inputs[INSIDE], gallery.labels[INSIDE])
    assert how_well(attacked(published(model, scaler), gallery, classes)) > (0.95 if classes > 2 else 0.85)


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("model", [RidgeClassifier(alpha=10.0), LogisticRegression()])
def test_a_scaler_that_does_not_centre_is_recognised(model: Any, with_mean: bool) -> None:
    """Its file holds the same mean and variance as one that does."""
    gallery = candidates(5, centre=1.5)
    scaler = StandardScaler(with_mean=with_mean).fit(gallery.features[INSIDE])
    inputs = scaler.transform(gallery.features)
    result = attacked(published(model.fit(inputs[INSIDE], gallery.labels[INSIDE]), scaler), gallery)
    assert how_well(result) > 0.95
    assert np.asarray(result.artifacts["named"])[INSIDE].sum() > MEMBERS / 2
    assert not np.asarray(result.artifacts["named"])[~INSIDE].any()


def test_a_scaler_alone_ranks_its_members_without_labels() -> None:
    gallery = candidates(3)
    scaler = StandardScaler().fit(gallery.features[INSIDE])
    assert how_well(attacked(published(None, scaler), gallery)) > 0.85
    others = StandardScaler().fit(candidates(4).features[INSIDE])
    result = attacked(published(None, others), gallery)
    assert 0.3 < how_well(result) < 0.7
    assert not np.asarray(result.artifacts["named"]).any()


@pytest.mark.long
def test_a_model_of_other_people_names_nobody() -> None:
    gallery, others = candidates(5), candidates(6)
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(len(others))[:MEMBERS]
        model = RidgeClassifier(alpha=1.0).fit(others.features[rows], others.labels[rows])
        result = attacked(published(model, None), gallery)
        assert not np.asarray(result.artifacts["whole"]).any()
        assert not np.asarray(result.artifacts["named"]).any()


@pytest.mark.parametrize(
    ("loss", "penalty", "make"),
    [
        ("softmax", 1.0, lambda: LogisticRegression()),
        ("softmax", 10.0, lambda: LogisticRegression(C=0.1)),
        ("least_squares", 100.0, lambda: RidgeClassifier(alpha=100.0)),
    ],
)
@pytest.mark.parametrize("guess", [40, 60, 80])
def test_loss_and_penalty_are_found_though_nobody_says_them(
    loss: str, penalty: float, make: Callable[[], Any], guess: int
) -> None:
    gallery = candidates(7)
    model = make().fit(gallery.features[INSIDE], gallery.labels[INSIDE])
    head = head_of(model.coef_, model.intercept_, model.classes_)
    found = estimator_of(head, gallery.features, gallery.labels, guess, np.random.default_rng(0))
    assert found is not None
    assert found.loss == loss
    assert found.penalty == pytest.approx(penalty, rel=0.2)


def test_a_scaler_of_another_width_is_not_read() -> None:
    gallery = candidates(8)
    scaler = StandardScaler().fit(gallery.features[:, :7])
    with pytest.raises(NothingToReadError, match="the model takes 7 features, and candidates have 40"):
        attacked(published(None, scaler), gallery)


def test_one_row_is_a_head_of_two_classes() -> None:
    gallery = candidates(9, 2)
    model = LogisticRegression().fit(gallery.features, gallery.labels + 3)
    head = head_in(published(model, None))
    assert head is not None
    assert (head.predict(gallery.features) == model.predict(gallery.features)).all()
    assert scaler_in(published(model, None)) is None


def test_the_announced_time_is_of_every_solve_and_nothing_is_announced_before_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gallery, told, solved = candidates(11), [], []
    message = published(RidgeClassifier().fit(gallery.features[INSIDE], gallery.labels[INSIDE]), None)
    posterior = precision.posterior

    def counted(*given: Any) -> Any:
        solved.append(precision.operations(len(given[3]), sum(each.columns for each in given[0])))
        return posterior(*given)

    monkeypatch.setattr("fedassay.attacks.gallery.heads.posterior", counted)
    monkeypatch.setattr(attack, "_MANY", 10)
    monkeypatch.setattr(attack, "_tell", lambda _, size, operations, more="": told.append(operations))
    attacked(message, gallery)
    assert told == [pytest.approx(sum(solved), rel=0.05)]
    monkeypatch.setattr(attack, "MOST", 10)
    monkeypatch.setattr(precision, "MOST", 10)
    with pytest.raises(NothingToReadError, match="allowed: at most 10"):
        attacked(message, gallery)
    assert len(told) == 1
