"""Conversions from records to those who have several of them: against brute force, and against dp-accounting."""

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from fedassay.privacy import group_steps
from fedassay.privacy.accounting import compose
from fedassay.privacy.conversions import compose_for_group, group_pair, of_group
from fedassay.privacy.events import GaussianEvent, PureEvent, SubsampledGaussianEvent, Unbounded
from fedassay.privacy.gaussian import delta_of, epsilon_of
from fedassay.privacy.group_steps import group_step
from fedassay.support.adjacency import Adjacency

STEPS = [(2.0, 0.05, 4), (1.0, 0.3, 3), (0.8, 0.02, 6), (3.0, 0.9, 2)]


def by_subsets(noise: float, rate: float, members: int, x: np.ndarray) -> np.ndarray:
    """Density of a step's output where so many records of gradient 1 are sampled: over all their subsets."""
    total = np.zeros_like(x)
    for coins in itertools.product((0, 1), repeat=members):
        chance = math.prod(rate if coin else 1 - rate for coin in coins)
        total += chance * norm.pdf(x, sum(coins), noise)
    return total


@pytest.mark.parametrize(("noise", "rate", "members"), STEPS)
def test_a_step_is_the_mixture_over_all_subsets(noise: float, rate: float, members: int) -> None:
    x = np.linspace(-15 * noise, members + 15 * noise, 20_001)
    width = x[1] - x[0]
    with_them, without = by_subsets(noise, rate, members, x), norm.pdf(x, 0, noise)
    step = group_step(noise, rate, members, 1e-3)
    for epsilon in (0.05, 0.3, 1.0, 2.5):
        removed = float(np.maximum(with_them - math.exp(epsilon) * without, 0).sum() * width)
        added = float(np.maximum(without - math.exp(epsilon) * with_them, 0).sum() * width)
        found = step.get_delta_for_epsilon(epsilon)
        # The reference is a sum over a grid, with an error of about 1e-8 at the kink.
        assert found >= max(removed, added) - 1e-7
        assert found <= max(removed, added) * 1.001 + 1e-7


@pytest.mark.parametrize(("noise", "rate", "members"), STEPS[:2])
def test_two_steps_are_those_of_brute_force(noise: float, rate: float, members: int) -> None:
    x = np.linspace(-8 * noise, members + 8 * noise, 601)
    area = (x[1] - x[0]) ** 2
    one, zero = by_subsets(noise, rate, members, x), norm.pdf(x, 0, noise)
    both, neither = np.outer(one, one), np.outer(zero, zero)
    twice = group_step(noise, rate, members, 1e-3).self_compose(2)
    for epsilon in (0.3, 1.5):
        factor = math.exp(epsilon)
        removed = float(np.maximum(both - factor * neither, 0).sum() * area)
        added = float(np.maximum(neither - factor * both, 0).sum() * area)
        found = twice.get_delta_for_epsilon(epsilon)
        assert found == pytest.approx(max(removed, added), rel=2e-3, abs=1e-7)


def test_steps_are_those_of_dp_accounting() -> None:
    noise, rate, members = 2.0, 0.05, 4
    chances = binom.pmf(range(members + 1), members, rate).tolist()
    theirs = pld.from_mixture_gaussian_mechanism(
        noise, list(map(float, range(members + 1))), chances, value_discretization_interval=0.05
    ).self_compose(50)
    ours = group_step(noise, rate, members, 0.05).self_compose(50)
    for delta in (1e-3, 1e-5):
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-6)


def test_one_member_is_dp_sgd_of_records() -> None:
    """Persons that are sampled and clipped as one are accounted like records: dp-accounting's own figures."""
    noise, rate, steps = 1.5, 0.1, 40
    theirs = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-3)
    expected = theirs.self_compose(steps).get_epsilon_for_delta(1e-5)
    assert compose([SubsampledGaussianEvent(noise, rate, steps)], 1e-5).epsilon == pytest.approx(
        expected, rel=2e-3
    )
    alone = group_step(noise, rate, 1, 1e-3).self_compose(steps).get_epsilon_for_delta(1e-5)
    assert alone == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("adjacency", "replaced"), [("add_remove", False), ("replace_one", True)])
def test_steps_of_a_group_are_composed_with_the_noise_rate_and_number_that_they_have(
    adjacency: Adjacency, replaced: bool
) -> None:
    event = SubsampledGaussianEvent(1.4, 0.07, 20, adjacency, 3)
    expected = group_step(1.4, 0.07, 3, 1e-3, replaced=replaced).self_compose(20).get_epsilon_for_delta(1e-5)
    assert compose([event], 1e-5).epsilon == pytest.approx(expected, rel=2e-3)


