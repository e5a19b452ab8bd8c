"""Composition: exact where it can be, close to and never below the truth elsewhere."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from fedassay.privacy.accounting import _fewer_pure, _fewer_sampled, calibrate_noise_multiplier, compose
from fedassay.privacy.events import GaussianEvent, PureEvent, SubsampledGaussianEvent, Unbounded
from fedassay.privacy.gaussian import compose_mu, epsilon_of
from fedassay.privacy.second_opinion import second_opinion
from fedassay.support import limits
from fedassay.support.errors import PlanError

DELTA = 1e-5


def test_gaussians_compose_exactly():
    total = compose([GaussianEvent(0.6), GaussianEvent(0.8)], DELTA)
    assert total.mu == pytest.approx(1.0, rel=1e-15)
    assert total.epsilon == pytest.approx(4.3771781, abs=1e-7)
    assert compose([], DELTA).epsilon == 0
    assert compose([GaussianEvent(0.0)], DELTA).epsilon == 0


def test_full_batch_dp_sgd_is_a_gaussian_of_twice_the_reach_under_replacement():
    add = compose([SubsampledGaussianEvent(2.0, 1.0, 9)], DELTA)
    assert add.mu == pytest.approx(1.5)
    replace = compose([SubsampledGaussianEvent(2.0, 1.0, 9, "replace_one_same_label")], DELTA)
    assert replace.mu == pytest.approx(3.0)


@pytest.mark.parametrize(
    "event",
    [
        Unbounded("counts leave exactly"),
        GaussianEvent(math.inf),
        PureEvent(math.inf),
        SubsampledGaussianEvent(0.0, 0.1, 3),
    ],
)
def test_one_unbounded_event_makes_the_total_infinite_and_says_why(event):
    total = compose([GaussianEvent(0.1), event], DELTA)
    assert total.epsilon == math.inf
    assert total.mu is None
    assert "exactly" in total.method or "without noise" in total.method or "infinite" in total.method


def test_events_that_release_nothing_cost_nothing():
    nothing = [SubsampledGaussianEvent(0.0, 0.0, 5), SubsampledGaussianEvent(1.0, 0.5, 0), PureEvent(0.0)]
    assert compose(nothing, DELTA).epsilon == 0


def test_unknown_events_are_refused():
    with pytest.raises(TypeError, match="no accountant here supports str"):
        compose([GaussianEvent(1.0), "laplace"], DELTA)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GaussianEvent(-1.0),
        lambda: GaussianEvent(math.nan),
        lambda: PureEvent(-0.1),
        lambda: SubsampledGaussianEvent(-1.0, 0.1, 1),
        lambda: SubsampledGaussianEvent(1.0, 1.1, 1),
        lambda: SubsampledGaussianEvent(1.0, 0.1, -1),
        lambda: compose([], 0.0),
        lambda: compose([], 1.0),
        lambda: calibrate_noise_multiplier(0.0, DELTA, sampling_rate=0.1, steps=5),
        lambda: calibrate_noise_multiplier(1.0, DELTA, sampling_rate=0.0, steps=5),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_what_pld_cannot_do_is_refused():
    with pytest.raises(PlanError, match="delta"):
        compose([SubsampledGaussianEvent(1.0, 0.1, 10)], 1e-13)
    with pytest.raises(ValueError, match="different adjacencies"):
        compose([SubsampledGaussianEvent(1, 0.1, 9), SubsampledGaussianEvent(1, 0.1, 9, "replace_one")], DELTA)


def optimal_pure_delta(epsilon0: float, count: int, epsilon: float) -> float:
    """Kairouz, Oh and Viswanath (2015), Theorem 3.3, by its own sum over binomial outcomes."""
    p = 1 / (1 + math.exp(-epsilon0))
    return sum(
        math.comb(count, j)
        * p**j
        * (1 - p) ** (count - j)
        * max(0.0, 1 - math.exp(epsilon - (2 * j - count) * epsilon0))
        for j in range(count + 1)
    )


@pytest.mark.parametrize(("epsilon0", "count"), [(0.1, 40), (1.0, 12), (0.01, 200)])
def test_pure_events_compose_optimally_and_never_worse_than_basic(epsilon0, count):
    total = compose([PureEvent(epsilon0)] * count, DELTA)
    assert total.epsilon <= epsilon0 * count
    assert optimal_pure_delta(epsilon0, count, total.epsilon) <= DELTA * (1 + 1e-9)
    assert optimal_pure_delta(epsilon0, count, 0.99 * total.epsilon) > DELTA


def test_very_many_pure_events_are_a_gaussian():
    """Randomised responses of epsilon e tend to mu = e sqrt(count) (Dong, Roth and Su 2022, Theorem 3.5)."""
    total = compose([PureEvent(1e-3)] * 70_000, DELTA)
    assert total.epsilon == pytest.approx(epsilon_of(1e-3 * math.sqrt(70_000), DELTA), rel=1e-3)


def test_a_single_pure_event_and_tiny_deltas_use_basic_composition():
    assert compose([PureEvent(1.0)], DELTA).epsilon == 1.0
    tiny = compose([PureEvent(1.0), GaussianEvent(1.0)], 1e-30)
    assert tiny.epsilon == pytest.approx(1.0 + epsilon_of(1.0, 1e-30))


def test_gaussian_and_pure_mixture_lies_between_its_part_and_basic():
    total = compose([GaussianEvent(1.0), PureEvent(0.5)], DELTA)
    assert epsilon_of(1.0, DELTA) < total.epsilon < epsilon_of(1.0, DELTA) + 0.5
    # Laplace of that epsilon is one of the mechanisms covered, so it must not come out worse.
    from dp_accounting.pld import privacy_loss_distribution as pld

    laplace = pld.from_laplace_mechanism(2.0).compose(pld.from_gaussian_mechanism(1.0))
    assert total.epsilon >= laplace.get_epsilon_for_delta(DELTA) - 1e-6


def mixture_divergence(g, h, q, z, order, grid):
    """Hockey-stick divergence of (1-q) N(0) + q N(g) from (1-q) N(0) + q N(h) in the plane, by quadrature."""
    points, cell = grid

    def density(mean):
        return np.exp(-np.sum((points - mean) ** 2, axis=-1) / (2 * z * z)) / (2 * np.pi * z * z)

    zero = density(np.zeros(2))
    difference = (1 - q) * zero + q * density(g) - order * ((1 - q) * zero + q * density(h))
    return float(np.sum(np.maximum(difference, 0)) * cell)


@pytest.mark.long
def test_opposite_gradients_dominate_replacement_under_poisson_sampling():
    """The claim that the module's docstring proves, against random pairs of clipped gradients in the plane."""
    rng = np.random.default_rng(0)
    z = 0.8
    axis = np.arange(-6, 6, 0.04)
    grid = (np.stack(np.meshgrid(axis, axis), axis=-1), 0.04**2)
    for q in (0.05, 0.5):
        for order in (1.0, 1.05, 1.5, 3.0):
            worst = mixture_divergence(np.array([1.0, 0]), np.array([-1.0, 0]), q, z, order, grid)
            for _ in range(12):
                angle, length = rng.uniform(0, 2 * np.pi, 2), np.sqrt(rng.uniform(0, 1, 2))
                g, h = np.stack([length * np.cos(angle), length * np.sin(angle)], axis=-1)
                assert mixture_divergence(g, h, q, z, order, grid) <= worst + 1e-6


