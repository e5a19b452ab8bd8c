"""The noise of controls: what it promises is what its scores show."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, norm

from fedassay.privacy import reruns as r
from fedassay.privacy import tape
from fedassay.privacy.variants import distances, with_mu, with_reference_noise

SAME, ANY, ADD = "replace_one_same_label", "replace_one", "add_remove"
EXPERIMENTS = {
    "moments": r.mean_second_moment(20, sigmas=(0.1, 0.2)),
    "mirrored": r.mean_second_moment(20, sigmas=(0.1, 0.1), isometric=False),
    "paper": r.mean_covariance(9, sigma=0.3, family="diag"),
    "classes": r.class_sums(adjacency=ANY, sigmas=(3.0, 2.0, 1.0)),
    "shared": r.shared_sums(adjacency=ADD, sigmas=(2.0, 2.0, 1.0)),
    "public-counts": r.shared_sums(adjacency=SAME, sigmas=(0.0, 2.0, 1.0)),
    "exact-counts": r.shared_sums(adjacency=ADD, sigmas=(0.0, 2.0, 1.0)),
    "silent": r.class_counts(adjacency=ADD, sigma=0.0),
}


def assert_law(experiment, mu, seed=0):
    zero, one = r.llr_scores(experiment, reruns=8000, rng=np.random.default_rng(seed))
    assert experiment.mu == pytest.approx(mu)
    assert kstest(zero, norm(-mu * mu / 2, mu).cdf).pvalue > 1e-4
    assert kstest(one, norm(mu * mu / 2, mu).cdf).pvalue > 1e-4


@pytest.mark.parametrize("variant", [with_mu, with_reference_noise])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_variant_has_the_mu_it_was_asked_for(name, variant):
    for mu in (0.3, 5.0):
        assert_law(variant(EXPERIMENTS[name], mu), mu)


def test_proportions_of_the_noise_are_kept_where_there_are_any():
    assert with_mu(EXPERIMENTS["moments"], 1.0).sigmas == pytest.approx(
        tuple(s * EXPERIMENTS["moments"].mu for s in (0.1, 0.2))
    )
    assert len(set(with_mu(EXPERIMENTS["exact-counts"], 1.0).sigmas)) == 1
    # A field on which neighbours agree may stay exact.
    assert with_mu(EXPERIMENTS["public-counts"], 1.0).sigmas[0] == 0


def test_reference_noise_does_not_pass_through_the_mechanism(monkeypatch):
    """A mechanism that has lost its noise: its positive control is silent, its negative control is not."""
    monkeypatch.setattr(tape, "scaled_noise", lambda shape, *_: np.zeros(shape))
    own = with_mu(EXPERIMENTS["shared"], 1.0)
    zero, _ = r.llr_scores(own, reruns=50, rng=np.random.default_rng(0))
    assert np.ptp(zero) == 0
    assert_law(with_reference_noise(EXPERIMENTS["shared"], 1.0), 1.0)


def test_distances_are_those_of_the_exact_statistics():
    assert distances(EXPERIMENTS["shared"]) == pytest.approx((1, 1, 1))
    assert distances(r.class_counts(adjacency=ANY, sigma=3.0)) == pytest.approx((math.sqrt(2),))
    assert distances(r.class_counts(adjacency=SAME, sigma=3.0)) == (0,)


@settings(max_examples=40, deadline=None)
@given(
    sigmas=st.tuples(*(st.floats(1e-3, 1e3) for _ in range(3))),
    adjacency=st.sampled_from([SAME, ANY, ADD]),
    mu=st.floats(1e-4, 1e3),
)
def test_distances_over_noise_are_the_exact_mu(sigmas, adjacency, mu):
    experiment = r.class_sums(adjacency=adjacency, sigmas=sigmas)
    found = math.hypot(*(d / s for d, s in zip(distances(experiment), sigmas, strict=True)))
    assert found == pytest.approx(experiment.mu, rel=1e-6)
    scaled = with_mu(experiment, mu)
    again = math.hypot(*(d / s for d, s in zip(distances(scaled), scaled.sigmas, strict=True)))
    assert again == pytest.approx(mu, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: with_mu(EXPERIMENTS["shared"], 0.0), "mu"),
        (lambda: with_mu(EXPERIMENTS["shared"], math.inf), "mu"),
        (lambda: with_reference_noise(EXPERIMENTS["shared"], math.nan), "mu"),
        (lambda: with_mu(r.class_counts(adjacency=SAME, sigma=1.0), 1.0), "do not differ"),
    ],
)
def test_nonsense_is_refused(call, why):
    with pytest.raises(ValueError, match=why):
        call()
