"""More records than features: what counting allows comes back, and what it does not is not believed."""

from __future__ import annotations

import numpy as np
import pytest
from gram_messages import CLASSES, attacked, errors, message, sparse, vectors
from numpy.typing import NDArray

from fedassay.attacks.gram.factorization import factorize
from fedassay.attacks.gram.polishing import Equations, polish
from fedassay.exchange.gram import Gram, measure, obstacle, uncounted

Matrix = NDArray[np.float64]
RNG = np.random.default_rng


def gram(features: Matrix, labels: NDArray[np.int64], *, counts: bool = True) -> Gram:
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    sent = member.sum(axis=0) if counts else None
    return Gram(features.T @ features, member.T @ features, sent, np.arange(CLASSES), 2.0**-53)


@pytest.mark.long
@pytest.mark.parametrize(("n", "width", "seed"), [(20, 16, 1), (20, 16, 2), (24, 16, 4), (40, 32, 0)])
def test_more_records_than_features_come_back(n: int, width: int, seed: int) -> None:
    features, labels = sparse(n, width=width, zeros=0.78, seed=seed)
    live = np.linalg.norm(features, axis=1) > 0
    result = attacked(message(features, labels))
    found = vectors(result)
    apart = np.linalg.norm(found[:, None] - features[live], axis=2).min(axis=0)
    assert np.median(apart / np.linalg.norm(features[live], axis=1)) < 1e-6
    assert result.scores["records"].tolist() == [n]


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 5, 7])
def test_counts_that_nobody_sends_are_searched_for(seed: int) -> None:
    features, labels = sparse(20, width=16, zeros=0.75, seed=seed)
    statistics = gram(features, labels, counts=False)
    assert uncounted(statistics, measure(statistics))
    assert obstacle(statistics, measure(statistics)) is None
    result = attacked(message(features, labels, leave_out=("N",)))
    assert result.scores["records"].tolist() == [20]
    # Vectors on which independent runs do not agree are left out.
    apart = np.linalg.norm(vectors(result)[:, None] - features, axis=2)
    close = apart.min(axis=0) < 1e-6 * np.linalg.norm(features, axis=1)
    assert close.mean() >= 0.9
    assert (result.vectors[0].labels == labels[apart.argmin(axis=1)]).all()


def test_what_counting_does_not_allow_is_not_believed() -> None:
    """With few zeros many non-negative matrices have this moment and these sums: runs end in different ones."""
    features, labels = sparse(24, width=16, zeros=0.2)
    statistics = gram(features, labels)
    equations = 16 * 17 // 2 + CLASSES * 16
    assert (features > 0).sum() > equations
    factors = factorize(statistics, measure(statistics), RNG(0))
    assert np.median(factors.expected_error) > 0.1
    assert np.median(errors(factors.vectors, features)) > 0.1


def test_polishing_meets_the_equations_from_nearby() -> None:
    features, _ = sparse(20, width=16, zeros=0.75, seed=1)
    features = features / np.linalg.norm(features, axis=0)
    members = (np.arange(CLASSES)[:, None] == np.arange(20) % CLASSES).astype(float)
    equations = Equations(features.T @ features, members, members @ features)
    start = features * (1 + 0.05 * RNG(0).standard_normal(features.shape))
    found = polish(start, equations)
    assert (found >= 0).all()
    assert np.linalg.norm(equations.residual(found)) < 1e-10
    assert np.abs(found - features).max() < 1e-8
    assert np.linalg.norm(equations.residual(start)) > 1e-2


def test_polishing_follows_the_gradient() -> None:
    features, _ = sparse(6, width=5, zeros=0.3, seed=1)
    members = np.ones((1, 6))
    equations = Equations(features.T @ features, members, members @ features)
    point, step = features + 0.1, 1e-6
    numeric = np.zeros_like(point)
    for where in np.ndindex(point.shape):
        moved = point.copy()
        moved[where] += step
        ahead, here = (float((equations.residual(each) ** 2).sum()) / 2 for each in (moved, point))
        numeric[where] = (ahead - here) / step
    np.testing.assert_allclose(equations.gradient(point), numeric, rtol=1e-3, atol=1e-3)
