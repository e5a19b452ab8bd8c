"""The FedCGS statistics and head: against definitions, against scikit-learn, over partitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedassay.heads.gaussian import GlobalMoments, Statistics, aggregate, gaussian_head, moments, statistics
from fedassay.support.errors import DataError

Array = NDArray[np.float64]


def _records(seed: int, n: int = 120, d: int = 5, classes: int = 4) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    features = rng.standard_normal((classes, d))[labels] + rng.standard_normal((n, d)) @ rng.standard_normal(
        (d, d)
    )
    return features, labels


def test_statistics_are_the_sums() -> None:
    features, labels = _records(0)
    found = statistics(features, labels, 6)
    np.testing.assert_array_equal(found.counts, np.bincount(labels, minlength=6))
    for label in range(6):
        np.testing.assert_allclose(found.sums[label], features[labels == label].sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.second, sum(np.outer(f, f) for f in features), rtol=1e-12)
    np.testing.assert_array_equal(found.second, found.second.T)
    empty = statistics(np.empty((0, 5)), np.empty(0, dtype=np.int64), 6)
    assert not empty.counts.any()
    assert empty.second.shape == (5, 5)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1000), clients=st.integers(1, 20))
def test_any_partition_gives_the_same_head(data: st.DataObject, seed: int, clients: int) -> None:
    features, labels = _records(seed, n=60)
    owners = np.array(data.draw(st.lists(st.integers(0, clients - 1), min_size=60, max_size=60)))
    parts = [statistics(features[owners == i], labels[owners == i], 4) for i in range(clients)]
    whole = statistics(features, labels, 4)
    for covariance in ("total", "within"):
        ours = gaussian_head(moments(aggregate(parts), covariance)).head
        theirs = gaussian_head(moments(whole, covariance)).head
        np.testing.assert_array_equal(ours.classes, theirs.classes)
        scale = np.abs(theirs.weights).max()
        np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-5 * scale)
        np.testing.assert_allclose(ours.bias, theirs.bias, rtol=1e-5)


def test_within_is_linear_discriminant_analysis() -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    features, labels = _records(1, n=400)
    found = moments(statistics(features, labels, 4), "within")
    # scikit-learn divides the pooled scatter by N, not by N - C.
    biased = replace(found, covariance=found.covariance * (400 - 4) / 400)
    ours = gaussian_head(biased, ridge=0.0).head
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(features, labels)
    np.testing.assert_allclose(ours.weights, theirs.coef_, rtol=1e-7)
    np.testing.assert_allclose(ours.bias, theirs.intercept_, rtol=1e-7)
    fresh, _ = _records(2, n=300)
    np.testing.assert_array_equal(ours.predict(fresh), theirs.predict(fresh))


def test_total_is_the_papers_formula() -> None:
    features, labels = _records(3, n=200)
    n, given_ = len(labels), statistics(features, labels, 4)
    mu = features.mean(axis=0)
    sigma = (given_.second - n * np.outer(mu, mu)) / (n - 1)
    np.testing.assert_allclose(sigma, np.cov(features.T), rtol=1e-10)
    inverse = np.linalg.inv(sigma)
    head = gaussian_head(moments(given_), ridge=0.0).head
    for label in range(4):
        mean = features[labels == label].mean(axis=0)
        np.testing.assert_allclose(head.weights[label], inverse @ mean, rtol=1e-8)
        expected = np.log((labels == label).mean()) - 0.5 * mean @ inverse @ mean
        assert head.bias[label] == pytest.approx(expected, rel=1e-8)


def test_ridge_is_relative_to_the_scale() -> None:
    features, labels = _records(4)
    one = gaussian_head(moments(statistics(features, labels, 4)), ridge=0.3).head
    two = gaussian_head(moments(statistics(1000 * features, labels, 4)), ridge=0.3).head
    np.testing.assert_allclose(two.weights * 1000, one.weights, rtol=1e-8)
    np.testing.assert_allclose(two.bias, one.bias, rtol=1e-8)


def test_singular_covariances() -> None:
    features, labels = _records(5)
    dead = np.concatenate([features, np.zeros((len(features), 2)), features[:, :1]], axis=1)
    with pytest.raises(DataError, match="8 x 8 covariance is singular to working precision with ridge 0"):
        gaussian_head(moments(statistics(dead, labels, 4)), ridge=0.0)
    solved = gaussian_head(moments(statistics(dead, labels, 4)))
    assert not solved.projected
    assert np.isfinite(solved.head.weights).all()
    # Fewer records than features.
    few = gaussian_head(moments(statistics(features[:4], np.array([0, 1, 2, 3]), 4)))
    np.testing.assert_array_equal(few.head.predict(features[:4]), [0, 1, 2, 3])
    with pytest.raises(DataError, match="singular"):
        gaussian_head(moments(statistics(np.ones((9, 3)), labels[:9], 4)))


def test_an_indefinite_covariance_is_projected_and_said_so() -> None:
    features, labels = _records(6)
    given_ = statistics(features, labels, 4)
    noised = Statistics(given_.counts, given_.sums, given_.second - 300 * np.eye(5))
    assert np.linalg.eigvalsh(moments(noised).covariance)[0] < -0.5
    solved = gaussian_head(moments(noised))
    assert solved.projected
    assert np.isfinite(solved.head.weights).all()
    assert not gaussian_head(moments(given_)).projected


def test_absent_classes_are_never_predicted() -> None:
    features, labels = _records(7, classes=3)
    head = gaussian_head(moments(statistics(features, labels, 10))).head
    assert head.classes.tolist() == [0, 1, 2]
    assert set(head.predict(features)) <= {0, 1, 2}
    noised = statistics(features, labels, 10)
    noised.counts[5] = -3.7
    assert gaussian_head(moments(noised)).head.classes.tolist() == [0, 1, 2]
    smallest = float(noised.counts[:3].min())
    kept = moments(noised, least=smallest).classes
    assert kept.tolist() == np.flatnonzero(noised.counts > smallest).tolist()
    assert 0 < len(kept) < 3


def test_wrong_input() -> None:
    features, labels = _records(8)
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.1"):
        statistics(features, labels, 2)
    with pytest.raises(ValueError, match="do not match"):
        statistics(features, labels[:-1], 4)
    with pytest.raises(ValueError, match="at least one"):
        aggregate([])
    with pytest.raises(DataError, match="0 records in 0 classes are too few for a total covariance"):
        moments(statistics(features[:0], labels[:0], 4))
    with pytest.raises(DataError, match="too few for a within covariance"):
        moments(statistics(features[:1], labels[:1], 4), "within")
    with pytest.raises(ValueError, match="ridge and shift"):
        gaussian_head(moments(statistics(features, labels, 4)), ridge=-1.0)
    features[0, 0] = np.nan
    with pytest.raises(DataError, match="NaN or infinite"):
        gaussian_head(moments(statistics(features, labels, 4)))


def test_a_noised_covariance_is_projected_before_the_shift() -> None:
    # One eigenvalue is a hair above -shift: shifted alone it would be divided by, though it is noise.
    sigma = np.diag([1.0, 1.0, -0.5 + 1e-6])
    given = GlobalMoments(np.array([0, 1]), np.array([0.5, 0.5]), np.eye(3)[:2] + np.eye(3)[2], sigma)
    solved = gaussian_head(given, 0.0, shift=0.5)
    assert solved.projected
    np.testing.assert_allclose(solved.head.weights[:, 2], 2.0)
