"""Heads that scikit-learn fits solve the equations that are said of them, and a scaler's sums are zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from fedassay.heads.linear import LinearHead
from fedassay.heads.penalised import PenalisedEstimator, coefficients, head_of
from fedassay.heads.scaler import Scaler
from fedassay.support.errors import DataError

Matrix = NDArray[np.float64]

MODELS: dict[str, tuple[Callable[[], Any], PenalisedEstimator]] = {
    "softmax": (lambda: LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000), PenalisedEstimator("softmax", 2.0)),
    "logistic": (
        lambda: OneVsRestClassifier(LogisticRegression(C=0.5, solver="liblinear", tol=1e-8, max_iter=10_000)),
        PenalisedEstimator("logistic", 2.0, bias_penalised=True),
    ),
    "least_squares": (lambda: RidgeClassifier(alpha=3.0), PenalisedEstimator("least_squares", 3.0)),
    "squared_hinge": (
        lambda: LinearSVC(C=0.25, tol=1e-10, max_iter=100_000),
        PenalisedEstimator("squared_hinge", 2.0, bias_penalised=True),
    ),
    "softmax, no bias": (
        lambda: LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=10_000),
        PenalisedEstimator("softmax", 2.0, intercept=False),
    ),
    "least_squares, no bias": (
        lambda: RidgeClassifier(alpha=3.0, fit_intercept=False),
        PenalisedEstimator("least_squares", 3.0, intercept=False),
    ),
}


def records(seed: int, classes: int, size: int = 90, width: int = 6) -> tuple[Matrix, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, size - classes)])
    return rng.normal(size=(size, width)) + rng.normal(size=(classes, width))[labels], labels + 2


def sent(model: Any) -> LinearHead:
    """A fitted model as a head."""
    if isinstance(model, OneVsRestClassifier):
        rows = [each.coef_ for each in model.estimators_], [each.intercept_ for each in model.estimators_]
        return head_of(np.concatenate(rows[0]), np.concatenate(rows[1]), model.classes_)
    return head_of(model.coef_, np.broadcast_to(model.intercept_, len(np.atleast_2d(model.coef_))), model.classes_)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_scikit_learns_heads_solve_their_equations_and_no_others(name: str, classes: int) -> None:
    make, estimator = MODELS[name]
    features, labels = records(1, classes)
    model = make().fit(features, labels)
    head = sent(model)
    assert (head.predict(features) == model.predict(features)).all()
    told = estimator.equations(head, features, labels, None)
    rest = told.residuals.T @ told.rows - told.target
    usual = np.sqrt((told.residuals**2).T @ told.rows**2)
    assert np.abs(rest / usual).max() < 1e-3
    for other, (_, wrong) in MODELS.items():
        same = name.partition(",")[0] == other.partition(",")[0]
        if not same and not (classes == 2 and {wrong.loss, estimator.loss} <= {"softmax", "logistic"}):
            told = wrong.equations(head, features, labels, None)
            assert np.abs(told.residuals.T @ told.rows - told.target).max() > 0.1


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_a_head_is_fitted_again_as_scikit_learn_fits_it(name: str, classes: int) -> None:
    make, estimator = MODELS[name]
    features, labels = records(2, classes)
    head, again = sent(make().fit(features, labels)), estimator.fit(features, labels)
    np.testing.assert_array_equal(again.classes, head.classes)
    # Softmax heads are fitted again with the default tolerance, as people fit them.
    np.testing.assert_allclose(coefficients(again)[0], coefficients(head)[0], atol=5e-3)
    np.testing.assert_allclose(coefficients(again)[1], coefficients(head)[1], atol=5e-3)


@pytest.mark.parametrize("name", MODELS)
def test_the_penalty_follows_from_who_is_in(name: str) -> None:
    make, estimator = MODELS[name]
    features, labels = records(3, 3)
    head = sent(make().fit(features, labels))
    free = replace(estimator, penalty=None)
    found = free.penalty_of(head, features, labels, np.ones(len(labels)))
    assert estimator.penalty is not None
    assert found == pytest.approx(estimator.penalty, rel=1e-3)
    told = free.equations(head, features, labels, None)
    assert not told.target.any()
    assert np.isinf(told.slack).all()
    with pytest.raises(DataError, match="has no fit"):
        free.fit(features, labels)


def test_a_scalers_sums_are_zero_over_its_records_alone() -> None:
    features, _ = records(4, 3)
    features = np.concatenate([features, np.full((len(features), 1), 5.0)], axis=1)
    fitted = StandardScaler().fit(features[:60])
    scaler = Scaler(fitted.mean_, fitted.var_, int(fitted.n_samples_seen_))
    np.testing.assert_allclose(scaler.transform(features), fitted.transform(features))
    told = scaler.equations(features)
    assert told.count == 12
    assert np.abs(told.rows[:60].sum(axis=0)).max() < 1e-9
    assert np.abs(told.rows[:61].sum(axis=0)).max() > 0.1
    right, wrong = scaler.distance(features[:60]), scaler.distance(features[1:61])
    assert right is not None
    assert right < 1e-9
    assert wrong is not None
    assert wrong > 0.3
    assert scaler.distance(features[:59]) is None