def test_one_sampled_step_under_replacement_against_quadrature():
    q, z = 0.2, 0.7
    epsilon = compose([SubsampledGaussianEvent(z, q, 1, "replace_one")], 1e-4).epsilon
    x = np.linspace(-12, 12, 400_001)

    def density(mean):
        return np.exp(-((x - mean) ** 2) / (2 * z * z)) / math.sqrt(2 * math.pi * z * z)

    p, r = (1 - q) * density(0) + q * density(1), (1 - q) * density(0) + q * density(-1)
    delta = float(np.sum(np.maximum(p - math.exp(epsilon) * r, 0)) * (x[1] - x[0]))
    assert 0.98e-4 < delta <= 1e-4 * (1 + 1e-6)


def test_replacement_costs_more_than_removal_but_not_much_more_than_twice():
    step = compose([SubsampledGaussianEvent(1.0, 0.02, 500)], DELTA).epsilon
    replaced = compose([SubsampledGaussianEvent(1.0, 0.02, 500, "replace_one")], DELTA).epsilon
    assert step < replaced < 2.5 * step


def random_composition(seed: int) -> list[GaussianEvent | SubsampledGaussianEvent]:
    """Up to three DP-SGD runs and three Gaussian releases with sizes as in practice."""
    rng = np.random.default_rng(seed)
    events: list[GaussianEvent | SubsampledGaussianEvent] = [
        SubsampledGaussianEvent(
            float(rng.uniform(0.7, 3.0)), float(10 ** rng.uniform(-2.5, -0.7)), int(10 ** rng.uniform(1, 2.7))
        )
        for _ in range(int(rng.integers(1, 4)))
    ]
    return events + [GaussianEvent(float(rng.uniform(0.05, 1.0))) for _ in range(int(rng.integers(1, 4)))]


