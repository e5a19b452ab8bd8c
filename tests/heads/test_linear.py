"""The softmax head: against scikit-learn, weights, missing classes, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedassay.heads.linear import train_head
from fedassay.support.optimisation import Minibatches


def _records(seed: int, n: int = 300) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    features = rng.standard_normal((3, 6))[labels] + rng.standard_normal((n, 6)) * rng.uniform(0.1, 5, 6)
    return features.astype(np.float32), labels


def test_lbfgs_is_the_optimum_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    features, labels = _records(0)
    ours = train_head(features, labels, decay=0.01)
    standard = (features - features.mean(axis=0)) / features.std(axis=0)
    # scikit-learn minimises C * sum of losses + half the squared weights.
    theirs = LogisticRegression(C=1 / (0.01 * len(labels)), tol=1e-8, max_iter=1000).fit(standard, labels)
    np.testing.assert_allclose(ours.weights * features.std(axis=0), theirs.coef_, atol=2e-3)
    fresh, _ = _records(1)
    own = ours.scores(fresh)
    fresh = (fresh - features.mean(axis=0)) / features.std(axis=0)
    other = theirs.decision_function(fresh)
    np.testing.assert_allclose(own - own[:, :1], other - other[:, :1], atol=1e-2)


def test_adam_is_seeded_and_learns() -> None:
    features, labels = _records(2)
    heads = [
        train_head(
            features,
            labels,
            minibatches=Minibatches(100, 128, 1e-2),
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in (0, 0, 1)
    ]
    assert heads[0].weights.tobytes() == heads[1].weights.tobytes()
    assert heads[0].weights.tobytes() != heads[2].weights.tobytes()
    best = (train_head(features, labels).predict(features) == labels).mean()
    assert (heads[0].predict(features) == labels).mean() > best - 0.03


def test_missing_classes_and_dead_features() -> None:
    features, labels = _records(5)
    features[:, 2] = 7.0
    head = train_head(features, labels * 4 + 1)
    assert head.classes.tolist() == [1, 5, 9]
    assert set(head.predict(features)) <= {1, 5, 9}
    assert not head.weights[:, 2].any()
    assert np.isfinite(head.bias).all()
    alone = train_head(features[:5], np.full(5, 3))
    assert alone.predict(features).tolist() == [3] * len(features)
    one = train_head(features[:1], labels[:1])
    assert np.isfinite(one.scores(features)).all()


def test_wrong_input() -> None:
    features, labels = _records(6)
    with pytest.raises(ValueError, match="at least one labelled record"):
        train_head(features[:0], labels[:0])
    with pytest.raises(ValueError, match="NaN or infinite"):
        train_head(np.full((2, 2), np.inf), np.array([0, 1]))
    with pytest.raises(ValueError, match="decay must be finite"):
        train_head(features, labels, decay=-1.0)
    with pytest.raises(ValueError, match="needs a generator"):
        train_head(features, labels, minibatches=Minibatches(100, 128, 1e-4))
