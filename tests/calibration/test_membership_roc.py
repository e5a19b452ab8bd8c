"""Membership tests: silent on releases that say nothing, below the truth on those whose epsilon is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.audits.membership.separation import (
    Separation,
    allowed_by,
    baseline,
    metrics,
    roc_series,
    separate_many_releases,
    separate_one_release,
)
from fedassay.audits.stats.roc import tpr_at_fpr
from fedassay.exchange.release import PrivacyClaim
from fedassay.privacy.gaussian import epsilon_of

Matrix = NDArray[np.float64]
SEEDS = 400
# The 99.9 % quantile of Binomial(400, 0.05) over 400.
ALLOWED = 0.0875


def blocks_of(pairs: int, groups: int) -> tuple[NDArray[np.bool_], NDArray[np.str_]]:
    members = np.tile([True, False], pairs)
    return members, np.repeat(np.array([f"client/{i % groups}" for i in range(pairs)]), 2)


def one_release(seed: int, *, shift: float = 0.0, pairs: int = 60) -> Separation:
    """Scores tied together by one release: blocks have levels and spreads of their own."""
    rng = np.random.default_rng(seed)
    members, blocks = blocks_of(pairs, 5)
    level = {name: 3 * rng.standard_normal() for name in np.unique(blocks)}
    spread = {name: rng.gamma(2.0) for name in np.unique(blocks)}
    noise = rng.standard_t(3, len(members))
    scores = np.array(
        [level[b] + spread[b] * (x + shift * m) for b, x, m in zip(blocks, noise, members, strict=True)]
    )
    return separate_one_release(scores, members, blocks, rng, delta=1e-5, tests=1)


@pytest.mark.long
def test_silent_where_a_release_says_nothing() -> None:
    told = [one_release(seed) for seed in range(SEEDS)]
    assert np.mean([each.test.rejects for each in told]) <= ALLOWED
    assert np.mean([(each.bound.epsilon or 0) > 0 for each in told]) <= ALLOWED
    assert abs(np.mean([each.value for each in told]) - 0.5) < 0.01


def test_a_clear_shift_is_seen() -> None:
    told = [one_release(seed, shift=4.0) for seed in range(40)]
    assert np.mean([each.test.rejects for each in told]) > 0.9
    assert np.mean([(each.corrected.epsilon or 0) > 0.5 for each in told]) > 0.9


def test_a_corrected_level_is_smaller() -> None:
    rng = np.random.default_rng(0)
    members, blocks = blocks_of(100, 3)
    scores = members + rng.standard_normal(len(members))
    one, many = (
        separate_one_release(scores, members, blocks, np.random.default_rng(1), delta=0.0, tests=tests)
        for tests in (1, 1000)
    )
    assert one.bound.epsilon == many.bound.epsilon
    assert (many.corrected.epsilon or 0) < (one.corrected.epsilon or 0)
    assert many.reach < one.reach


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_the_bound_of_pairs_is_valid_and_close(epsilon: float) -> None:
    """Randomised response on which of a pair is the member attains (epsilon, 0) for one replaced record."""
    found = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        members, _ = blocks_of(400, 1)
        blocks = np.repeat(np.arange(400), 2)
        honest = rng.random(400) < 1 / (1 + math.exp(-epsilon))
        scores = np.where(np.repeat(honest, 2) == members, 1.0, 0.0)
        told = separate_one_release(scores, members, blocks, rng, delta=0.0, tests=1)
        found.append(told.bound.epsilon or 0.0)
    # Three numbers of guesses share the error, so the miss rate lies below the nominal one.
    assert np.mean(np.array(found) > epsilon) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)
    assert np.median(found) > 0.4 * epsilon


@pytest.mark.long
def test_independent_releases_bound_a_gaussian_mechanism() -> None:
    mu, delta = 1.0, 1e-5
    truth = epsilon_of(mu, delta)
    found, threshold = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        zero = mu * rng.standard_normal(2000) - mu * mu / 2
        one = mu * rng.standard_normal(2000) + mu * mu / 2
        told = separate_many_releases(zero, one, rng, delta=delta, tests=1, gaussian=(zero, one))
        found.append(told.bound.epsilon or 0.0)
        threshold.append(separate_many_releases(zero, one, rng, delta=delta, tests=1).bound.epsilon or 0.0)
    assert np.mean(np.array(found) > truth) <= 0.13
    assert np.median(found) > 0.85 * truth
    assert max(threshold) <= truth
    assert np.median(threshold) > 1


@pytest.mark.long
def test_independent_releases_are_silent_on_noise() -> None:
    flags = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        told = separate_many_releases(rng.standard_normal(120), rng.standard_normal(120), rng, delta=1e-5, tests=1)
        flags.append(told.test.rejects)
    assert np.mean(flags) <= ALLOWED


def test_scores_without_noise_are_told_with_certainty() -> None:
    told = separate_many_releases(
        np.full(100, -np.inf), np.full(100, np.inf), np.random.default_rng(0), delta=1e-5, tests=10
    )
    assert told.value == 1
    assert told.test.rejects
    assert told.corrected.epsilon == pytest.approx(told.reach)


def test_the_interval_at_low_error_covers() -> None:
    """Given the threshold that strangers set, the members' interval holds the rate at which members exceed it."""
    covered, allowed = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        non_members, members = rng.random(300), rng.random(300)
        rate = tpr_at_fpr(non_members, members, 0.01)
        threshold = np.sort(non_members)[-3]
        assert rate.low is not None
        assert rate.high is not None
        covered.append(rate.low <= 1 - threshold <= rate.high)
        allowed.append(1 - threshold)
    assert np.mean(covered) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / SEEDS)
    assert np.mean(allowed) == pytest.approx(0.01, abs=0.002)


