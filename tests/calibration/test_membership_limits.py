"""Leaks that are planted at a limit of detection are found; smaller ones clearly less often."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import norm

from fedassay.audits.membership.detection_limit import Size, detectable
from fedassay.audits.membership.separation import Allowed, above_chance_p, separate_one_release
from fedassay.audits.stats.gdp_bound import gdp_bound
from fedassay.audits.stats.refuted import Refuted, refuted_epsilon
from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.privacy.gaussian import mu_of
from fedassay.records.record import Limit

RUNS = 200
TESTS = 50
TOLD = 5.0
"""Standard deviations by which the positive control's members score higher."""


def limit_for(size: Size, control: int = 400, told: float = TOLD) -> Limit:
    rng = np.random.default_rng(0)
    negative = (rng.normal(size=control), rng.normal(size=control))
    positive = (rng.normal(size=control), rng.normal(told, size=control))
    found = detectable(size, negative, (positive,), rng)
    assert isinstance(found, Limit), found
    return found


def share_of(limit: Limit) -> float:
    """The share of members that leak at a limit, stated as a true-positive rate."""
    rate = {"tpr_at_1pct": 0.01, "tpr_at_10pct": 0.1}[limit.metric]
    return (limit.value - rate) / (norm.sf(norm.isf(rate) - TOLD) - rate)


@pytest.mark.long
@pytest.mark.parametrize(("members", "non_members"), [(100, 100), (40, 60), (300, 150)])
def test_members_told_at_the_limit_are_found(members: int, non_members: int) -> None:
    limit = limit_for(Size(non_members, members, TESTS))

    def found(share: float) -> float:
        rng = np.random.default_rng(1)
        hits = 0
        for _ in range(RUNS):
            outside, inside = rng.normal(size=non_members), rng.normal(size=members)
            inside[: round(share * members)] += TOLD
            hits += above_chance_p(outside, inside, rng, TESTS) <= 0.05 / TESTS
        return hits / RUNS

    share = share_of(limit)
    assert 0 < share < 1
    assert found(share) >= 0.9
    assert found(share / 3) < 0.6


@pytest.mark.long
@pytest.mark.parametrize("members", [60, 200])
def test_a_control_that_is_told_less_well_gives_no_smaller_limit(members: int) -> None:
    size = Size(members, members, TESTS)
    weak, strong = limit_for(size, told=1.5), limit_for(size)
    assert weak.value > strong.value

    # Nor would one at the weak limit, of members who are told for sure, be missed.
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(RUNS):
        outside, inside = rng.normal(size=members), rng.normal(size=members)
        inside[: round(share_of(weak) * members)] += TOLD
        hits += above_chance_p(outside, inside, rng, TESTS) <= 0.05 / TESTS
    assert hits / RUNS >= 0.95


@pytest.mark.long
def test_a_shift_of_all_members_at_the_limit_is_found() -> None:
    limit = limit_for(Size(100, 100, TESTS))
    assert limit.shift is not None

    def found(area: float) -> float:
        rng = np.random.default_rng(2)
        step = np.sqrt(2) * norm.ppf(area)
        runs = ((rng.normal(size=100), rng.normal(step, size=100)) for _ in range(RUNS))
        return float(np.mean([above_chance_p(*run, rng, TESTS) <= 0.05 / TESTS for run in runs]))

    assert found(limit.shift) >= 0.9
    assert found(0.5 + (limit.shift - 0.5) / 3) < 0.6


@pytest.mark.long
def test_more_than_a_claim_at_the_limit_is_found() -> None:
    allowed = Allowed(0.5, 1e-5, "(0.5, 1e-05)")
    limit = limit_for(Size(300, 300, TESTS, allowed))
    assert limit.shift is None

    def found(share: float) -> float:
        rng = np.random.default_rng(3)
        members, blocks = np.arange(600) < 300, np.repeat("all", 600)
        hits = 0
        for _ in range(RUNS):
            scores = rng.normal(size=600)
            scores[: round(share * 300)] += TOLD
            ours = separate_one_release(scores, members, blocks, rng, delta=1e-5, tests=TESTS)
            hits += ours.exceeds(allowed).rejects
        return hits / RUNS

    # The limit is of the hardest shape; its words give that of the shape that is planted here.
    of_certain = re.search(r"rate of ([\d.]+) for a share of members told for certain", limit.words)
    assert of_certain is not None
    share = share_of(limit.model_copy(update={"value": float(of_certain[1])}))
    assert found(share) >= 0.9
    assert found(share / 3) < 0.6


def test_where_nothing_would_be_found_the_reason_says_what_would_decide() -> None:
    rng = np.random.default_rng(0)
    told = (rng.normal(size=100), rng.normal(TOLD, size=100))
    found = detectable(Size(4, 4, TESTS), (rng.normal(size=100), rng.normal(size=100)), (told,), rng)
    assert isinstance(found, str)
    assert "more candidates would decide" in found


@pytest.mark.parametrize(("claimed", "delta"), [(0.5, 1e-5), (2.0, 1e-5), (0.5, 0.3), (12.0, 1e-5)])
def test_an_epsilon_at_the_limit_is_refuted(claimed: float, delta: float) -> None:
    n, confidence = 2000, 1 - 0.05 / TESTS
    limit = refuted_epsilon(claimed, delta=delta, n=n, confidence=confidence)
    assert limit.gaussian is not None
    # A count of at most 1,000 refutes no epsilon above log(1,000).
    assert (limit.free is None) == (claimed > 7)
    assert claimed < limit.gaussian < (limit.free or np.inf)

    def refuted(epsilon: float, *, gaussian: bool) -> float:
        rng = np.random.default_rng(4)
        hits = 0
        for _ in range(RUNS):
            zero, one = rng.normal(size=n), rng.normal(mu_of(epsilon, delta), size=n)
            if gaussian:
                bound = gdp_bound(zero, one, delta=delta, confidence=confidence)
            else:
                bound = threshold_bound(zero, one, delta=delta, rng=rng, confidence=confidence)
            hits += (bound.epsilon or 0.0) > claimed
        return hits / RUNS

    for value, gaussian in ((limit.gaussian, True), (limit.free, False)):
        if value is None:
            continue
        assert refuted(value, gaussian=gaussian) >= 0.9
        assert refuted(claimed + (value - claimed) / 3, gaussian=gaussian) < 0.6


def test_few_releases_refute_nothing_large() -> None:
    limit = refuted_epsilon(8.0, delta=1e-5, n=200, confidence=0.999)
    assert limit.smallest is None
    assert "nothing by the assumption-free" in limit.words


@pytest.mark.parametrize(
    ("gaussian", "free", "smallest"), [(3.0, 4.0, 3.0), (4.0, 3.0, 3.0), (None, 5.0, 5.0), (6.0, None, 6.0)]
)
def test_the_smallest_epsilon_is_that_of_either_bound(
    gaussian: float | None, free: float | None, smallest: float
) -> None:
    assert Refuted(gaussian, free, 2000, 0.95).smallest == smallest
