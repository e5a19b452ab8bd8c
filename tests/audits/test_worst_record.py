"""Single records: bounds hold for all at once, an exposed one is found among many, and none is on noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attacked import by_ratio
from contexts import with_data

from fedassay.audits.membership.swaps import Guesses
from fedassay.audits.membership.worst_record import worst_record_finding
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.records.record import Finding

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


def _guesses(rates: np.ndarray, runs: int, seed: int) -> Guesses:
    """Guesses of coins of records that are told at these rates, (K,)."""
    rng = np.random.default_rng(seed)
    included = rng.random((runs, len(rates))) < 0.5
    guessed = np.where(rng.random(included.shape) < rates, included, ~included)
    return Guesses(guessed, included, "test", np.where(guessed, 1.0, -1.0))


def test_bounds_of_all_records_hold_at_once() -> None:
    rates = np.linspace(0.5, 0.95, 40)
    missed = sum(bool((_guesses(rates, 60, seed).lower(0.05) > rates).any()) for seed in range(300))
    assert missed <= 24


def test_records_that_nothing_tells_are_told_no_oftener_than_the_error_allows() -> None:
    told = sum(_guesses(np.full(40, 0.5), 60, seed).told(0.05) > 0 for seed in range(300))
    assert told <= 24


def test_one_exposed_record_among_many_is_found_where_the_mean_hides_it() -> None:
    found = _guesses(np.where(np.arange(40) == 7, 0.98, 0.5), 60, 0)
    assert found.right.mean() / found.runs < 0.54
    assert found.lower(0.05).argmax() == 7
    assert found.lower(0.05).max() > 0.7
    assert found.told(0.05) == 1


def _found(make_task: MakeTask, make_context: MakeContext, epsilon: float, runs: int) -> Finding:
    options = {} if np.isinf(epsilon) else {"epsilon": epsilon, "adjacency": "add_remove"}
    context = make_context(make_task(clients=2, records=60, **options), FedNCM(), bounds=50)
    return worst_record_finding(by_ratio(context), 8, runs)


def test_sums_without_noise_give_single_records_away(make_task: MakeTask, make_context: MakeContext) -> None:
    found = _found(make_task, make_context, np.inf, 60)
    assert found.verdict == "leak", found.reason
    worst, mean = found.metrics["worst_record"], found.metrics["mean_record"]
    assert worst.value is not None
    assert worst.low is not None
    assert mean.value is not None
    assert mean.value <= worst.value
    assert worst.low > 0.5
    assert found.controls.positive is not None
    assert found.controls.positive.caught
    assert found.controls.negative is not None
    assert not found.controls.negative.flagged


def test_noised_sums_do_not_and_say_what_would_have_been_found(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    found = _found(make_task, make_context, 1.0, 60)
    assert found.verdict in {"no_leak_found", "inconclusive"}, found.reason
    worst = found.metrics["worst_record"]
    assert worst.low is not None
    assert worst.low < found.baseline["worst_record"].value  # type: ignore[operator]


def test_without_strangers_of_their_labels_nothing_is_run(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(clients=2, records=60), FedCGS(), bounds=50)
    alone = with_data(context, test=context.data.test.take(np.zeros(0, np.int64)))
    attacked = with_data(by_ratio(context), test=alone.data.test)
    found = worst_record_finding(attacked, 8, 20)
    assert found.verdict == "not_run"
    assert "stand in" in found.reason


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_claim_allows_a_rate(make_task: MakeTask, make_context: MakeContext, epsilon: float) -> None:
    found = _found(make_task, make_context, epsilon, 20)
    allowed = found.baseline["worst_record"].value
    assert allowed is not None
    odds = np.exp(2 * epsilon)
    assert allowed == pytest.approx(odds / (1 + odds), abs=1e-2)