def test_a_claim_for_added_records_allows_two_steps_for_a_replaced_one() -> None:
    claim = PrivacyClaim(epsilon=1.0, delta=1e-5, adjacency="add_remove", source="test")
    added, replaced = allowed_by(claim, replaced=False), allowed_by(claim, replaced=True)
    assert (added.epsilon, added.delta) == (1.0, 1e-5)
    assert replaced.epsilon == 2.0
    assert replaced.delta == pytest.approx(1e-5 * (1 + math.e))
    same = claim.model_copy(update={"adjacency": "replace_one_same_label"})
    assert allowed_by(same, replaced=True).epsilon == 1.0
    assert "two steps" in replaced.words


def test_what_a_claim_allows_lies_between_guessing_and_certainty() -> None:
    guess = baseline(None)
    assert guess["auc"].value == pytest.approx(0.5, abs=1e-3)
    assert guess["tpr_at_1pct"].value == 0.01
    claim = PrivacyClaim(epsilon=1.0, delta=1e-5, adjacency="replace_one", source="test")
    most = baseline(allowed_by(claim, replaced=True))
    assert most["tpr_at_1pct"].value == pytest.approx(0.01 * math.e + 1e-5)
    assert most["auc"].value is not None
    # The area under min(e^eps x, 1 - e^-eps (1 - x)) is 1 - 1/(1 + e^eps) where delta is 0.
    assert most["auc"].value == pytest.approx(1 - 1 / (1 + math.e), abs=1e-3)
    certain = baseline(allowed_by(claim.model_copy(update={"epsilon": 800.0}), replaced=True))
    assert certain["tpr_at_0.1pct"].value == 1


def test_the_curve_is_thinned_but_keeps_its_ends() -> None:
    rng = np.random.default_rng(0)
    told = separate_many_releases(
        rng.standard_normal(3000), 1 + rng.standard_normal(3000), rng, delta=1e-5, tests=1
    )
    columns = roc_series(told).columns
    assert 50 < len(columns["fpr"]) <= 202
    assert columns["fpr"][0] == columns["tpr"][0] == 0
    assert columns["fpr"][-1] == columns["tpr"][-1] == 1
    bands = zip(columns["tpr_low"], columns["tpr"], columns["tpr_high"], strict=True)
    assert all(low <= value <= high for low, value, high in bands)  # type: ignore[operator]
    found = metrics(told, "of a test")
    assert set(found) == {"auc", "tpr_at_1pct", "tpr_at_0.1pct", "observed"}
    assert found["tpr_at_1pct"].n == 3000


def test_few_strangers_cannot_resolve_a_low_rate() -> None:
    found = metrics(one_release(0), "of a test")
    assert found["tpr_at_1pct"].value is None
    assert "cannot resolve" in found["tpr_at_1pct"].reason
