"""Composition of everything that was released about one record, by the tightest sound accountant.

Events are plain numbers. What composes exactly is composed exactly (Gaussians); the rest goes
through privacy loss distributions (PLD; Doroshenko et al., "Connect the Dots: Tighter Discrete
Approximations of Privacy Loss Distributions", 2022) by the package dp-accounting, always in
its pessimistic rounding, refined until the answer stands still: the result is an upper bound
that is within a fraction of a percent of the truth. An event of any other type is refused.

Sensitivities are computed in `fedassay.privacy.sensitivities` for the adjacency in question
and enter as mu = sensitivity / noise. dp-accounting is never told that a plain Gaussian is
under REPLACE_ONE: it would double the sensitivity once more.

DP-SGD is the one event whose adjacency matters here, because sampling and replacing do not
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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedassay.errors import PlanError
from fedassay.privacy.adjacency import Adjacency
from fedassay.privacy.gaussian import compose_mu, epsilon_of


@dataclass(frozen=True)
class GaussianEvent:
    """One Gaussian mechanism, or a joint release as one: mu = L2 sensitivity / noise standard deviation."""

    mu: float

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ValueError(f"mu must be at least 0, got {self.mu}")


@dataclass(frozen=True)
class PureEvent:
    """Any mechanism that is (epsilon, 0)-DP, such as Laplace."""

    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be at least 0, got {self.epsilon}")


@dataclass(frozen=True)
class SubsampledGaussianEvent:
    """DP-SGD: `steps` clipped sums over Poisson-sampled batches, with Gaussian noise.

    Attributes:
        noise_multiplier: noise standard deviation over the clipping norm.
        sampling_rate: probability of each record to be in a batch, in [0, 1].
        steps: number of noisy sums released.
        adjacency: the relation to account for; see the module's docstring.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        if not self.noise_multiplier >= 0:
            raise ValueError(f"noise_multiplier must be at least 0, got {self.noise_multiplier}")
        if not 0 <= self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must lie between 0 and 1, got {self.sampling_rate}")
        if self.steps < 0:
            raise ValueError(f"steps must be at least 0, got {self.steps}")


@dataclass(frozen=True)
class Unbounded:
    """Something that leaves with no guarantee; `reason` says what."""

    reason: str


Event = GaussianEvent | PureEvent | SubsampledGaussianEvent | Unbounded


@dataclass(frozen=True)
class Total:
    """What a composition adds up to.

    Attributes:
        epsilon: an upper bound at the delta asked for; inf if there is none.
        mu: the exact Gaussian-DP parameter where everything is Gaussian, else None.
        method: how epsilon was computed, or why it is infinite.
    """

    epsilon: float
    mu: float | None
    method: str


# FFT convolution leaves absolute errors near 1e-16, and tails are cut at 1e-15.
_SMALLEST_PLD_DELTA = 1e-12
_REFINEMENT = 5.0
_CONVERGED = 1e-3
_FINEST_STEPS = 5
_LARGEST_PLD_EPSILON = 1e7  # the grids of larger losses fit into no memory


