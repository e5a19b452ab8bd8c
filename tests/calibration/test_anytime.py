"""Bets against epsilon: the error is kept at whatever time one stops, and what is false falls soon."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.audits.claim.sequential import SequentialSettings, until_refuted
from fedassay.audits.stats.anytime import AnytimeBound
from fedassay.privacy.gaussian import epsilon_of, mu_of
from fedassay.privacy.reruns import Experiment, class_counts
from fedassay.privacy.variants import with_mu, with_reference_noise

DELTA, CLAIMED = 1e-5, 1.0
Scores = NDArray[np.float64]


def _randomised_response(epsilon: float, pairs: int, rng: np.random.Generator) -> tuple[Scores, Scores]:
    """The (epsilon, 0)-DP mechanism that attains its bound: no event is further apart than it allows."""
    honest = 1 / (1 + math.exp(-epsilon))
    return (rng.random(pairs) >= honest).astype(float), (rng.random(pairs) < honest).astype(float)


def _normals(mu: float, pairs: int, rng: np.random.Generator) -> tuple[Scores, Scores]:
    return rng.standard_normal(pairs), rng.standard_normal(pairs) + mu


def _ever(draw: object, parameter: float, runs: int, confidence: float = 0.95) -> int:
    """Runs in which the claim fell at any of 20 looks, where it is true."""
    assert callable(draw)
    fallen = 0
    for seed in range(runs):
        rng, bets = (
            np.random.default_rng(seed),
            AnytimeBound(CLAIMED, 0.0 if draw is _randomised_response else DELTA),
        )
        for _ in range(20):
            bets.see(*draw(parameter, 100, rng))
        fallen += bets.refutes(confidence)
    return fallen


@pytest.mark.long
@pytest.mark.parametrize(("draw", "parameter"), [(_randomised_response, CLAIMED), (_normals, mu_of(1.0, DELTA))])
def test_true_claims_fall_no_oftener_than_the_error_allows(draw: object, parameter: float) -> None:
    assert _ever(draw, parameter, 40) <= 6


@pytest.mark.slow
def test_error_of_a_thousand_null_runs_whatever_the_time_of_stopping() -> None:
    """Binomial(1000, .05) is above 68 about once in 250 times; the law that is tried here attains epsilon."""
    fallen = _ever(_randomised_response, CLAIMED, 1000)
    assert fallen <= 68, fallen


@pytest.mark.long
def test_a_bound_is_above_the_truth_no_oftener_either() -> None:
    above = 0
    for seed in range(40):
        rng, bets = np.random.default_rng(seed), AnytimeBound(0.5, 0.0)
        for _ in range(10):
            bets.see(*_randomised_response(1.0, 100, rng))
        above += (bets.bound(0.95).epsilon or 0.0) > 1.0
    assert above <= 6


@pytest.mark.parametrize(("claimed", "least"), [(1.0, 8), (4.0, 163)])
def test_scores_told_without_fail_refute_about_as_soon_as_is_possible(claimed: float, least: int) -> None:
    bets = AnytimeBound(claimed, DELTA)
    while not bets.refutes(0.95):
        bets.see(np.full(20, -math.inf), np.full(20, math.inf))
    assert least < bets.pairs < 2 * least + 100


def test_a_shift_of_either_sign_is_seen_and_the_bound_comes_near() -> None:
    for mu in (2.0, -2.0):
        bets, rng = AnytimeBound(1.0, DELTA), np.random.default_rng(0)
        for _ in range(20):
            bets.see(*_normals(mu, 500, rng))
        shown = bets.bound(0.95).epsilon
        assert shown is not None
        assert 2.0 < shown < epsilon_of(2.0, DELTA)


def test_sides_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="as many scores"):
        AnytimeBound(1.0, DELTA).see(np.zeros(3), np.zeros(4))


def _asked(claimed: float, releases: int = 4000) -> SequentialSettings:
    return SequentialSettings(claimed, DELTA, 100, releases, ("gaussian", "threshold"))


def _experiment() -> Experiment:
    return class_counts(adjacency="add_remove", sigma=1.0)


def test_a_false_claim_stops_the_releases_and_a_true_one_spends_them() -> None:
    false = until_refuted(with_mu(_experiment(), 20 * mu_of(4.0, DELTA)), _asked(4.0), np.random.default_rng(0))
    assert false.refuted
    assert 2 * false.bounds.n <= 2000
    true = until_refuted(
        with_reference_noise(_experiment(), mu_of(4.0, DELTA)), _asked(4.0), np.random.default_rng(0)
    )
    assert not true.refuted
    assert true.bounds.n == 4000


def test_the_gaussian_estimate_pays_for_every_look() -> None:
    """At the claim itself, looked at four times, it falls at 95 % no oftener than one look at 95 % would."""
    asked, fallen = SequentialSettings(1.0, DELTA, 1, 8000, ("gaussian",)), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        fallen += until_refuted(with_reference_noise(_experiment(), mu_of(1.0, DELTA)), asked, rng).refuted
    assert fallen <= 8