def check_against_peers(seed: int) -> None:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    events = random_composition(seed)
    ours = compose(events, DELTA).epsilon
    gaussian = compose_mu(e.mu for e in events if isinstance(e, GaussianEvent))
    sampled = [e for e in events if isinstance(e, SubsampledGaussianEvent)]

    peer = PLDAccountant(value_discretization_interval=1e-4)
    peer.compose(GaussianDpEvent(1 / gaussian))
    for event in sampled:
        step = PoissonSampledDpEvent(event.sampling_rate, GaussianDpEvent(event.noise_multiplier))
        peer.compose(SelfComposedDpEvent(step, event.steps))
    assert ours == pytest.approx(peer.get_epsilon(DELTA), rel=0.01)

    lower, estimate, _ = second_opinion(events, DELTA, error=0.002 * ours)
    assert ours >= lower  # never below the truth: Opacus' rigorous lower bound on the same composition
    assert ours == pytest.approx(estimate, rel=0.01)


def test_the_second_opinion_knows_that_all_records_are_no_sample():
    """Full batches are Gaussian mechanisms, of mu sqrt(steps) / noise (Dong, Roth and Su 2022, Corollary 3.3)."""
    opinion = second_opinion([SubsampledGaussianEvent(4.0, 1.0, 9)], DELTA)
    assert opinion.estimate == pytest.approx(epsilon_of(3 / 4, DELTA), rel=0.01)


def test_many_alike_steps_are_composed_as_they_are():
    """More steps than kinds that are told apart, of two kinds: nothing has to be taken for worse than it is."""
    often, once = SubsampledGaussianEvent(1.0, 0.05, 1), SubsampledGaussianEvent(4.0, 0.01, 1)
    several = [often] * (2 * limits.DISTINCT) + [once]
    assert sorted(_fewer_sampled(several), key=repr) == sorted(several, key=repr)
    told = compose([replace(often, steps=2 * limits.DISTINCT), once], DELTA)
    assert compose(several, DELTA).epsilon == told.epsilon


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 6, 10])
def test_random_compositions_against_dp_accounting_and_opacus(seed):
    check_against_peers(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted(set(range(20)) - {1, 6, 10}))
def test_more_random_compositions_against_dp_accounting_and_opacus(seed):
    check_against_peers(seed)


def test_never_below_the_truth_where_it_is_known():
    """A Gaussian forced through the PLD path by a pure event too small to matter: the truth is analytic."""
    for mu in (0.05, 0.3, 1.0, 4.0):
        truth = epsilon_of(mu, DELTA)
        total = compose([GaussianEvent(mu), SubsampledGaussianEvent(50.0, 1e-6, 1)], DELTA)
        assert truth <= total.epsilon <= 1.005 * truth


@pytest.mark.long
@pytest.mark.parametrize(("noise", "steps"), [(30.0, 1000), (10.0, 1000), (100.0, 100_000)])
@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-11])
def test_rounding_of_convolutions_never_takes_the_bound_below_the_truth(noise, steps, delta):
    """Sampling so nearly everybody that the Gaussian of full batches is the truth to far below its rounding."""
    truth = epsilon_of(math.sqrt(steps) / noise, delta)
    found = compose([SubsampledGaussianEvent(noise, 1 - 1e-12, steps)], delta).epsilon
    assert truth * (1 - 1e-9) <= found <= 1.02 * truth