def test_more_members_give_more_away_up_to_all_of_them() -> None:
    event = SubsampledGaussianEvent(2.0, 0.1, 20)
    found = [compose_for_group([event], members, 1e-5, "add_remove").epsilon for members in (1, 2, 6)]
    assert found[0] < found[1] < found[2]
    # No sampling hides anybody better than none does.
    for members, epsilon in zip((1, 2, 6), found, strict=True):
        assert epsilon <= epsilon_of(members * math.sqrt(20) / 2.0, 1e-5)
    # The general theorem is far looser.
    assert found[1] < 2 * compose([event], 1e-9).epsilon


def test_gaussians_and_pure_releases_of_a_group() -> None:
    assert of_group(GaussianEvent(0.5), 4) == GaussianEvent(2.0)
    assert of_group(PureEvent(0.5), 4) == PureEvent(2.0)
    unknown = Unbounded("no noise")
    assert of_group(unknown, 4) == unknown
    found = compose_for_group([GaussianEvent(0.3), GaussianEvent(0.4)], 3, 1e-5, "replace_one")
    assert found.mu == pytest.approx(1.5)
    with pytest.raises(ValueError, match="at least 1"):
        of_group(PureEvent(1.0), 0)


def test_a_pair_for_a_group_is_the_sum_over_a_chain() -> None:
    for epsilon, delta, members in ((0.5, 1e-5, 1), (0.5, 1e-5, 3), (1.0, 1e-6, 7), (0.0, 1e-6, 4)):
        chain = sum(delta * math.exp(step * epsilon) for step in range(members))
        pair = group_pair(epsilon, delta, members)
        assert pair.epsilon == pytest.approx(members * epsilon)
        assert pair.delta == pytest.approx(chain, rel=1e-12)
    assert group_pair(50.0, 1e-5, 40).delta == 1.0
    assert group_pair(1.0, 0.0, 5).delta == 0.0
    assert group_pair(math.inf, 1e-5, 2).delta == 1.0
    with pytest.raises(ValueError, match="delta in"):
        group_pair(1.0, 2.0, 2)


def test_a_pair_holds_for_the_gaussian_it_is_loose_for() -> None:
    """A Gaussian of mu is known exactly for a group, at m mu: the general theorem must not promise more."""
    for mu, members in ((0.5, 3), (1.0, 2)):
        for epsilon in (0.5, 1.0, 2.0):
            pair = group_pair(epsilon, delta_of(mu, epsilon), members)
            assert pair.delta >= delta_of(members * mu, pair.epsilon)


def test_replacing_is_removing_and_adding() -> None:
    pair = group_pair(1.0, 1e-6, 2)
    assert (pair.epsilon, pair.delta) == (2.0, pytest.approx((1 + math.e) * 1e-6))
    # A Gaussian's replacement is known exactly, at 2 mu.
    for epsilon in (0.5, 1.5):
        assert group_pair(epsilon, delta_of(0.7, epsilon), 2).delta >= delta_of(1.4, 2 * epsilon)


@given(
    epsilon=st.floats(0, 2000),
    delta=st.floats(1e-300, 1),
    records=st.integers(1, 50),
)
@example(epsilon=650.0, delta=1e-300, records=2)
def test_a_groups_delta_grows_as_the_chain_says_at_any_epsilon(epsilon: float, delta: float, records: int) -> None:
    """Above every epsilon that e to its power can be written for, too: a cut-off ratio of two would be 1."""
    with localcontext() as exact:
        exact.prec = 60
        chain = sum((Decimal(step) * Decimal(epsilon)).exp() for step in range(records)) * Decimal(delta)
    expected = float(min(chain, Decimal(1)))
    assert group_pair(epsilon, delta, records).delta == pytest.approx(expected, rel=1e-9, abs=0)


def test_a_group_is_replaced_in_dp_sgd_without_doubling_its_sensitivity() -> None:
    event = SubsampledGaussianEvent(4.0, 0.05, 10, "replace_one")
    found = compose_for_group([event], 3, 1e-5, "replace_one")
    removed = compose_for_group([SubsampledGaussianEvent(4.0, 0.05, 10)], 3, 1e-5, "add_remove")
    assert removed.epsilon < found.epsilon < 2.1 * removed.epsilon
    assert found.epsilon <= epsilon_of(2 * 3 * math.sqrt(10) / 4.0, 1e-5)
    beside = compose_for_group([event, GaussianEvent(0.1)], 3, 1e-5, "replace_one")
    assert beside.epsilon > found.epsilon
    single = compose_for_group([event], 1, 1e-5, "replace_one").epsilon
    assert single == compose([event], 1e-5).epsilon


