"""The noise of controls: what it promises is what its scores show."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstest, norm

from fedassay.privacy import reruns as r
from fedassay.privacy import tape
from fedassay.privacy.sensitivities import Neighbours
from fedassay.privacy.variants import distances, in_span, with_mu, with_reference_noise

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


def on_records(experiment, *, swapped, nonnegative=False, width=40):
    """An experiment on records of a width, the last of which is out on one side or swapped, and that record."""
    rng = np.random.default_rng(5)
    # The first ones are clipped, the last two are not.
    records = rng.normal(size=(10, width)) / math.sqrt(width) * np.linspace(2.0, 0.4, 10)[:, None]
    records = np.abs(records) if nonnegative else records
    features, other, labels = records[:-1], records[-1:], np.arange(9) % 2
    if swapped:
        pair = Neighbours(np.concatenate([features[:-1], other]), labels, features, labels)
        apart = np.concatenate([features[-1:], other])
    else:
        pair, apart = Neighbours(features[:-1], labels[:-1], features, labels), features[-1:]
    moved = replace(experiment, neighbours=pair)
    steps = zip(distances(moved), moved.sigmas, strict=True)
    return replace(moved, mu=math.hypot(*(step / sigma for step, sigma in steps))), apart


NARROWED = {
    "shared": (r.shared_sums(adjacency=ADD, sigmas=(2.0, 2.0, 1.0)), False),
    "shared-swapped": (r.shared_sums(adjacency=SAME, sigmas=(2.0, 2.0, 1.0)), True),
    "classes": (r.class_sums(adjacency=ADD, sigmas=(2.0, 2.0, 1.0)), False),
    "ridge": (r.ridge_sums(adjacency=ADD, sigmas=(2.0, 1.0)), False),
    "constant": (r.ridge_sums(adjacency=ADD, sigmas=(2.0, 1.0), constant=True), False),
    "left-out": (r.beside_constant(r.count_sums(adjacency=SAME, sigmas=(2.0, 1.0))), True),
    "moments": (r.mean_second_moment(9, sigmas=(0.5, 0.5)), True),
}


@pytest.mark.parametrize("name", NARROWED)
def test_where_neighbours_differ_the_scores_have_the_law_that_they_have_at_full_width(name):
    full, apart = on_records(*NARROWED[name][:1], swapped=NARROWED[name][1])
    small = in_span(full, apart)
    assert small.neighbours.features0.shape[1] <= 3
    assert small.neighbours.labels1 is full.neighbours.labels1
    rng = np.random.default_rng(3)
    for a, b in zip(
        r.llr_scores(small, reruns=4000, rng=rng), r.llr_scores(full, reruns=4000, rng=rng), strict=True
    ):
        assert ks_2samp(a, b).pvalue > 1e-4
    assert_law(small, full.mu)
    assert_law(with_mu(small, 3.0), 3.0)
    assert with_mu(small, 3.0).sigmas == pytest.approx(with_mu(full, 3.0).sigmas)


@pytest.mark.parametrize("swapped", [True, False])
def test_nonnegative_records_are_nonnegative_in_their_span(swapped):
    experiment = r.shared_sums(adjacency=ADD, sigmas=(2.0, 2.0, 1.0), nonnegative=True)
    full, apart = on_records(experiment, swapped=swapped, nonnegative=True)
    assert in_span(full, apart).neighbours.features1.shape[1] == len(apart) + 1
    # What is cut off depends on the axes: negative features keep theirs.
    cut, apart = on_records(experiment, swapped=swapped)
    assert in_span(cut, apart) is cut


@pytest.mark.parametrize(
    ("experiment", "swapped"),
    [
        (r.mean_second_moment(9, sigmas=(0.5, 0.5), isometric=False), True),
        (r.mean_second_moment(9, sigmas=(0.5, 0.5), family="diag"), True),
        (r.mean_covariance(9, sigma=0.3), True),
        (r.class_sums(adjacency=ADD, sigmas=(2.0, 2.0, 1.0), family="diag"), False),
    ],
)
def test_what_is_noised_by_coordinates_keeps_them(experiment, swapped):
    full, apart = on_records(experiment, swapped=swapped)
    assert in_span(full, apart) is full


def test_a_span_as_wide_as_the_records_is_not_looked_for():
    full, apart = on_records(r.shared_sums(adjacency=ADD, sigmas=(2.0, 2.0, 1.0)), swapped=False, width=2)
    assert in_span(full, apart) is full


def test_too_little_noise_shows_in_the_span(monkeypatch):
    """Half of the noise that is declared: scores twice as far spread, at this width as at the other."""
    full, apart = on_records(r.shared_sums(adjacency=ADD, sigmas=(2.0, 2.0, 1.0)), swapped=False)
    small, kept = in_span(full, apart), tape.scaled_noise
    monkeypatch.setattr(tape, "scaled_noise", lambda *given: kept(*given) / 2)
    for experiment in (small, full):
        zero, _ = r.llr_scores(experiment, reruns=4000, rng=np.random.default_rng(0))
        assert np.std(zero) == pytest.approx(experiment.mu / 2, rel=0.1)


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
