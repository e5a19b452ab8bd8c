"""Steps that privacy loss distributions do not take: more than a million, fixed batches, shuffled epochs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedassay.exchange.ledger import account
from fedassay.exchange.release import PrivacyClaim, Release
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.privacy.accounting import compose
from fedassay.privacy.events import GaussianEvent, PureEvent, Sampling, SubsampledGaussianEvent
from fedassay.privacy.gaussian import epsilon_of
from fedassay.privacy.renyi import epsilon_by_renyi
from fedassay.support.adjacency import Adjacency

DELTA = 1e-5


def steps(noise: float, rate: float, count: int, adjacency: Adjacency, sampling: Sampling = "poisson") -> float:
    event = SubsampledGaussianEvent(noise, rate, count, adjacency, sampling=sampling)
    return compose([event], DELTA).epsilon


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("noise", "rate", "count"), [(1.1, 0.01, 1000), (2.0, 0.1, 300), (0.8, 1e-3, 5000)])
def test_it_is_an_upper_bound_and_no_loose_one(
    adjacency: Adjacency, noise: float, rate: float, count: int
) -> None:
    tight = steps(noise, rate, count, adjacency)
    event = SubsampledGaussianEvent(noise, rate, count, adjacency)
    loose = epsilon_by_renyi(0.0, (), (event,), DELTA)
    # Replacement goes through the data set that lacks the record, which costs another factor.
    assert tight <= loose <= (2.5 if adjacency == "add_remove" else 4.5) * tight


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_gaussians_and_pure_events_stay_above_what_is_exact(mu: float) -> None:
    assert epsilon_of(mu, DELTA) <= epsilon_by_renyi(mu, (), (), DELTA) <= 1.25 * epsilon_of(mu, DELTA)
    both = epsilon_by_renyi(mu, (0.5,), (), DELTA)
    assert compose([GaussianEvent(mu), PureEvent(0.5)], DELTA).epsilon <= both


@pytest.mark.parametrize("count", [3_000_000, 10_000_000])
def test_more_steps_than_a_table_takes_are_no_basic_composition(count: int) -> None:
    found = compose([SubsampledGaussianEvent(0.7, 1e-4, count)], DELTA)
    assert found.method == "Rényi differential privacy, an upper bound"
    # A million steps are 0.979 by privacy loss distributions; more of them give more away, as their root at least.
    assert 0.979 * math.sqrt(count / 1e6) < found.epsilon < 5


@pytest.mark.long
@pytest.mark.parametrize(("noise", "rate"), [(2.0, 0.01), (5.0, 0.1), (4.0, 0.5)])
def test_fixed_batches_hold_what_their_worst_pair_shows(noise: float, rate: float) -> None:
    """Where all other gradients are 0, one record's batches are the mixtures of Poisson sampling."""
    count = 200
    attained = steps(noise, rate, count, "replace_one")
    fixed = steps(noise, rate, count, "replace_one", "fixed_size")
    unsampled = epsilon_of(2 * math.sqrt(count) / noise, DELTA)
    assert attained <= fixed <= unsampled
    assert compose(
        [SubsampledGaussianEvent(noise, 1.0, count, "replace_one", sampling="fixed_size")], DELTA
    ).epsilon == pytest.approx(unsampled)


def test_a_shuffled_epoch_is_one_step_of_every_record() -> None:
    assert steps(2.0, 0.01, 1000, "replace_one", "shuffled") == pytest.approx(steps(2.0, 1.0, 10, "replace_one"))
    # A begun epoch counts as a whole one.
    assert steps(2.0, 0.01, 1001, "replace_one", "shuffled") == pytest.approx(steps(2.0, 1.0, 11, "replace_one"))


@pytest.mark.parametrize("sampling", ["fixed_size", "shuffled"])
def test_batches_of_a_known_size_are_no_secret_number_of_records(sampling: Sampling) -> None:
    assert steps(2.0, 0.01, 100, "add_remove", sampling) == math.inf


@pytest.mark.parametrize("sampling", ["poisson", "fixed_size", "shuffled"])
def test_a_release_states_how_its_batches_were_made(sampling: Sampling) -> None:
    release = Release(
        mechanism="dp_sgd",
        adjacency="replace_one",
        noise_multiplier=2.0,
        sampling_rate=0.01,
        steps=500,
        sampling=sampling,
    )
    sent = Message(0, "client/0", "server", {"w": MessageField(np.zeros(3), "parameters", release)})
    claim = PrivacyClaim(epsilon=8.0, delta=DELTA, adjacency="replace_one", source="a test")
    total = account(Transcript("test", 2, (sent,), claim), "replace_one", DELTA)
    assert total.epsilon == pytest.approx(steps(2.0, 0.01, 500, "replace_one", sampling))