def compose(events: Iterable[Event], delta: float) -> Total:
    """Epsilon at `delta` of the adaptive composition of `events`, which all speak of the same record.

    Args:
        events: in any order; an empty list composes to 0.
        delta: strictly between 0 and 1.

    Returns:
        An upper bound on epsilon: exact if all events are Gaussian, else by PLD.

    Raises:
        TypeError: if an event is of no supported type: it is refused rather than guessed.
        ValueError: if delta is outside (0, 1), or DP-SGD events of different adjacencies are mixed.
        PlanError: if delta is too small for the PLD accountant.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")
    events = list(events)
    for event in events:
        if not isinstance(event, GaussianEvent | PureEvent | SubsampledGaussianEvent | Unbounded):
            raise TypeError(f"no accountant here supports {type(event).__name__}: {event!r}")
    for event in events:
        if (reason := _no_guarantee(event)) is not None:
            return Total(math.inf, None, reason)
    mus, pure, sampled = [0.0], [], []
    for event in events:
        if isinstance(event, GaussianEvent):
            mus.append(event.mu)
        elif isinstance(event, PureEvent):
            pure.append(event.epsilon)
        elif isinstance(event, SubsampledGaussianEvent) and event.sampling_rate == 1:
            mus.append(_mu_of_steps(event))
        elif isinstance(event, SubsampledGaussianEvent) and event.steps and event.sampling_rate:
            sampled.append(event)
    mu = compose_mu(mus)
    pure = [epsilon for epsilon in pure if epsilon > 0]
    if not sampled and not pure:
        return Total(epsilon_of(mu, delta), mu, "exact (Gaussian composition)")
    if not sampled:
        return _with_pure(mu, tuple(sorted(pure)), delta)
    unsampled = compose_mu([mu, *(_mu_of_steps(event) for event in sampled)])
    bound = math.fsum(pure) + epsilon_of(unsampled, delta)
    if bound == 0 or bound > _LARGEST_PLD_EPSILON:
        return Total(bound, None, "basic composition, as if DP-SGD took all records in every step")
    epsilon = _by_pld(mu, tuple(sorted(pure)), tuple(sorted(sampled, key=repr)), delta)
    return Total(epsilon, None, "privacy loss distribution")


def calibrate_noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sampling_rate: float,
    steps: int,
    adjacency: Adjacency = "add_remove",
    others: Sequence[Event] = (),
    tolerance: float = 1e-3,
) -> float:
    """Smallest DP-SGD noise multiplier with which everything composes to (epsilon, delta), by bisection.

    Args:
        epsilon: the total, greater than 0 and finite.
        delta: the total, strictly between 0 and 1.
        sampling_rate: of Poisson sampling, in (0, 1].
        steps: number of noisy steps, at least 1.
        adjacency: the relation to account for.
        others: everything else released about the record, to be paid from the same budget.
        tolerance: relative excess over the smallest multiplier; the result errs on the private side.

    Raises:
        ValueError: if an argument is outside its range.
        PlanError: if `others` alone spend the budget.
    """
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be finite and greater than 0, got {epsilon}")
    if steps < 1 or not 0 < sampling_rate <= 1:
        raise ValueError(f"steps must be at least 1 and sampling_rate in (0, 1], got {steps}, {sampling_rate}")
    spent = compose(others, delta).epsilon
    if spent >= epsilon:
        raise PlanError(
            f"epsilon: the releases beside DP-SGD alone come to {spent:.4g}, given {epsilon:g} for everything; "
            f"allowed: more than that"
        )

    def fits(noise_multiplier: float) -> bool:
        event = SubsampledGaussianEvent(noise_multiplier, sampling_rate, steps, adjacency)
        return compose([*others, event], delta).epsilon <= epsilon

    high = 1.0
    while not fits(high):
        high *= 2
        if high > 1e8:
            raise PlanError(f"epsilon: no noise reaches {epsilon:g}; the other releases come to {spent:.4g}")
    low = high / 2
    while low > 1e-3 and fits(low):
        low, high = low / 2, low
    while high / low > 1 + tolerance:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _mu_of_steps(event: SubsampledGaussianEvent) -> float:
    """Gaussian-DP parameter of DP-SGD on full batches: a Gaussian mechanism, of twice the reach under replacement.

    With sampling it gives no more away: the hockey-stick divergence is jointly convex.
    """
    if not event.steps:
        return 0.0
    reach = 1.0 if event.adjacency == "add_remove" else 2.0
    return reach * math.sqrt(event.steps) / event.noise_multiplier


def _no_guarantee(event: Event) -> str | None:
    """Why this event alone makes the total infinite; None if it does not."""
    if isinstance(event, Unbounded):
        return event.reason
    if isinstance(event, GaussianEvent) and math.isinf(event.mu):
        return "a Gaussian release without noise"
    if isinstance(event, PureEvent) and math.isinf(event.epsilon):
        return "a release of infinite pure epsilon"
    if isinstance(event, SubsampledGaussianEvent) and event.noise_multiplier == 0:
        return "DP-SGD without noise" if event.steps and event.sampling_rate else None
    return None


def _with_pure(mu: float, pure: tuple[float, ...], delta: float) -> Total:
    """Gaussians and pure events: basic composition, or PLD where that is tighter (it need not be)."""
    basic = math.fsum(pure) + epsilon_of(mu, delta)
    if delta < _SMALLEST_PLD_DELTA or basic > _LARGEST_PLD_EPSILON or (mu == 0 and len(pure) == 1):
        return Total(basic, None, "basic composition")
    by_pld = _by_pld(mu, pure, (), delta)
    if by_pld < basic:
        return Total(by_pld, None, "privacy loss distribution")
    return Total(basic, None, "basic composition")


@lru_cache(maxsize=1024)
def _by_pld(
    mu: float, pure: tuple[float, ...], sampled: tuple[SubsampledGaussianEvent, ...], delta: float
) -> float:
    """Epsilon by PLD, on grids refined until the (always pessimistic) answer moves by under 0.1 %."""
    if delta < _SMALLEST_PLD_DELTA:
        raise PlanError(
            f"delta: DP-SGD is accounted by privacy loss distributions, which resolve delta from "
            f"{_SMALLEST_PLD_DELTA:g} up; given {delta:g}"
        )
    if len({event.adjacency == "add_remove" for event in sampled}) > 1:
        raise ValueError("DP-SGD events of different adjacencies cannot be composed")
    known = math.fsum(pure) + epsilon_of(mu, delta)
    interval = max(1e-2, 1e-5 * known)
    best = math.inf
    for _ in range(_FINEST_STEPS):
        epsilon = _pld_epsilon(mu, pure, sampled, delta, interval)
        moved = best - epsilon
        best = min(best, epsilon)  # every grid gives an upper bound
        if moved <= _CONVERGED * best or best == 0:
            break
        interval = min(interval, best) / _REFINEMENT
    return best


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
    for epsilon, count in Counter(pure).items():
        parts.append(_pure_pld(epsilon, count, interval))
    for event, count in Counter(sampled).items():
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
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
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
    keep = upper > -700  # what is left out is far below every delta that is asked for
    return pld.from_two_probability_mass_functions(
        dict(zip(outcomes[keep].tolist(), lower[keep].tolist(), strict=True)),
        dict(zip(outcomes[keep].tolist(), upper[keep].tolist(), strict=True)),
        value_discretization_interval=interval,
    )
