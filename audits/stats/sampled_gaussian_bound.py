"""Epsilon lower bound through the law of DP-SGD itself: tight, and conditional on that law.

Canaries with orthogonal gradients are in or out by fair coins of their own, and whoever sees every noised sum
guesses all coins. Assume that each canary's sums are those of a Poisson-sampled Gaussian mechanism of rate q over
T steps with some noise multiplier z, independent of the other canaries'. Then given the sums the coins are
independent, and no guess is right with more than the larger of its coin's two posterior probabilities. So right
guesses, however they come from the sums, are stochastically at most binomial with probability (1 + TV(z)) / 2, TV
the total variation between the two laws. Their Clopper-Pearson lower bound rejects every z that allows fewer, and
epsilon at any delta follows from the largest z that is left, far beyond what counting errors can resolve.

That is Nasr et al., "Tight Auditing of Differentially Private Machine Learning" (2023), section 4.2, with the
trade-off function of DP-SGD in the place of the Gaussian one, and all guesses in the place of two error rates. The
total variation is the hockey-stick divergence of order 1, from privacy loss distributions rounded up: too large a
TV(z) rejects too little, never too much.

Conditional: on the family. Noise of another law, or sums that hang together, make it meaningless in either
direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from scipy.special import ndtr, ndtri
from scipy.stats import binom

from fedassay.audits.stats.detection import POWER, turning
from fedassay.audits.stats.epsilon_bound import EpsilonBound, check_levels
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.privacy.accounting import compose
from fedassay.privacy.events import SubsampledGaussianEvent
from fedassay.privacy.gaussian import mu_of
from fedassay.support.adjacency import Adjacency

_NAME = "DP-SGD's own law (Clopper-Pearson)"
_RATIO = 1.005
"""Noise multipliers are tried on a geometric grid, so that bounds share them; the bound is at most a step too
low."""
_LEAST = 0.5
"""Least noise multiplier distinguished: steps below it give the sample away, and nothing else is bounded."""
_COARSEST = 1e-2


def sampled_gaussian_bound(
    right: int,
    guesses: int,
    *,
    sampling_rate: float,
    steps: int,
    adjacency: Adjacency,
    delta: float,
    confidence: float = 0.95,
) -> EpsilonBound:
    """Epsilon lower bound from right guesses of independent fair coins.

    Args:
        right: Coins that were guessed rightly.
        guesses: All of them, at least 1.
        sampling_rate: Of each step, in (0, 1].
        steps: Noised sums that were seen, at least 1.
        adjacency: `add_remove`: a canary is there or not. Otherwise it is there with either sign of its gradient.
        delta: In (0, 1).
        confidence: One-sided.

    Raises:
        ValueError: A level out of range, or more right guesses than guesses.
    """
    check_levels(delta, confidence)
    if not 0 <= right <= guesses or guesses < 1 or delta == 0:
        raise ValueError(f"0 <= right <= guesses and delta > 0 must hold, got {right}, {guesses}, {delta}")
    least = float(clopper_pearson(right, guesses, confidence=confidence, side="lower").low)
    apart = 2 * least - 1

    if apart <= 0:
        return EpsilonBound(0.0, confidence, _NAME, mu=0.0)

    def rejected(power: int) -> bool:
        return total_variation(_RATIO**power, sampling_rate, steps, adjacency) < apart

    # Without sampling steps give away more: noise under which not even that comes to so much is rejected.
    enough = _reach(adjacency) * math.sqrt(steps) / (2 * float(ndtri((1 + apart) / 2)))
    low, high = math.floor(math.log(_LEAST, _RATIO)), math.floor(math.log(max(enough, _LEAST), _RATIO)) + 2
    event = SubsampledGaussianEvent(_RATIO ** turning(low, high, rejected), sampling_rate, steps, adjacency)
    epsilon = compose([event], delta).epsilon
    return EpsilonBound(epsilon, confidence, _NAME, mu=mu_of(epsilon, delta))


def refuted_by_guesses(
    claimed: float,
    *,
    delta: float,
    guesses: int,
    confidence: float,
    declared: SubsampledGaussianEvent,
    right: Callable[[float], float] | None = None,
) -> float | None:
    """The smallest true epsilon of such steps at which `sampled_gaussian_bound` is above a claim with power .95.

    It is the epsilon of the same steps under so much less noise that the 5 % quantile of right guesses is just
    enough. None where not even the least noise distinguished (`_LEAST`) would do.

    Args:
        claimed: Epsilon.
        delta: In (0, 1).
        guesses: At least 1.
        confidence: Of the bound, one-sided.
        declared: The steps, which come to the claim, or to less.
        right: The share of right guesses under a noise multiplier; None: as many as there can be.
    """
    sampling_rate, steps, adjacency = declared.sampling_rate, declared.steps, declared.adjacency

    def epsilon(power: int) -> float:
        return compose([SubsampledGaussianEvent(_RATIO**power, sampling_rate, steps, adjacency)], delta).epsilon

    def share(power: int) -> float:
        return (1 + total_variation(_RATIO**power, sampling_rate, steps, adjacency)) / 2

    def shown(power: int) -> float:
        """Lower confidence bound on the share of right guesses, at their 5 % quantile under so much noise."""
        expected = share(power) if right is None else right(_RATIO**power)
        found = binom.ppf(1 - POWER, guesses, expected)
        return float(clopper_pearson(found, guesses, confidence=confidence, side="lower").low)

    lowest, highest = math.floor(math.log(_LEAST, _RATIO)), math.ceil(math.log(declared.noise_multiplier, _RATIO))
    # The declared noise gives about the claim: the place is near the top, and every accounting takes a while.
    start, stride = highest, 1
    while start > lowest and epsilon(start) <= claimed:
        start, stride = max(lowest, start - stride), 2 * stride
    above = _last_power(lambda power: epsilon(power) > claimed, start, highest)
    if above is None:
        return None
    needed = share(above)
    found = _last_power(lambda power: shown(power) > needed, lowest, above)
    return None if found is None else epsilon(found)


def _last_power(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest whole number from low to high that satisfies a monotone condition; None where low does not."""
    if low > high or not holds(low):
        return None
    return turning(low, high + 1, lambda power: not holds(power)) - 1


@lru_cache(maxsize=4096)
def total_variation(noise_multiplier: float, sampling_rate: float, steps: int, adjacency: Adjacency) -> float:
    """Upper bound on the total variation between what DP-SGD's steps release with a record and without it.

    Args:
        noise_multiplier: Greater than 0.
        sampling_rate: In (0, 1].
        steps: At least 1.
        adjacency: See `sampled_gaussian_bound`.
    """
    whole = 2 * float(ndtr(_reach(adjacency) * math.sqrt(steps) / noise_multiplier / 2)) - 1
    if sampling_rate == 1:
        return whole
    most = min(whole, 1 - (1 - sampling_rate) ** steps)
    if noise_multiplier < _LEAST:
        return most
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    removed = adjacency == "add_remove"
    step = pld.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=sampling_rate,
        # A tenth of what a step's loss deviates by: coarser grids add up over the steps.
        value_discretization_interval=min(_COARSEST, sampling_rate / noise_multiplier / 10),
        neighboring_relation=(
            NeighboringRelation.ADD_OR_REMOVE_ONE if removed else NeighboringRelation.REPLACE_ONE
        ),
    )
    return min(most, float(step.self_compose(steps).get_delta_for_epsilon(0.0)))


def _reach(adjacency: Adjacency) -> float:
    """Distance by which one record moves a sum, in clipping norms."""
    return 1.0 if adjacency == "add_remove" else 2.0
