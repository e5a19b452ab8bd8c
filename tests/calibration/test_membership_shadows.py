"""Tests by releases that are without a candidate, taken from online shadows: silent under the null, and as strong.

A signal is the candidate's own difficulty, plus `_SHIFT` where it was in, plus noise, plus what a release does
to all signals alike. Halves are drawn as a game draws them: by label, the second shadow with what the first is
without.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.membership.scores import lira_offline, lira_online, rmia
from fedassay.audits.membership.separation import above_chance_p
from fedassay.audits.stats.roc import auc
from fedassay.contracts.membership import half_of_each

Matrix = NDArray[np.float64]

_RUNS = 1000
_PAIRS, _SHADOWS, _SHIFT, _PEOPLE = 40, 16, 1.0, 60
_LABELS = np.tile(np.arange(4), 2 * _PAIRS // 4)
# The 99.9 % quantile of Binomial(1000, 0.05) over 1000.
_ALLOWED = 0.073


def _halves(rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which candidates are in which online shadow, (S, n)."""
    found = []
    for _ in range(_SHADOWS // 2):
        inside = np.isin(np.arange(2 * _PAIRS), half_of_each(_LABELS, rng))
        found += [inside, ~inside]
    return np.stack(found)


def _scored(seed: int, leak: float, *, shared: bool) -> tuple[dict[str, Matrix], NDArray[np.bool_]]:
    """Scores of every candidate by test, and who is a member; `shared`: out of online shadows, not of others."""
    rng = np.random.default_rng(seed)
    difficulty = 3 * rng.standard_normal(2 * _PAIRS + _PEOPLE)
    members = np.isin(np.arange(2 * _PAIRS), half_of_each(_LABELS, rng))

    def released(inside: NDArray[np.bool_], by: float) -> Matrix:
        own = np.concatenate([by * inside, np.zeros(_PEOPLE)])
        return np.asarray(difficulty + own + rng.standard_normal(len(difficulty)) + rng.standard_normal())

    target, included = released(members, leak), _halves(rng)
    online = np.stack([released(inside, _SHIFT) for inside in included])
    apart = np.stack([released(np.zeros(2 * _PAIRS, np.bool_), 0.0) for _ in range(_SHADOWS)])
    under = online if shared else apart
    out = included if shared else None
    asked = slice(2 * _PAIRS)
    return {
        "lira_online": lira_online(target[asked, None], online[:, asked, None], included),
        "lira_offline": lira_offline(target[asked, None], under[:, asked, None], out),
        "rmia": rmia(target[asked], under[:, asked], target[2 * _PAIRS :], under[:, 2 * _PAIRS :]),
    }, members


@pytest.mark.long
def test_a_release_that_says_nothing_is_rejected_as_often_as_the_level_says() -> None:
    rejected: Counter[str] = Counter()
    for seed in range(_RUNS):
        scores, members = _scored(seed, 0.0, shared=True)
        for test, each in scores.items():
            rng = np.random.default_rng(seed)
            rejected[test] += above_chance_p(each[~members], each[members], rng, 1) <= 0.05
    assert max(rejected.values()) / _RUNS <= _ALLOWED, rejected


@pytest.mark.long
@pytest.mark.parametrize("test", ["lira_offline", "rmia"])
def test_online_shadows_tell_what_as_many_others_do(test: str) -> None:
    found = {}
    for shared in (True, False):
        areas = []
        for seed in range(100):
            scores, members = _scored(seed, _SHIFT, shared=shared)
            value = auc(scores[test][~members], scores[test][members]).value
            assert value is not None
            areas.append(value)
        found[shared] = float(np.mean(areas))
    assert 0.65 < found[True] > found[False] - 0.005