def test_a_replaced_group_is_not_as_if_all_of_it_took_part() -> None:
    """Without sampling 6 records in 100 steps come to thousands, and so did removing and adding them."""
    event = SubsampledGaussianEvent(1.0, 0.01, 100, "replace_one")
    assert epsilon_of(2 * 6 * math.sqrt(100) / 1.0, 1e-5) > 7_000
    assert 6 < compose_for_group([event], 6, 1e-5, "replace_one").epsilon < 7


def test_one_replaced_member_is_dp_accountings_replacement() -> None:
    for noise, rate, steps in ((1.5, 0.1, 40), (0.7, 0.02, 10)):
        theirs = pld.from_gaussian_mechanism(
            noise,
            sampling_prob=rate,
            value_discretization_interval=1e-3,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        ).self_compose(steps)
        ours = group_step(noise, rate, 1, 1e-3, replaced=True).self_compose(steps)
        for delta in (1e-3, 1e-6):
            assert ours.get_epsilon_for_delta(delta) == pytest.approx(
                theirs.get_epsilon_for_delta(delta), rel=1e-3
            )


@pytest.mark.parametrize(("noise", "rate", "members"), STEPS)
def test_a_replaced_group_is_the_mixture_against_its_mirror_image(noise: float, rate: float, members: int) -> None:
    x = np.linspace(-members - 15 * noise, members + 15 * noise, 40_001)
    width = x[1] - x[0]
    ours = by_subsets(noise, rate, members, x)
    theirs, step = ours[::-1], group_step(noise, rate, members, 1e-3, replaced=True)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        expected = float(np.maximum(ours - math.exp(epsilon) * theirs, 0).sum() * width)
        found = step.get_delta_for_epsilon(epsilon)
        assert found >= expected - 1e-7
        assert found <= expected * 1.001 + 1e-6


@pytest.mark.long
def test_no_replacement_of_a_group_is_worse_than_opposite_gradients() -> None:
    """Any gradients of norm at most 1 in the plane, by brute force over the subsets of three records."""
    rng, noise, rate, members = np.random.default_rng(0), 0.7, 0.4, 3
    axis = np.linspace(-members - 6 * noise, members + 6 * noise, 301)
    plane, area = np.stack(np.meshgrid(axis, axis), axis=-1), (axis[1] - axis[0]) ** 2
    subsets = list(itertools.product((0, 1), repeat=members))

    def density(gradients: np.ndarray) -> np.ndarray:
        chances = [rate ** sum(s) * (1 - rate) ** (members - sum(s)) for s in subsets]
        off = [((plane - np.array(s) @ gradients) ** 2).sum(axis=-1) for s in subsets]
        parts = [c * np.exp(-each / (2 * noise**2)) for c, each in zip(chances, off, strict=True)]
        return np.sum(parts, axis=0) / (2 * math.pi * noise**2)

    step = group_step(noise, rate, members, 1e-3, replaced=True)
    bounds = {epsilon: step.get_delta_for_epsilon(epsilon) for epsilon in (0.0, 0.5, 1.5, 3.0)}
    nearest = 0.0
    for trial in range(60):
        turns = rng.uniform(0, 2 * math.pi, 2 * members)
        if trial % 3 == 0:
            turns = np.repeat([0.0, math.pi], members) + rng.normal(0, 0.1, 2 * members) * (trial > 0)
        lengths = np.where(rng.random(2 * members) < 0.5, 1.0, rng.random(2 * members)) if trial % 2 else 1.0
        vectors = (lengths * np.stack([np.cos(turns), np.sin(turns)])).T
        one, other = density(vectors[:members]), density(vectors[members:])
        for epsilon, bound in bounds.items():
            found = float(np.maximum(one - math.exp(epsilon) * other, 0).sum() * area)
            assert found <= bound + 2e-4
            nearest = max(nearest, found / bound)
    assert nearest > 0.99


@pytest.mark.long
@pytest.mark.parametrize("replaced", [False, True])
def test_places_that_are_looked_for_block_by_block_are_those_of_all_at_once(monkeypatch, replaced: bool) -> None:
    def deltas() -> list[float]:
        step = group_step(0.7, 0.3, 4, 1e-2, replaced=replaced)
        return [step.get_delta_for_epsilon(epsilon) for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0)]

    whole = deltas()
    monkeypatch.setattr(group_steps, "_TOGETHER", 64)
    assert deltas() == whole


def test_a_groups_steps_are_of_the_relation_that_is_asked_for() -> None:
    event = SubsampledGaussianEvent(2.0, 0.05, 20)
    for relation in ("add_remove", "replace_one"):
        asked = compose_for_group([event], 1, 1e-5, adjacency=relation).epsilon
        own = SubsampledGaussianEvent(2.0, 0.05, 20, relation)
        assert asked == pytest.approx(compose([own], 1e-5).epsilon, rel=1e-9)
