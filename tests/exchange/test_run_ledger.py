"""What several runs give away together: one relation at a time, and never below what a pair of records meets."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from fedassay.exchange.ledger import account_together
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.recount import released
from fedassay.exchange.release import NoClaim, Release
from fedassay.exchange.run_ledger import together
from fedassay.exchange.transcript import Transcript
from fedassay.privacy.gaussian import epsilon_of, mu_of
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.epsilon import Epsilon

DELTA = 1e-5


def run(mu: float, adjacency: Adjacency = "add_remove", unit: Unit = "record", clients: int = 1) -> Transcript:
    """Every client releases one statistic with this mu under a relation."""
    release = Release(
        mechanism="gaussian", adjacency=adjacency, unit=unit, noise_scale=(1 / mu,), sensitivity=(1.0,)
    )
    messages = tuple(
        Message(0, f"client/{number}", SERVER, {"sums": MessageField(np.zeros(2), "class_sums", release)})
        for number in range(clients)
    )
    return Transcript("test", 1, messages, NoClaim())


def test_one_pair_that_is_worst_for_both_is_not_undercut() -> None:
    """One component of FedPFT and FedCGS at epsilon 8: 12.3 was printed, and one pair meets with 14.11."""
    mu = mu_of(8.0, DELTA)
    runs = [run(mu, "replace_one_same_label"), run(mu, "add_remove")]
    same_label = account_together(runs, "replace_one_same_label", DELTA)
    assert same_label.epsilon >= 14.11
    assert same_label.epsilon == pytest.approx(epsilon_of(math.hypot(mu, 2 * mu), DELTA), rel=1e-6)
    for relation in ("add_remove", "replace_one"):
        total = account_together(runs, relation, DELTA)
        assert math.isinf(total.epsilon)
        assert "replace_one_same_label" in total.method


def test_a_client_is_not_protected_by_what_was_noised_for_a_record() -> None:
    runs = [run(1.0, unit="record"), run(1.0, unit="client")]
    assert math.isinf(account_together(runs, "add_remove", DELTA, "client").epsilon)
    assert math.isfinite(account_together(runs, "add_remove", DELTA, "record").epsilon)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.05, 3), st.sampled_from(["add_remove", "replace_one"])), min_size=2, max_size=6)
)
def test_the_total_is_never_below_that_of_a_record_in_every_run(parts: list[tuple[float, Adjacency]]) -> None:
    runs = [run(mu, adjacency, clients=2) for mu, adjacency in parts]
    exact = epsilon_of(math.sqrt(sum((mu * (2 if kind == "add_remove" else 1)) ** 2 for mu, kind in parts)), DELTA)
    assert account_together(runs, "replace_one", DELTA).epsilon >= exact * (1 - 1e-9)


Part = tuple[str, Adjacency, tuple[float, float, float]]
"""What one run releases: over a client or by class, under which relation, and how much a class gives away."""

PARTS = st.tuples(
    st.sampled_from(["whole", "classes", "pure"]),
    st.sampled_from(["add_remove", "replace_one"]),
    st.tuples(*[st.floats(0.02, 1.5)] * 3),
)


def part_of(part: Part) -> Transcript:
    """Two clients release what a part says, with noise of one."""
    what, adjacency, sizes = part
    common = {"cells": tuple(f"class/{number}" for number in range(3))}
    if what == "pure":
        release = Release(mechanism="pure", adjacency="replace_one", pure_epsilon=sizes, **common)
    elif what == "classes":
        release = Release(
            mechanism="gaussian", adjacency=adjacency, noise_scale=(1.0,) * 3, sensitivity=sizes, **common
        )
    else:
        release = Release(mechanism="gaussian", adjacency=adjacency, noise_scale=(1.0,), sensitivity=sizes[:1])
    sent = {"a": MessageField(np.zeros(3), "other", release)}
    return Transcript("test", 3, tuple(Message(0, f"client/{i}", SERVER, sent) for i in range(2)), NoClaim())


def met_by(parts: list[Part], leaves: int, enters: int) -> tuple[float, list[float]]:
    """mu, and pure epsilons, of the pair in which a record leaves one class for another, moved as far as may be.

    What is released under add_remove may move once out and once in: by twice as much in one class. What is for
    replace_one moves as declared in each class that changes. Randomised response attains a pure epsilon.
    """
    squared, pures = 0.0, []
    for what, adjacency, sizes in parts:
        twice = 2.0 if adjacency == "add_remove" else 1.0
        changed = {leaves, enters}
        if what == "pure":
            pures += [sizes[number] for number in changed]
        elif what == "whole":
            squared += (twice * sizes[0]) ** 2
        elif len(changed) == 1:
            squared += (twice * sizes[leaves]) ** 2
        else:
            squared += sizes[leaves] ** 2 + sizes[enters] ** 2
    return math.sqrt(squared), pures


def exact(mu: float, pures: list[float]) -> float:
    """Epsilon at `DELTA` of a Gaussian beside randomised responses: its hockey stick is a sum over these."""

    def delta(epsilon: float) -> float:
        total = 0.0
        for signs in product((1, -1), repeat=len(pures)):
            loss = sum(sign * each for sign, each in zip(signs, pures, strict=True))
            chance = math.prod(1 / (1 + math.exp(-sign * each)) for sign, each in zip(signs, pures, strict=True))
            left = epsilon - loss
            if mu > 0:
                total += chance * (ndtr(mu / 2 - left / mu) - math.exp(left) * ndtr(-mu / 2 - left / mu))
            else:
                total += chance * max(0.0, 1 - math.exp(left))
        return total

    high = sum(pures) + mu * mu / 2 + 10 * mu + 1e-9
    return float(brentq(lambda epsilon: delta(epsilon) - DELTA, 0.0, high)) if delta(0.0) > DELTA else 0.0


@settings(max_examples=20, deadline=None)
@given(st.lists(PARTS, min_size=2, max_size=4))
def test_mixed_runs_are_never_below_a_pair_that_a_search_finds(parts: list[Part]) -> None:
    """Releases over clients and classes, of noise and pure, under two relations: every replacement is tried."""
    pairs = [met_by(parts, leaves, enters) for leaves in range(3) for enters in range(3)]
    worst = max(exact(mu, pures) for mu, pures in pairs)
    total = account_together([part_of(part) for part in parts], "replace_one", DELTA).epsilon
    assert worst * (1 - 1e-6) <= total < math.inf


def test_the_search_comes_close_where_one_pair_is_the_worst_of_all_runs() -> None:
    """What was printed before, the sum of the runs' own epsilons, is loose; what is composed at once is met."""
    parts: list[Part] = [("classes", "replace_one", (1.0, 0.2, 0.1)), ("whole", "add_remove", (0.5, 0.0, 0.0))]
    worst = max(exact(*met_by(parts, leaves, enters)) for leaves in range(3) for enters in range(3))
    total = account_together([part_of(part) for part in parts], "replace_one", DELTA).epsilon
    assert worst == pytest.approx(total, rel=1e-6)
    assert exact(1.0, []) == pytest.approx(epsilon_of(1.0, DELTA), rel=1e-6)
    assert exact(0.0, [1.0, 0.5]) == pytest.approx(1.5, abs=1e-4)


