"""Projections of noised moments, and DP-EM."""

from __future__ import annotations

import math
from typing import TypedDict, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.methods.fedpft.dp_em import Fit, dp_em, dp_em_sensitivity
from fedassay.mixtures import Family, unpack_lower
from fedassay.mixtures.bounded import bounded_moments, project_simplex
from fedassay.privacy.mechanisms import clip_features
from fedassay.privacy.sensitivities import responsibility_sums
from fedassay.privacy.tape import Key, NoiseMechanism
from fedassay.support.adjacency import Adjacency
from fedassay.support.seeds import Seeds

FAMILIES: tuple[Family, ...] = get_args(Family)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8), st.floats(0.1, 3))
def test_simplex_projection_is_the_nearest_point(values: list[float], cap: float) -> None:
    given_ = np.array(values)
    projected = project_simplex(given_, cap)
    assert (projected >= 0).all()
    assert projected.sum() <= cap + 1e-9
    # Optimality of a projection on a convex set: no feasible direction goes towards the given point.
    vertices = np.vstack([np.zeros(len(given_)), cap * np.eye(len(given_))])
    assert ((vertices - projected) @ (given_ - projected) <= 1e-9).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_projected_moments_are_nearer_the_truth(family: Family) -> None:
    rng = np.random.default_rng(0)
    features = clip_features(rng.standard_normal((200, 5)) + 0.3)
    mean = features.mean(axis=0)
    second = {
        "full": features.T @ features / 200,
        "diag": (features**2).mean(axis=0),
        "spherical": np.asarray((features**2).sum(axis=1).mean()),
    }[family]
    kept = bounded_moments(mean, second, family)
    np.testing.assert_allclose(kept[0], mean)
    np.testing.assert_allclose(kept[1], second, atol=1e-12)
    for _ in range(20):
        noise = rng.standard_normal(second.shape)
        noised = second + (noise + noise.T if family == "full" else noise)
        far = mean + rng.standard_normal(5)
        near_mean, near = bounded_moments(far, noised, family)
        assert np.linalg.norm(near_mean) <= 1 + 1e-12
        assert np.linalg.norm(near_mean - mean) <= np.linalg.norm(far - mean) + 1e-12
        assert np.linalg.norm(near - second) <= np.linalg.norm(noised - second) + 1e-12
        if family == "full":
            assert np.linalg.eigvalsh(near)[0] > -1e-12
            assert np.trace(near) <= 1 + 1e-9


def _clusters(n: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    centres = np.array([[0.7, 0.0, 0.0], [-0.6, 0.3, 0.0]])
    return clip_features(centres[rng.integers(2, size=n)] + 0.05 * rng.standard_normal((n, 3)))


class _Streams(TypedDict):
    noise: NoiseMechanism
    start: np.random.Generator


def _streams(seed: int) -> _Streams:
    return {
        "noise": NoiseMechanism(Seeds(seed), Key("client/0", 0, "mixtures")),
        "start": np.random.default_rng(seed),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_dp_em_with_little_noise_finds_the_clusters(family: Family) -> None:
    # With 20,000 records this noise is far below the clusters' own spread.
    fit = dp_em(_clusters(20_000), Fit(2, family, 30, 1e-4), sigma=1.0, **_streams(3))
    order = np.argsort(fit.means[:, 0])
    np.testing.assert_allclose(fit.means[order], [[-0.6, 0.3, 0.0], [0.7, 0.0, 0.0]], atol=0.01)
    np.testing.assert_allclose(fit.weights, 0.5, atol=0.02)
    variances = fit.covariances
    if family == "full":
        variances = np.diagonal(unpack_lower(fit.covariances), axis1=1, axis2=2)
    np.testing.assert_allclose(variances, 0.05**2, rtol=0.25)


def test_dp_em_noise_is_what_was_asked_for() -> None:
    features = _clusters(50)
    counts, means = [], []
    for seed in range(400):
        fit = dp_em(features, Fit(1, "diag", 1, 1e-4), sigma=2.0, **_streams(seed))
        counts.append(fit.count)
    assert np.mean(counts) == pytest.approx(50, abs=5 * 2 / math.sqrt(400))
    assert np.std(counts) == pytest.approx(2.0, rel=5 / math.sqrt(800))
    for seed in range(400):
        fit = dp_em(features, Fit(1, "diag", 1, 1e-4, count_noised=False), sigma=2.0, **_streams(seed))
        assert fit.count == 50
        means.append(fit.means[0])
    # With an exact count the mean carries noise sigma / n on every coordinate.
    np.testing.assert_allclose(np.std(means, axis=0), 2 / 50, rtol=5 / math.sqrt(800))


def test_dp_em_on_no_records() -> None:
    fit = dp_em(np.empty((0, 3)), Fit(2, "full", 3, 1e-4), sigma=5.0, **_streams(0))
    assert np.isfinite(fit.means).all()
    assert (np.linalg.eigvalsh(unpack_lower(fit.covariances)) > 0).all()
    assert fit.weights.sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="steps and components must be at least 1"):
        dp_em(np.empty((0, 3)), Fit(2, "full", 0, 1e-4), sigma=5.0, **_streams(0))


def test_dp_em_sensitivity_composes() -> None:
    one = dp_em_sensitivity(5, 3, 1, adjacency="add_remove", classes=10, family="diag")
    assert one == pytest.approx(math.sqrt(3))
    assert dp_em_sensitivity(5, 3, 4, adjacency="add_remove", classes=10, family="diag") == pytest.approx(2 * one)
    # Same label: the first step moves as moments do, later ones as if the (soft) label could change.
    same = dp_em_sensitivity(
        5, 3, 3, adjacency="replace_one_same_label", classes=10, family="full", count_noised=False
    )
    assert same == pytest.approx(math.sqrt(4.5 + 2 * 6))


@pytest.mark.parametrize("components", [1, 2, 3])
def test_a_record_that_changes_its_class_moves_two_mixtures(components: int) -> None:
    """sqrt(6) in every step, also where a class's mixture has but one component."""
    moved = dp_em_sensitivity(5, components, 4, adjacency="replace_one", classes=10, family="full")
    assert moved == pytest.approx(math.sqrt(4 * 6))
    alone = dp_em_sensitivity(5, components, 4, adjacency="replace_one", classes=1, family="full")
    assert alone == pytest.approx(math.sqrt(4.5 + 3 * (4.5 if components == 1 else 6)))


def test_dp_em_steps_stay_within_the_stated_sensitivity() -> None:
    """The exact statistic of one step on random neighbours, never further apart than accounted for."""
    from fedassay.methods.fedpft import dp_em as module

    rng = np.random.default_rng(5)
    later = math.sqrt(6)
    for _ in range(300):
        rows = clip_features(rng.standard_normal((6, 3)) * rng.uniform(0.1, 3))
        other = rows.copy()
        other[0] = clip_features(rng.standard_normal((1, 3)) * 3)[0]
        weights, means = np.full(2, 0.5), rng.standard_normal((2, 3))
        covariances = np.tile(np.eye(3) * rng.uniform(0.001, 1), (2, 1, 1))
        exact = []
        for records in (rows, other):
            shares = module._responsibilities(records, weights, means, covariances, "full")
            np.testing.assert_allclose(shares.sum(axis=0), 1)
            exact.append(module._release(records, shares, "full", (0.0, 0.0, 0.0), _streams(0)["noise"]))
        apart = math.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in zip(*exact, strict=True)))
        assert apart <= later + 1e-9


