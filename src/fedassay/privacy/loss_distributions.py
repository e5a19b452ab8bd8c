"""Privacy loss distributions (PLD): Gaussians, pure events and DP-SGD composed to an upper bound on epsilon.

Doroshenko et al., "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions" (2022), by the
package dp-accounting, always in its pessimistic rounding, refined until the result is stable. A plain Gaussian is
never passed to dp-accounting under REPLACE_ONE, which would double its sensitivity once more.

DP-SGD is the one event with an adjacency of its own, because sampling and replacing do not
commute. Let every gradient be clipped to C, the noise be C z, records be sampled with
probability q. Under `add_remove` the dominating pair is N(0, z^2) and
(1-q) N(0, z^2) + q N(1, z^2), in both directions. Under the two `replace_one` relations it is

    (1-q) N(0, z^2) + q N(+1, z^2)   and   (1-q) N(0, z^2) + q N(-1, z^2).

Why opposite gradients are the worst: with e^e' = 1 + q (e^e - 1) the hockey-stick divergence of
order e^e' of the two mixtures with gradients g and h is q times that of order e^e of N(g) from
(1-b) N(0) + b N(h), b = e^(e'-e) (the identity behind Balle, Barthe and Gaboardi, "Privacy
Amplification by Subsampling", 2018, Theorem 2). The set S where the first density wins is
{x.g > log(a + b' e^(x.h)) + const}: moving h away from g, by turning it or by lengthening it the
other way, lowers N(h)'s mass on S, and by the envelope theorem raises the divergence. So
h = -g at full length is the worst for every order, and dominating pairs compose (Zhu, Dong and
Wang, "Optimal Accounting of Differential Privacy via Characteristic Function", 2022, Theorem 10).
That is dp-accounting's REPLACE_ONE. A record's label, held fixed or not, does not bound its
gradient, so both relations share it.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from fedassay.privacy.gaussian import epsilon_of
from fedassay.privacy.group_steps import group_step
from fedassay.support.errors import PlanError

if TYPE_CHECKING:
    from fedassay.privacy.events import SubsampledGaussianEvent

SMALLEST_DELTA = 1e-12
"""No delta below it is asked for; see `_ERROR`."""
LARGEST_EPSILON = 1e7
"""The grids of larger losses fit into no memory."""
_ERROR, _ERROR_OF_A_STEP = 1e-13, 3e-17
"""Bounds on the error of delta in a convolution by FFT, measured on Gaussians of 10^3 to 10^6 steps with known
delta (3e-14, 6e-13 and 1.1e-11). They are subtracted from the requested delta: otherwise fine grids give too small
an epsilon at small delta."""
SMALLEST_RATE = 1e-15
"""Losses of rarer samples are lost in rounding; a larger sample gives more away."""
_REFINEMENT = 5.0
_LARGEST_GRID = 5e6
"""Points of a grid over the epsilon that is looked for, beyond which it is not refined: it stays a bound."""
MOST_STEPS = 1_000_000
"""More steps of DP-SGD take minutes: they are for callers to keep out."""
_CONVERGED = 1e-3
GRIDS = 5
"""Largest number of grids, each finer than the one before."""


def epsilon_by_pld(
    mu: float,
    pure: tuple[float, ...],
    sampled: tuple[SubsampledGaussianEvent, ...],
    delta: float,
    grids: int = GRIDS,
) -> float:
    """Epsilon at `delta`, on grids refined until the (always pessimistic) answer moves by under 0.1 %.

    Args:
        mu: of all Gaussians together; 0 for none.
        pure: epsilons of the pure events, each greater than 0.
        sampled: DP-SGD events with noise and steps.
        delta: at least `SMALLEST_DELTA`.
        grids: how many there are at most; the first takes a fifth of the time of the second.

    Returns:
        An upper bound, with fewer grids a larger one. Losses above `LARGEST_EPSILON`, and more steps than
        `MOST_STEPS`, are for callers to keep out.

    Raises:
        PlanError: if delta is too small.
        ValueError: if DP-SGD events of different adjacencies are mixed.
    """
    steps = sum(event.steps for event in sampled)
    error = _ERROR + _ERROR_OF_A_STEP * steps
    smallest = max(SMALLEST_DELTA, 2 * error)
    if delta < smallest:
        raise PlanError(
            f"delta: DP-SGD is accounted by privacy loss distributions, which resolve delta from "
            f"{smallest:g} up; given {delta:g}"
        )
    if len({event.adjacency == "add_remove" for event in sampled}) > 1:
        raise ValueError("DP-SGD events of different adjacencies cannot be composed")
    known = math.fsum(pure) + epsilon_of(mu, delta)
    interval = max(1e-2, 1e-5 * known)
    best = math.inf
    for _ in range(grids):
        epsilon = _pld_epsilon(mu, pure, sampled, delta - error, interval)
        moved = best - epsilon
        best = min(best, epsilon)  # every grid gives an upper bound
        interval = min(interval, best) / _REFINEMENT
        if moved <= _CONVERGED * best or best == 0 or best > _LARGEST_GRID * interval:
            break
    return best


@lru_cache(maxsize=4096)
def _pld_epsilon(
    mu: float,
    pure: tuple[float, ...],
    sampled: tuple[SubsampledGaussianEvent, ...],
    delta: float,
    interval: float,
) -> float:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    parts: list[Any] = []
    if mu > 0:
        parts.append(pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval))
    parts += [_pure_pld(epsilon, count, interval) for epsilon, count in Counter(pure).items()]
    for event, count in Counter(sampled).items():
        if event.members > 1:
            replaced = event.adjacency != "add_remove"
            step = group_step(
                event.noise_multiplier, event.sampling_rate, event.members, interval, replaced=replaced
            )
            parts.append(step.self_compose(event.steps * count))
            continue
        relation = (
            NeighboringRelation.ADD_OR_REMOVE_ONE
            if event.adjacency == "add_remove"
            else NeighboringRelation.REPLACE_ONE
        )
        step = pld.from_gaussian_mechanism(
            event.noise_multiplier,
            sampling_prob=event.sampling_rate,
            value_discretization_interval=interval,
            neighboring_relation=relation,
        )
        parts.append(step.self_compose(event.steps * count))
    total = reduce(lambda composed, part: composed.compose(part), parts)
    return float(total.get_epsilon_for_delta(delta))


def _pure_pld(epsilon: float, count: int, interval: float) -> Any:
    """PLD of `count` pure events: each is dominated by randomised response of the same epsilon.

    Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015), Theorem 3.3: the
    loss of the composition is (2j - count) epsilon, j binomial. Rounded up once, not once per event.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld
    from scipy.stats import binom

    outcomes = np.arange(count + 1)
    log_likely = -np.log1p(np.exp(-epsilon))
    upper = binom.logpmf(outcomes, count, np.exp(log_likely))
    lower = upper - (2 * outcomes - count) * epsilon
    keep = upper > -700  # the omitted part is far below every delta of interest
    return pld.from_two_probability_mass_functions(
        dict(zip(outcomes[keep].tolist(), lower[keep].tolist(), strict=True)),
        dict(zip(outcomes[keep].tolist(), upper[keep].tolist(), strict=True)),
        value_discretization_interval=interval,
    )