def cell(mu: float, adjacency: Adjacency, delta: float, claimed: float) -> SimpleNamespace:
    what = released(run(mu, adjacency))
    claim = Epsilon(claimed, delta, adjacency, "record")
    return SimpleNamespace(released=what, claimed=claim, adjacency=adjacency, unit="record", delta=delta)


def test_every_relation_that_occurs_gets_its_own_total_at_one_delta() -> None:
    cells = [cell(1.0, "add_remove", 1e-5, 4.4), cell(1.0, "replace_one", 1e-6, 4.4)]
    totals = together(cells)  # type: ignore[arg-type]
    assert [each.kind.adjacency for each in totals] == ["add_remove", "replace_one"]
    assert {each.kind.delta for each in totals} == {1e-5}
    first, second = (each.total for each in totals)
    assert first is not None
    assert second is not None
    assert not first.finite
    assert second.bare == pytest.approx(epsilon_of(math.sqrt(5), 1e-5), rel=1e-6)
    for each in totals:
        assert f"({each.kind.words}; " in each.text


def test_one_claim_and_older_records_have_no_total() -> None:
    alone = [cell(1.0, "add_remove", 1e-5, 4.4), cell(1.0, "add_remove", 1e-5, math.inf)]
    assert together(alone) == ()  # type: ignore[arg-type]
    older = [cell(1.0, "add_remove", 1e-5, 4.4) for _ in range(2)]
    older[0].released = None
    assert together(older) == ()  # type: ignore[arg-type]