def _step_of_unit(features: np.ndarray, labels: np.ndarray, soft: np.ndarray, mean: bool = True) -> np.ndarray:
    """What one unit adds to a step, over two classes of three components: (1, x, vech x x') of its records."""
    rows, columns = np.tril_indices(features.shape[1])
    twice = np.where(rows == columns, 1.0, math.sqrt(2))
    second = features[:, rows] * features[:, columns] * twice
    each = np.concatenate([np.ones((len(features), 1)), features, second], axis=1)
    place = np.eye(2)[labels][:, :, None] * soft[:, None, :]
    added = np.einsum("nk,nm->nkm", place.reshape(len(labels), 6), each)
    return np.asarray(added.mean(axis=0) if mean else added.sum(axis=0))


def _drawn_unit(rng: np.random.Generator, labels: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = int(rng.integers(1, 5)) if labels is None else len(labels)
    features = rng.standard_normal((size, 3))
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), rng.choice([1e-9, 1.0]))
    soft = rng.dirichlet(np.full(3, rng.choice([0.02, 1.0])), size)
    return features, rng.integers(0, 2, size) if labels is None else labels, soft


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "replace_one_same_label"])
def test_no_unit_moves_a_step_further_than_a_record_does(adjacency: Adjacency) -> None:
    reach = 6 if adjacency == "replace_one" else 3
    allowed = responsibility_sums(3, adjacency=adjacency, components=reach).sensitivity
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(4000):
        own = _drawn_unit(rng, None)
        other = _drawn_unit(rng, own[1] if adjacency == "replace_one_same_label" else None)
        moved = _step_of_unit(*own) - (0.0 if adjacency == "add_remove" else _step_of_unit(*other))
        worst = max(worst, float(np.linalg.norm(moved)))
    assert 0.8 * allowed < worst <= allowed + 1e-9
    # Attained by units whose records are all alike, in components of their own.
    axes, vertices, label = np.eye(3), np.eye(3), np.zeros(4, np.int64)
    first, second = (_step_of_unit(np.tile(axes[k], (4, 1)), label, np.tile(vertices[k], (4, 1))) for k in (0, 1))
    attained = np.linalg.norm(first if adjacency == "add_remove" else first - second)
    assert attained == pytest.approx(allowed)
    # Records that count one by one move it further.
    alone = _step_of_unit(np.tile(axes[0], (4, 1)), label, np.tile(vertices[0], (4, 1)), mean=False)
    assert np.linalg.norm(alone) > allowed


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_records_are_those_of_persons_with_the_mean(family: Family) -> None:
    features = _clusters(60)
    once = dp_em(features, Fit(2, family, 3, 1e-4), sigma=0.3, **_streams(0))
    thrice = dp_em(
        np.repeat(features, 3, axis=0),
        Fit(2, family, 3, 1e-4),
        sigma=0.3,
        **_streams(0),
        record_weights=np.full(180, 1 / 3),
    )
    assert thrice.count == pytest.approx(once.count)
    np.testing.assert_allclose(thrice.means, once.means, atol=1e-9)
    np.testing.assert_allclose(thrice.covariances, once.covariances, atol=1e-9)
