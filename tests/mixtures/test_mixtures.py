"""Mixtures: the fit against scikit-learn, its invariances, transport, density and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedassay.mixtures import (
    Family,
    Mixtures,
    concatenate,
    em,
    fit_mixtures,
    from_transport,
    log_density,
    pack_lower,
    parameters_sent,
    project_psd,
    sample_mixtures,
    to_transport,
    unpack_lower,
)
from fedassay.mixtures.packed import diagonal_index
from fedassay.support.errors import DataError

FAMILIES: tuple[Family, ...] = get_args(Family)
Array = NDArray[np.float64]


def _planted(seed: int, n: int, d: int, clusters: int = 4, apart: float = 3.0) -> Array:
    rng = np.random.default_rng(seed)
    centres = apart * rng.standard_normal((clusters, d))
    spread = rng.uniform(0.5, 2.0, (clusters, d))
    chosen = rng.integers(clusters, size=n)
    return centres[chosen] + spread[chosen] * rng.standard_normal((n, d))


def _generators(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, i]) for i in range(count)]


def _score(mixtures: Mixtures, groups: Sequence[Array]) -> Array:
    return np.array([log_density(mixtures, i, group).mean() for i, group in enumerate(groups)])


@pytest.mark.parametrize("family", FAMILIES)
def test_as_likely_as_scikit_learn(family: Family) -> None:
    from sklearn.mixture import GaussianMixture

    groups = [_planted(seed, 300, 6) for seed in range(12)]
    mixtures, report = fit_mixtures(groups, 4, family, _generators(12), restarts=3)
    theirs = [
        GaussianMixture(4, covariance_type=family, n_init=3, random_state=i, reg_covar=float(report.floor[i]))
        .fit(group)
        .score(group)
        for i, group in enumerate(groups)
    ]
    assert np.mean(report.log_likelihood) == pytest.approx(np.mean(theirs), rel=0.01)
    np.testing.assert_allclose(report.log_likelihood, _score(mixtures, groups), rtol=1e-4)
    assert report.converged.all()


@pytest.mark.parametrize("family", FAMILIES)
def test_likelihood_never_falls(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(em, "_TOLERANCE", -np.inf)
    groups = [_planted(seed, 80, 5, apart=1.0) for seed in range(6)]
    previous = np.full(6, -np.inf)
    for steps in range(12):
        monkeypatch.setattr(em, "_STEPS", steps)
        _, report = fit_mixtures(groups, 5, family, _generators(6), precision=torch.float64)
        # The floor of `full` is added, not enforced: exact up to that perturbation.
        slack = 1e-9 if family != "full" else 1e-3
        assert (report.log_likelihood >= previous - slack).all()
        assert (report.iterations == steps).all()
        previous = report.log_likelihood


@pytest.mark.parametrize("family", FAMILIES)
def test_the_batch_changes_nothing(family: Family) -> None:
    sizes = [1, 2, 7, 30, 30, 30, 400, 7, 30, 1]
    groups = [_planted(i, n, 8) for i, n in enumerate(sizes)]
    together, report = fit_mixtures(groups, 5, family, _generators(10))
    for i, group in enumerate(groups):
        alone, own = fit_mixtures([group], 5, family, [np.random.default_rng([0, i])])
        ours = together.select([i])
        np.testing.assert_allclose(ours.means, alone.means, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(ours.weights, alone.weights, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ours.covariances, alone.covariances, rtol=1e-4, atol=1e-6)
        assert own.iterations[0] == report.iterations[i]


def test_the_same_seed_gives_the_same_bits() -> None:
    groups = [_planted(i, 50, 8) for i in range(4)]
    first, _ = fit_mixtures(groups, 3, "diag", _generators(4), restarts=2)
    second, _ = fit_mixtures(groups, 3, "diag", _generators(4), restarts=2)
    assert first.means.tobytes() == second.means.tobytes()
    assert first.covariances.tobytes() == second.covariances.tobytes()


@settings(max_examples=20, deadline=None)
@given(
    shift=st.floats(-100, 100),
    factor=st.floats(1e-3, 1e3),
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 1000),
)
def test_shift_and_scale(shift: float, factor: float, family: Family, seed: int) -> None:
    group = _planted(seed, 40, 3)
    plain, one = fit_mixtures([group], 3, family, [np.random.default_rng(seed)], precision=torch.float64)
    moved, two = fit_mixtures(
        [group * factor + shift], 3, family, [np.random.default_rng(seed)], precision=torch.float64
    )
    size = factor * np.abs(group).max() + abs(shift)
    np.testing.assert_allclose(moved.means, plain.means * factor + shift, atol=1e-7 * size)
    np.testing.assert_allclose(moved.covariances, plain.covariances * factor**2, rtol=1e-5, atol=1e-6 * factor**2)
    assert two.log_likelihood[0] == pytest.approx(one.log_likelihood[0] - 3 * np.log(factor), abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_few_records_use_fewer_components(family: Family) -> None:
    groups = [_planted(0, 1, 4), _planted(1, 3, 4), np.ones((6, 4)), np.zeros((2, 4)), _planted(2, 50, 4)]
    mixtures, report = fit_mixtures(groups, 5, family, _generators(5))
    assert mixtures.components[:2].tolist() == [1, 3]
    assert (mixtures.components <= mixtures.counts).all()
    assert mixtures.components[4] == 5
    assert mixtures.counts.tolist() == [1, 3, 6, 2, 50]
    np.testing.assert_allclose(mixtures.select([0]).means[0], groups[0][0], atol=1e-6)
    for array in (mixtures.weights, mixtures.means, mixtures.covariances, report.log_likelihood):
        assert np.isfinite(array).all()
    samples, owners = sample_mixtures(mixtures, mixtures.counts, np.random.default_rng(0))
    assert np.isfinite(samples).all()
    np.testing.assert_array_equal(np.bincount(owners), mixtures.counts)
    # The floor is relative to the record where there is no spread.
    spread = samples[0] - groups[0][0]
    assert np.abs(spread).max() < 0.3 * np.abs(groups[0][0]).max()


def test_components_per_group_and_restarts() -> None:
    groups = [_planted(i, 60, 4, apart=1.0) for i in range(8)]
    mixtures, one = fit_mixtures(groups, [1, 2, 3, 4, 1, 2, 3, 4], "diag", _generators(8))
    assert mixtures.components.tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    np.testing.assert_allclose(mixtures.means[0], groups[0].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(mixtures.covariances[0], groups[0].var(axis=0), rtol=1e-4)
    _, many = fit_mixtures(groups, [1, 2, 3, 4, 1, 2, 3, 4], "diag", _generators(8), restarts=6)
    assert (many.log_likelihood >= one.log_likelihood - 1e-5).all()
    assert (many.log_likelihood > one.log_likelihood + 1e-3).any()


def test_large_groups_are_seeded_on_a_subset() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    chosen = rng.choice(3, size=3000, p=[0.6, 0.3, 0.1])
    mixtures, _ = fit_mixtures([centres[chosen] + rng.standard_normal((3000, 2))], 3, "diag", [rng])
    order = np.argsort(-mixtures.weights)
    np.testing.assert_allclose(mixtures.weights[order], np.bincount(chosen) / 3000, atol=0.01)
    np.testing.assert_allclose(mixtures.means[order], centres, atol=0.25)
    np.testing.assert_allclose(mixtures.covariances, 1.0, atol=0.2)


@pytest.mark.parametrize("family", FAMILIES)
def test_sampling_has_the_mixture_moments(family: Family) -> None:
    mixtures, _ = fit_mixtures([_planted(3, 200, 3), _planted(4, 200, 3)], 3, family, _generators(2))
    count = 40_000
    samples, owners = sample_mixtures(mixtures, np.array([count, count]), np.random.default_rng(1))
    for group, span in enumerate(mixtures.spans()):
        weights, means = mixtures.weights[span], mixtures.means[span]
        covariances = _matrices(mixtures)[span]
        mean = weights @ means
        second = np.einsum("k,kij->ij", weights, covariances + means[:, :, None] * means[:, None, :])
        covariance = second - np.outer(mean, mean)
        drawn = samples[owners == group]
        error = np.sqrt(np.diagonal(covariance) / count)
        assert (np.abs(drawn.mean(axis=0) - mean) < 5 * error).all()
        scale = np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
        assert (np.abs(np.cov(drawn.T) - covariance) < 5 * np.sqrt(3 / count) * scale).all()


def _matrices(mixtures: Mixtures) -> Array:
    if mixtures.family == "full":
        return unpack_lower(mixtures.covariances)
    if mixtures.family == "diag":
        return mixtures.covariances[:, :, None] * np.eye(mixtures.width)
    return mixtures.covariances[:, None, None] * np.eye(mixtures.width)


@pytest.mark.parametrize("family", FAMILIES)
def test_density_against_scipy(family: Family) -> None:
    from scipy.stats import multivariate_normal

    group = _planted(5, 60, 3)
    mixtures, _ = fit_mixtures([group], 3, family, _generators(1))
    parts = zip(mixtures.weights, mixtures.means, _matrices(mixtures), strict=True)
    expected = np.log(sum(w * multivariate_normal(m, c).pdf(group) for w, m, c in parts))
    np.testing.assert_allclose(log_density(mixtures, 0, group), expected, rtol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_float16_round_trip(family: Family) -> None:
    # Feature scales from tiny to large, a singular full covariance among them (5 records, 12 features).
    for factor in (1e-3, 1.0, 30.0):
        groups = [factor * _planted(6, 5, 12), factor * _planted(7, 90, 12)]
        sent, _ = fit_mixtures(groups, 2, family, _generators(2))
        received = _travel(sent, "float16")
        np.testing.assert_allclose(received.means, sent.means, rtol=1e-3, atol=6e-8)
        np.testing.assert_allclose(received.weights, sent.weights, atol=1e-3)
        np.testing.assert_allclose(
            _matrices(received), _matrices(sent), atol=2e-3 * np.abs(_matrices(sent)).max() + 6e-8
        )
        assert np.isfinite(log_density(received, 0, groups[0])).all()
        sample_mixtures(received, received.counts, np.random.default_rng(0))


def _travel(sent: Mixtures, transport: str) -> Mixtures:
    last = sent.covariances[:, None] if sent.family == "spherical" else sent.covariances
    moved = to_transport(last, transport, "covariances", diagonal_index(sent.family, sent.width))  # type: ignore[arg-type]
    return from_transport(
        sent.family,
        sent.components,
        sent.counts,
        to_transport(sent.weights, transport, "weights"),  # type: ignore[arg-type]
        to_transport(sent.means, transport, "means"),  # type: ignore[arg-type]
        moved[:, 0] if sent.family == "spherical" else moved,
    )


def test_transport_limits() -> None:
    with pytest.raises(DataError, match="means: magnitude 1e\\+05 does not fit float16"):
        to_transport(np.array([1e5]), "float16", "means")
    with pytest.raises(DataError, match="nan"):
        to_transport(np.array([np.nan]), "float32", "means")
    tiny = to_transport(np.array([[1e-12, 0.5]]), "float16", "covariances", np.array([0, 1]))
    assert (tiny > 0).all()
    assert tiny.dtype == np.float16


def test_received_mixtures_are_checked() -> None:
    one = np.array([1], dtype=np.int64)
    with pytest.raises(ValueError, match="mixture 0: the component weights sum to 0"):
        from_transport("diag", one, one, np.zeros(1), np.zeros((1, 2)), np.ones((1, 2)))
    repaired = from_transport("diag", one, one, np.ones(1), np.zeros((1, 2)), np.array([[-1.0, 4.0]]))
    assert (repaired.covariances > 0).all()
    with pytest.raises(ValueError, match=r"covariances has shape \(1, 3\), not \(1, 2\)"):
        from_transport("diag", one, one, np.ones(1), np.zeros((1, 2)), np.ones((1, 3)))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 6))
def test_packing_and_projection(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((3, width, width))
    symmetric = matrix + matrix.transpose(0, 2, 1)
    np.testing.assert_array_equal(unpack_lower(pack_lower(symmetric)), symmetric)
    diagonal = pack_lower(symmetric)[:, diagonal_index("full", width)]
    np.testing.assert_array_equal(diagonal, np.diagonal(symmetric, axis1=1, axis2=2))
    projected = project_psd(symmetric, 1e-4)
    assert (np.linalg.eigvalsh(projected)[:, 0] > 0).all()
    definite = matrix @ matrix.transpose(0, 2, 1) + np.eye(width)
    assert project_psd(definite, 1e-4).tobytes() == definite.tobytes()
    # The nearest such matrix is as far away as the eigenvalues that had to be raised.
    for given_, made in zip(symmetric, projected, strict=True):
        scale = np.trace(given_) / width if np.trace(given_) > 0 else np.abs(np.diagonal(given_)).mean()
        lack = np.minimum(np.linalg.eigvalsh(given_) - 1e-4 * scale, 0)
        assert np.linalg.norm(made - given_) == pytest.approx(np.linalg.norm(lack), rel=1e-9, abs=1e-12)


def test_select_and_concatenate() -> None:
    groups = [_planted(i, n, 3) for i, n in enumerate((5, 20, 9))]
    mixtures, _ = fit_mixtures(groups, 4, "full", _generators(3))
    parts = [mixtures.select([i]) for i in range(3)]
    again = concatenate(parts)
    assert again.means.tobytes() == mixtures.means.tobytes()
    assert again.components.tolist() == mixtures.components.tolist()
    assert mixtures.select([]).groups == 0
    with pytest.raises(ValueError, match="one covariance family"):
        concatenate([parts[0], fit_mixtures(groups, 4, "diag", _generators(3))[0]])


def test_parameters_of_the_paper() -> None:
    # Beitollahi et al. 2024, equations 9 to 11, for K = 5 mixtures of C = 10 classes at d = 3.
    assert parameters_sent("full", 3, 50) == (2 * 3 + (9 - 3) // 2 + 1) * 50
    assert parameters_sent("diag", 3, 50) == (2 * 3 + 1) * 50
    assert parameters_sent("spherical", 3, 50) == (3 + 2) * 50


@pytest.mark.parametrize(
    ("records", "components", "message"),
    [
        ([], 1, "0 groups"),
        ([np.empty((0, 2))], 1, "group 0 has shape \\(0, 2\\)"),
        ([np.ones((2, 2)), np.ones((2, 3))], 1, "group 1 has shape \\(2, 3\\)"),
        ([np.full((2, 2), np.nan)], 1, "group 0 holds NaN"),
        ([np.ones((2, 2))], 0, "components and restarts must be at least 1"),
    ],
)
def test_wrong_input(records: list[Array], components: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_mixtures(records, components, "diag", _generators(len(records)))


def test_sampling_refuses_nonsense() -> None:
    one = np.array([1], dtype=np.int64)
    bad = Mixtures("full", one, one, np.ones(1), np.zeros((1, 2)), pack_lower(-np.eye(2)[None]))
    with pytest.raises(ValueError, match="component 0 is not positive definite"):
        sample_mixtures(bad, one, np.random.default_rng(0))
    with pytest.raises(ValueError, match="component 0 is not positive definite"):
        log_density(bad, 0, np.zeros((1, 2)))
    with pytest.raises(ValueError, match="counts must be 1 numbers"):
        sample_mixtures(bad, np.array([-1]), np.random.default_rng(0))
