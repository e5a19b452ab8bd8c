"""Scores of any membership attack: the estimators' own values, honest refusals, and no bound from nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import fedassay
from fedassay.audits.stats.one_run_fdp import one_run_fdp_bound
from fedassay.audits.stats.roc import auc, tpr_at_fpr
from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.support.errors import PlanError


def _scores(shift: float, seed: int = 0, n: int = 400) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(shift, 1, n), rng.normal(0, 1, n)


def test_every_number_is_that_of_its_estimator() -> None:
    members, others = _scores(2.0)
    found = fedassay.membership_report(members, others, trials="runs", delta=1e-5)
    area = auc(others, members)
    assert (found.auc.value, found.auc.low, found.auc.high, found.auc.n) == (area.value, area.low, area.high, 800)
    for allowed, metric in found.rates.items():
        rate = tpr_at_fpr(others, members, allowed)
        assert (metric.value, metric.low, metric.high, metric.reason) == (
            *(rate.value, rate.low, rate.high),
            rate.reason or "",
        )
    rng = np.random.default_rng(0)
    bound = threshold_bound(others, members, delta=1e-5, rng=rng, choice="bonferroni")
    assert found.epsilon.value == bound.epsilon
    assert (found.epsilon.value or 0) > 1


def test_one_run_is_the_bound_of_one_run() -> None:
    members, others = _scores(3.0)
    found = fedassay.membership_report(members, others, trials="one_run")
    scores, included = np.concatenate([others, members]), np.arange(800) >= 400
    # Nothing is tied, so the order of the scores is of no account.
    bound = one_run_fdp_bound(scores, included, delta=0.0, confidence=0.95)
    assert found.epsilon.value == pytest.approx(bound.epsilon)
    assert (found.epsilon.value or 0) > 1


@pytest.mark.parametrize("trials", ["one_run", "runs"])
def test_equal_scores_show_nothing_however_they_are_ordered(trials: Any) -> None:
    found = fedassay.membership_report(np.zeros(300), np.zeros(300), trials=trials)
    assert found.auc.value == 0.5
    assert found.epsilon.value == 0


@pytest.mark.parametrize("trials", ["one_run", "runs"])
def test_scores_of_noise_bound_epsilon_above_zero_in_few_runs(trials: Any) -> None:
    shown = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        included = rng.random(120) < 0.5
        scores = rng.normal(size=120)
        found = fedassay.membership_report(scores[included], scores[~included], trials=trials, seed=seed)
        shown += bool(found.epsilon.value)
    # Binomial (60, .05) exceeds 8 with chance .005.
    assert shown <= 8


def test_a_bound_without_its_assumption_is_not_given() -> None:
    members, others = _scores(3.0)
    assert fedassay.membership_report(members, others).epsilon.value is None
    unequal = fedassay.membership_report(members, others[:100], trials="one_run").epsilon
    assert unequal.value is None
    assert "400 of 500" in unequal.reason
    few = fedassay.membership_report(members[:3], others[:3], trials="runs").epsilon
    assert few.value is None


def test_it_is_a_table_text_and_json() -> None:
    members, others = _scores(1.0, n=60)
    found = fedassay.membership_report(members, others, trials="runs", false_alarms=(0.001, 0.1))
    lines = repr(found).splitlines()
    assert lines[1].startswith("  AUC: 0.")
    assert "not available: 60 non-members cannot resolve" in lines[2]
    assert lines[-1].startswith("  epsilon at delta 0: at least ")
    assert list(found.table["metric"]) == ["AUC", "TPR at FPR 0.001", "TPR at FPR 0.1", "epsilon at delta 0"]
    assert found.csv().startswith("metric,value,low,high,n,reason")
    assert json.loads(json.dumps(found.as_dict()))["rates"]["0.1"]["value"] == found.rates[0.1].value
    assert r"\toprule" in fedassay.latex(found.table)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"members": [[1.0, 2.0]]}, "members must be one axis"),
        ({"others": [1.0, float("nan")]}, "others must be one axis"),
        ({"others": ["a", "b"]}, "could not convert"),
        ({"delta": 1.0}, "allowed: a delta"),
        ({"false_alarms": (0.0,)}, "rates above 0"),
        ({"members": [1.0 + 1j, 2.0]}, "real numbers"),
        ({"members": np.ma.masked_less([1.0, 2.0, 3.0], 2)}, "masked"),
        ({"members": [10**400, 1]}, "too large"),
        ({"delta": "small"}, "could not convert"),
        ({"trials": "coin"}, "allowed: one_run, runs, or None"),
    ],
)
def test_wrong_input_is_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=f"^membership_report: .*{words}"):
        fedassay.membership_report(**{"members": [1.0, 2.0], "others": [0.0, 1.0]} | given)


def test_scores_of_which_low_values_mean_members_are_named() -> None:
    rng = np.random.default_rng(0)
    loss, other = rng.normal(1, 1, 200), rng.normal(3, 1, 200)
    found = fedassay.membership_report(loss, other)
    assert "given as its negative" in found.lines()[0]
    assert "given as its negative" in found.csv()
    assert "negative" not in repr(fedassay.membership_report(-loss, -other))


def test_a_tensor_and_one_rate_are_read() -> None:
    scores = torch.arange(9.0, requires_grad=True)
    assert set(fedassay.membership_report(scores + 1, scores, false_alarms=0.2).rates) == {0.2}
