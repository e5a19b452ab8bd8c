"""Reruns of the real mechanisms give the scores that the exact accounting says they must."""

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest, norm

from fedassay.privacy import reruns as r
from fedassay.privacy import sensitivities as s

SAME, ANY, ADD = "replace_one_same_label", "replace_one", "add_remove"
EXPERIMENTS = {
    **{
        f"moments-{family}-{nn}": r.mean_second_moment(20, sigmas=(0.1, 0.2), family=family, nonnegative=nn)
        for family in ("full", "diag", "spherical")
        for nn in (False, True)
    },
    "moments-mirrored": r.mean_second_moment(20, sigmas=(0.1, 0.1), isometric=False),
    "moments-d1": r.mean_second_moment(20, sigmas=(0.1, 0.3), dim=1),
    **{
        f"paper-{family}": r.mean_covariance(9, sigma=0.3, family=family)
        for family in ("full", "diag", "spherical")
    },
    **{
        f"class-{family}-{adjacency}": r.class_sums(adjacency=adjacency, sigmas=(3.0, 2.0, 1.0), family=family)
        for family in ("full", "diag", "spherical")
        for adjacency in (SAME, ANY, ADD)
    },
    **{f"shared-{a}": r.shared_sums(adjacency=a, sigmas=(2.0, 2.0, 1.0)) for a in (SAME, ANY, ADD)},
    **{
        f"ridge-{a}-{constant}": r.ridge_sums(adjacency=a, sigmas=(2.0, 1.0), constant=constant)
        for a in (SAME, ANY, ADD)
        for constant in (False, True)
    },
    **{f"count-sums-{a}": r.count_sums(adjacency=a, sigmas=(2.0, 1.0)) for a in (SAME, ANY, ADD)},
    **{
        f"count-sums-beside-constant-{a}": r.beside_constant(r.count_sums(adjacency=a, sigmas=(2.0, 1.0)))
        for a in (SAME, ANY, ADD)
    },
    "shared-public-counts": r.shared_sums(adjacency=SAME, sigmas=(0.0, 2.0, 1.0)),
    **{f"magnitude-{a}": r.magnitude_sum(100.0, adjacency=a, sigma=80.0) for a in (ANY, ADD)},
    **{f"vectors-{a}": r.vector_sum(0.5, adjacency=a, sigma=0.7) for a in (SAME, ANY, ADD)},
    **{f"counts-{a}": r.class_counts(adjacency=a, sigma=1.0) for a in (ANY, ADD)},
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_scores_follow_the_exact_gaussian_law(name):
    """Under data set b the score is N((b - 1/2) mu^2, mu^2), mu from the exact sensitivity: no other constant."""
    experiment = EXPERIMENTS[name]
    mu = experiment.mu
    assert 0 < mu < math.inf
    zero, one = r.llr_scores(experiment, reruns=20_000, rng=np.random.default_rng(list(name.encode())))
    # Significance 1e-4 each over some 60 tests of a fixed seed.
    assert kstest(zero, norm(-mu * mu / 2, mu).cdf).pvalue > 1e-4
    assert kstest(one, norm(mu * mu / 2, mu).cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    "make",
    [
        lambda dim: r.mean_second_moment(20, sigmas=(0.1, 0.1), dim=dim),
        lambda dim: r.mean_second_moment(20, sigmas=(0.1, 0.1), dim=dim, isometric=False),
        lambda dim: r.mean_covariance(9, sigma=0.3, dim=dim),
        lambda dim: r.class_sums(adjacency=ANY, sigmas=(2.0, 2.0, 2.0), dim=dim, classes=dim),
        lambda dim: r.shared_sums(adjacency=ANY, sigmas=(2.0, 2.0, 2.0), dim=dim, classes=dim),
        lambda dim: r.ridge_sums(adjacency=ANY, sigmas=(2.0, 2.0), dim=dim, classes=dim),
        lambda dim: r.ridge_sums(adjacency=ANY, sigmas=(2.0, 2.0), dim=dim, classes=dim, constant=True),
        lambda dim: r.count_sums(adjacency=ANY, sigmas=(2.0, 2.0), dim=dim, classes=dim),
        lambda dim: r.magnitude_sum(10.0, adjacency=ANY, sigma=9.0, dim=dim),
    ],
)
def test_restricting_to_two_axes_changes_no_score(make):
    rng = np.random.default_rng(11)
    small, full = make(2), make(12)
    assert small.mu == pytest.approx(full.mu, rel=1e-12)
    for a, b in zip(
        r.llr_scores(small, reruns=8000, rng=rng), r.llr_scores(full, reruns=8000, rng=rng), strict=True
    ):
        assert ks_2samp(a, b).pvalue > 1e-4


def test_noise_switched_off_is_told_apart_with_certainty():
    rng = np.random.default_rng(0)
    for experiment in (
        r.mean_covariance(5, sigma=0.0),
        r.mean_second_moment(5, sigmas=(1.0, 0.0)),
        r.shared_sums(adjacency=ANY, sigmas=(0.0, 1.0, 1.0)),
        r.class_counts(adjacency=ADD, sigma=0.0),
    ):
        zero, one = r.llr_scores(experiment, reruns=50, rng=rng)
        assert experiment.mu == math.inf
        assert np.all(zero == -math.inf)
        assert np.all(one == math.inf)


def test_counts_that_the_adjacency_makes_public_show_nothing():
    zero, one = r.llr_scores(r.class_counts(adjacency=SAME, sigma=0.0), reruns=50, rng=np.random.default_rng(0))
    assert not zero.any()
    assert not one.any()
    exact_counts = r.shared_sums(adjacency=SAME, sigmas=(0.0, 1.0, 1.0)).mu
    assert exact_counts == pytest.approx(s.shared_sums(2, adjacency=SAME).sensitivity)


def test_blocks_and_seeds(monkeypatch):
    experiment = EXPERIMENTS["shared-replace_one"]
    whole = r.llr_scores(experiment, reruns=100, rng=np.random.default_rng(7))
    again = r.llr_scores(experiment, reruns=100, rng=np.random.default_rng(7))
    assert all(np.array_equal(a, b) for a, b in zip(whole, again, strict=True))
    monkeypatch.setattr(r, "_BLOCK", 64)
    blocked = r.llr_scores(experiment, reruns=1_000, rng=np.random.default_rng(8))
    mu = experiment.mu
    assert kstest(blocked[1], norm(mu * mu / 2, mu).cdf).pvalue > 1e-4
