"""Steps of DP-SGD at a limit of detection are refuted by canaries whose steps are seen; smaller leaks are not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedassay.audits.claim.canary_scores import CanaryScores
from fedassay.audits.claim.seen_steps import right_share, steps_of_rounds
from fedassay.audits.stats.sampled_gaussian_bound import refuted_by_guesses, sampled_gaussian_bound
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.privacy.accounting import compose
from fedassay.privacy.events import SubsampledGaussianEvent
from fedassay.privacy.gaussian import mu_of
from fedassay.support.adjacency import Adjacency
from fedassay.support.seeds import Seeds

DELTA, CANARIES, CONFIDENCE = 1e-5, 1000, 1 - 0.05 / 20


def _epsilon(noise: float, rate: float, steps: int, adjacency: Adjacency) -> float:
    return compose([SubsampledGaussianEvent(noise, rate, steps, adjacency)], DELTA).epsilon


def _right(noise: float, declared: float, rate: float, steps: int, adjacency: Adjacency, seed: int) -> int:
    """Right guesses of canaries of steps under other noise than is declared."""
    rng = np.random.default_rng(seed)
    included, scores = rng.random(CANARIES) < 0.5, CanaryScores(CANARIES, declared, rate, adjacency)
    moved = np.where(included, 1.0, 0.0 if adjacency == "add_remove" else -1.0)
    for _ in range(steps):
        scores.see((rng.random(CANARIES) < rate) * moved + noise * rng.standard_normal(CANARIES))
    return int(np.count_nonzero(scores.guessed() == included))


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "adjacency"),
    [
        (2.0, 1.0, 1, "add_remove"),
        (4.0, 1.0, 2, "replace_one"),
        pytest.param(1.5, 0.1, 20, "add_remove", marks=pytest.mark.slow),
    ],
)
def test_steps_at_the_limit_are_refuted(noise: float, rate: float, steps: int, adjacency: Adjacency) -> None:
    claimed = _epsilon(noise, rate, steps, adjacency)
    law = {"sampling_rate": rate, "steps": steps, "adjacency": adjacency}
    declared = steps_of_rounds(
        [PrivateSteps(noise, rate, steps, 1.0, 1.0)], Updates(1e-2), adjacency, DELTA, "all"
    )
    limit = refuted_by_guesses(
        claimed,
        delta=DELTA,
        guesses=CANARIES,
        confidence=CONFIDENCE,
        declared=SubsampledGaussianEvent(noise, rate, steps, adjacency),
        right=lambda less: right_share(declared, less, Seeds(0)),
    )
    assert limit is not None
    assert limit > claimed

    def refuted(epsilon: float) -> float:
        low, high = 0.3 * noise, noise
        for _ in range(9):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if _epsilon(middle, rate, steps, adjacency) > epsilon else (low, middle)
        hits = []
        for seed in range(60):
            right = _right(low, noise, rate, steps, adjacency, seed)
            bound = sampled_gaussian_bound(right, CANARIES, delta=DELTA, confidence=CONFIDENCE, **law)
            hits.append((bound.epsilon or 0.0) > claimed)
        return float(np.mean(hits))

    at, third = refuted(limit), refuted(claimed + (limit - claimed) / 3)
    assert at >= 0.87, (claimed, limit, at, third)
    assert third < 0.6


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_a_bound_says_at_which_confidence_it_holds(confidence: float) -> None:
    law: dict[str, Any] = {"sampling_rate": 0.5, "steps": 2, "adjacency": "add_remove", "delta": DELTA}
    for right in (50, 95):
        bound = sampled_gaussian_bound(right, 100, confidence=confidence, **law)
        assert bound.confidence == confidence
        assert bound.epsilon is not None
        assert (bound.epsilon == 0) == (right == 50)
        assert bound.mu == (0 if right == 50 else mu_of(bound.epsilon, DELTA))


def test_no_limit_where_nothing_would_refute_a_claim() -> None:
    declared = SubsampledGaussianEvent(0.6, 0.01, 1, "add_remove")
    found = refuted_by_guesses(30.0, delta=DELTA, guesses=100, confidence=CONFIDENCE, declared=declared)
    assert found is None