def test_full_batches_bound_what_no_grid_can_hold():
    """Losses of 10^11, and noise that leaves none: answered at once, by Rényi divergences or without sampling."""
    for adjacency, reach in (("add_remove", 1.0), ("replace_one", 2.0)):
        total = compose([SubsampledGaussianEvent(1e-6, 0.01, 10, adjacency)], DELTA)
        assert total.epsilon == pytest.approx(epsilon_of(reach * math.sqrt(10) / 1e-6, DELTA))
        many = compose([SubsampledGaussianEvent(1.0, 0.01, 10**15, adjacency)], DELTA)
        limit = 0.01 * math.sqrt(1e15 * math.expm1(1.0))  # of so many steps, by the central limit theorem
        assert epsilon_of(limit, DELTA) < many.epsilon < epsilon_of(reach * math.sqrt(1e15), DELTA)
        assert compose([SubsampledGaussianEvent(1e200, 0.01, 10, adjacency)], DELTA).epsilon == 0
        sampled = SubsampledGaussianEvent(0.5, 0.2, 20, adjacency)
        assert compose([sampled], DELTA).epsilon < epsilon_of(reach * math.sqrt(20) / 0.5, DELTA)


@pytest.mark.parametrize("pure", [800.0, 1e10])
def test_large_pure_events_compose(pure):
    total = compose([PureEvent(pure), PureEvent(0.1), GaussianEvent(1.0)], DELTA)
    assert pure < total.epsilon <= pure + 0.1 + epsilon_of(1.0, DELTA)


@pytest.mark.long
def test_calibrated_noise_fits_and_a_little_less_does_not():
    for adjacency in ("add_remove", "replace_one"):
        others = [GaussianEvent(0.1)]
        z = calibrate_noise_multiplier(
            2.0, DELTA, sampling_rate=0.05, steps=100, adjacency=adjacency, others=others, tolerance=1e-2
        )
        assert compose([*others, SubsampledGaussianEvent(z, 0.05, 100, adjacency)], DELTA).epsilon <= 2.0
        assert compose([*others, SubsampledGaussianEvent(0.97 * z, 0.05, 100, adjacency)], DELTA).epsilon > 2.0
    full = calibrate_noise_multiplier(4.3771781, DELTA, sampling_rate=1.0, steps=4, tolerance=1e-6)
    assert full == pytest.approx(2.0, rel=1e-5)
    with pytest.raises(PlanError, match="alone come to"):
        calibrate_noise_multiplier(1.0, DELTA, sampling_rate=0.1, steps=5, others=[GaussianEvent(1.0)])


def test_tight_privacy_of_a_plain_test_matches_the_trade_off():
    """Sanity of the whole chain: the best threshold test on N(0,1) against N(mu,1) meets delta at epsilon."""
    mu = 1.3
    epsilon = compose([GaussianEvent(mu)], DELTA).epsilon
    threshold = epsilon / mu + mu / 2
    assert float(ndtr(mu - threshold) - math.exp(epsilon) * ndtr(-threshold)) == pytest.approx(DELTA, rel=1e-8)


@pytest.mark.long
def test_many_kinds_of_releases_are_composed_as_few_that_give_away_more(monkeypatch):
    pure = [PureEvent(0.01 + 0.001 * i) for i in range(9)]
    exact = compose(pure, DELTA).epsilon
    sampled = [SubsampledGaussianEvent(2 + 0.1 * i, 0.01 + 0.001 * i, 10) for i in range(4)]
    exact_sampled = compose(sampled, DELTA).epsilon
    worst = compose([SubsampledGaussianEvent(2.0, 0.013, 40)], DELTA).epsilon
    monkeypatch.setattr(limits, "DISTINCT", 2)
    assert exact <= compose(pure, DELTA).epsilon <= 9 * 0.018
    assert exact_sampled <= compose(sampled, DELTA).epsilon <= worst


def test_thousands_of_kinds_take_few_grids():
    events = [SubsampledGaussianEvent(1 + 1e-6 * i, 0.01 + 1e-6 * (i % 7), i + 1) for i in range(5_000)]
    few = _fewer_sampled(events)
    assert len(few) <= limits.DISTINCT
    assert sum(event.steps for event in few) == sum(event.steps for event in events)
    assert len(set(_fewer_pure([1 + 1e-6 * i for i in range(5_000)]))) <= limits.DISTINCT
