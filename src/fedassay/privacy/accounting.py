"""Composition of everything that was released about one record, by the tightest sound accountant.

Events are plain numbers. Gaussians are composed exactly. Other events are composed by privacy loss distributions
(PLD; `fedassay.privacy.loss_distributions`), an upper bound within a fraction of a percent of the truth.
Compositions with too many steps for that use Rényi differential privacy (`fedassay.privacy.renyi`). An event of
any other type is refused.

DP-SGD on batches of a fixed size, drawn without replacement, uses Rényi differential privacy as well. Batches of a
shuffled epoch are accounted without amplification: a record is in one batch an epoch, and moves only the sum of
that batch.

Sensitivities are computed in `fedassay.privacy.sensitivities` for the adjacency in question and enter as mu =
sensitivity / noise. DP-SGD is the one event with an adjacency of its own, because sampling and replacing do not
commute.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

from fedassay.privacy.events import Event, GaussianEvent, PureEvent, SubsampledGaussianEvent, Unbounded
from fedassay.privacy.gaussian import compose_mu, epsilon_of
from fedassay.privacy.loss_distributions import (
    GRIDS,
    LARGEST_EPSILON,
    MOST_STEPS,
    SMALLEST_DELTA,
    SMALLEST_RATE,
    epsilon_by_pld,
)
from fedassay.privacy.renyi import METHOD, epsilon_by_renyi
from fedassay.support import limits
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import PlanError

_T = TypeVar("_T")

_WHOLE = 1e-9
"""Rounding of a number of epochs."""

_LEAST_NOISE = 1e-3
"""Multipliers below it overflow in Rényi divergences, and no epsilon below a million is theirs."""

_MOST_NOISE = 1e8
"""Multipliers beyond it are not looked for."""


@dataclass(frozen=True)
class Total:
    """The total of a composition.

    Attributes:
        epsilon: an upper bound at the delta asked for; inf if there is none.
        mu: the exact Gaussian-DP parameter where everything is Gaussian, else None.
        method: how epsilon was computed, or why it is infinite.
    """

    epsilon: float
    mu: float | None
    method: str


def compose(events: Iterable[Event], delta: float, *, grids: int = GRIDS) -> Total:
    """Epsilon at `delta` of the adaptive composition of `events`, which all speak of the same record.

    Args:
        events: in any order; an empty list composes to 0.
        delta: strictly between 0 and 1.
        grids: of `epsilon_by_pld`; fewer are faster, and their bound is never below that of more.

    Returns:
        An upper bound on epsilon: exact if all events are Gaussian, else by PLD, or by Rényi differential privacy
        where there are more steps of DP-SGD than that takes, or batches of a fixed size. Beyond `limits.DISTINCT`
        different pure or DP-SGD events, those next to each other are composed as the worst of them.

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
        if (reason := no_guarantee(event)) is not None:
            return Total(math.inf, None, reason)
    plain = [event for event in events if isinstance(event, SubsampledGaussianEvent) and _takes_all(event)]
    mu = compose_mu(
        [0.0, *(event.mu for event in events if isinstance(event, GaussianEvent)), *map(_mu_of_steps, plain)]
    )
    pure = _fewer_pure([event.epsilon for event in events if isinstance(event, PureEvent) and event.epsilon > 0])
    sampled = _fewer_sampled(
        [
            replace(event, sampling_rate=max(event.sampling_rate, SMALLEST_RATE))
            for event in events
            if isinstance(event, SubsampledGaussianEvent) and not _takes_all(event)
            if event.steps and event.sampling_rate
        ]
    )
    if not sampled and not pure:
        return Total(epsilon_of(mu, delta), mu, "exact (Gaussian composition)")
    if not sampled:
        return _with_pure(mu, tuple(sorted(pure)), delta, grids)
    return _with_sampled(mu, pure, sampled, delta, grids)


def _takes_all(event: SubsampledGaussianEvent) -> bool:
    """Whether all of its steps are Gaussian mechanisms on all records, without an effect of sampling."""
    return event.sampling_rate == 1 or event.sampling == "shuffled"


def _with_sampled(
    mu: float, pure: list[float], sampled: list[SubsampledGaussianEvent], delta: float, grids: int
) -> Total:
    """Of steps of DP-SGD, beside a Gaussian mechanism and pure ones."""
    unsampled = compose_mu([mu, *(_mu_of_steps(event) for event in sampled)])
    bound = sum(pure) + epsilon_of(unsampled, delta)
    fixed = any(event.sampling == "fixed_size" for event in sampled)
    steps = sum(event.steps for event in sampled)
    if bound and (fixed or bound > LARGEST_EPSILON or steps > MOST_STEPS):
        if min(event.noise_multiplier for event in sampled) >= _LEAST_NOISE:
            by_renyi = epsilon_by_renyi(mu, pure, sampled, delta)
            if by_renyi < bound:
                return Total(by_renyi, None, METHOD)
        return Total(bound, None, "basic composition, as if DP-SGD took all records in every step")
    if bound == 0:
        return Total(bound, None, "exact (nothing is given away)")
    epsilon = epsilon_by_pld(mu, tuple(sorted(pure)), tuple(sorted(sampled, key=repr)), delta, grids)
    return Total(epsilon, None, "privacy loss distribution")


class Calibration(NamedTuple):
    """The target of a noise multiplier: the arguments of `calibrate_noise_multiplier`."""

    epsilon: float
    delta: float
    sampling_rate: float
    steps: int
    adjacency: Adjacency
    others: tuple[Event, ...]
    tolerance: float


CALIBRATED: dict[Calibration, float] = {}
"""The noise multipliers that this process has calibrated: seconds each."""


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
    """Smallest DP-SGD noise multiplier for which the composition is (epsilon, delta)-DP, by bisection.

    Results are cached in the process.

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
    asked = Calibration(epsilon, delta, sampling_rate, steps, adjacency, tuple(others), tolerance)
    if asked not in CALIBRATED:
        CALIBRATED[asked] = _calibrated(*asked)
    return CALIBRATED[asked]


def _calibrated(
    epsilon: float,
    delta: float,
    sampling_rate: float,
    steps: int,
    adjacency: Adjacency,
    others: tuple[Event, ...],
    tolerance: float,
) -> float:
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

    def total(noise_multiplier: float, grids: int = GRIDS) -> float:
        event = SubsampledGaussianEvent(noise_multiplier, sampling_rate, steps, adjacency)
        return compose([*others, event], delta, grids=grids).epsilon

    def roughly(noise_multiplier: float) -> float:
        return total(noise_multiplier, 1)

    def fits(noise_multiplier: float) -> bool:
        return roughly(noise_multiplier) <= epsilon or total(noise_multiplier) <= epsilon

    high = _start(epsilon, delta, sampling_rate, steps)
    while high <= _MOST_NOISE and not fits(high):
        high *= 2
    if high > _MOST_NOISE:
        raise PlanError(f"epsilon: no noise reaches {epsilon:g}; the other releases come to {spent:.4g}")
    low = high / 2
    while low > 1e-3 and fits(low):
        low, high = low / 2, low
    return _narrowed(fits, ((roughly, 2), (total, 3)), epsilon, (low, high), tolerance)


def _narrowed(
    fits: Callable[[float], bool],
    foretellers: Iterable[tuple[Callable[[float], float], int]],
    epsilon: float,
    ends: tuple[float, float],
    tolerance: float,
) -> float:
    """Return the upper end at which bisection in logarithms between two ends would stop; the upper end must fit.

    An accountant takes a tenth of a second and more. The place is therefore predicted, and only the two ends that
    bisection would stop at, or those beside them, are checked; in most cases the rough bounds predict them.
    """
    low, high = ends
    for foreteller, tries in foretellers:
        root = _foretold(foreteller, epsilon, low, high, tolerance)
        for _ in range(tries):
            below, above = _halved(partial(operator.le, root), low, high, tolerance)
            if not fits(above):
                root = math.nextafter(above, math.inf)
            elif below > low and fits(below):
                root = below
            else:
                return above
    return _halved(fits, low, high, tolerance)[1]


def _start(epsilon: float, delta: float, sampling_rate: float, steps: int) -> float:
    """Return the power of two at which DP-SGD alone should fit, by the central limit theorem for Gaussian DP.

    Bu, Dong, Long and Su, "Deep Learning with Gaussian Differential Privacy" (2020), Corollary 5.4. It is only the
    starting point of the search, and does not affect the result.
    """

    def fits(noise_multiplier: float) -> bool:
        mu = sampling_rate * math.sqrt(steps * math.expm1(min(noise_multiplier**-2, 100.0)))
        return epsilon_of(mu, delta) <= epsilon

    noise = 1.0
    while not fits(noise) and 2 * noise <= _MOST_NOISE:
        noise *= 2
    while noise > 2e-3 and fits(noise / 2):
        noise /= 2
    return noise


def _halved(fits: Callable[[float], bool], low: float, high: float, tolerance: float) -> tuple[float, float]:
    """The interval that bisection ends in; `high` fits."""
    while high / low > 1 + tolerance:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low, high


def _foretold(total: Callable[[float], float], epsilon: float, low: float, high: float, tolerance: float) -> float:
    """Find a noise multiplier with total epsilon, up to a fifth of the tolerance, or the result of eight steps.

    By regula falsi in logarithms, with the Illinois weights (Dowell and Jarratt 1971).
    """

    def excess(noise_multiplier: float) -> float:
        return math.log(max(total(noise_multiplier), 1e-300) / epsilon)

    x, kept = math.log(high), math.log(low)
    y, other = excess(high), excess(low)
    for _ in range(8):
        if abs(y) < tolerance / 5 or not (min(y, other) <= 0 < max(y, other) < math.inf):
            break
        step = (kept * y - x * other) / (y - other)
        new = excess(math.exp(step))
        if (new > 0) == (y > 0):
            other /= 2
        else:
            kept, other = x, y
        x, y = step, new
    return math.exp(x)


def _fewer_pure(epsilons: list[float]) -> list[float]:
    """As many epsilons, of few different values, none of them smaller than it was."""
    worst = {value: group[-1] for group in _groups(sorted(set(epsilons))) for value in group}
    return [worst[epsilon] for epsilon in epsilons]


def _fewer_sampled(events: list[SubsampledGaussianEvent]) -> list[SubsampledGaussianEvent]:
    """Return as many steps of DP-SGD, of few kinds; each leaks no less than the original step.

    More noise only lowers the leakage (post-processing). A larger sample raises it: its mixtures are those of the
    smaller one, mixed with one more distribution, and the hockey-stick divergence is jointly convex.
    """
    if len(set(events)) <= limits.DISTINCT:
        return events
    steps: dict[SubsampledGaussianEvent, int] = {}
    ordered = sorted(events, key=lambda event: (event.adjacency, event.sampling_rate, event.noise_multiplier))
    for adjacency, sampling in sorted({(event.adjacency, event.sampling) for event in events}):
        alike = [event for event in ordered if (event.adjacency, event.sampling) == (adjacency, sampling)]
        for group in _groups(alike, min(limits.DISTINCT, limits.KINDS)):
            rate, noise = (max(e.sampling_rate for e in group), min(e.noise_multiplier for e in group))
            worst = SubsampledGaussianEvent(noise, rate, 1, adjacency, max(e.members for e in group), sampling)
            steps[worst] = steps.get(worst, 0) + sum(event.steps for event in group)
    return [replace(event, steps=number) for event, number in steps.items()]


def _groups(ordered: list[_T], most: int = limits.DISTINCT) -> list[list[_T]]:
    """Neighbours in at most so many groups; each for itself where there are no more."""
    size = max(1, -(-len(ordered) // most))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _mu_of_steps(event: SubsampledGaussianEvent) -> float:
    """Gaussian-DP parameter of DP-SGD on full batches: a Gaussian mechanism, twice as far under replacement.

    Sampling does not increase it: the hockey-stick divergence is jointly convex. In a shuffled epoch a record is
    in one batch, so that its sums are one such mechanism an epoch, for every order.
    """
    if not event.steps:
        return 0.0
    if event.sampling == "shuffled":
        epochs = math.ceil(event.steps * event.sampling_rate - _WHOLE)
        event = replace(event, steps=epochs, sampling="poisson")
    reach = float(event.members) * (1.0 if event.adjacency == "add_remove" else 2.0)
    return reach * math.sqrt(event.steps) / event.noise_multiplier


def _counts_records(event: Event) -> bool:
    """Whether batches reveal a number of records that is private."""
    if not isinstance(event, SubsampledGaussianEvent) or event.steps == 0:
        return False
    return event.sampling != "poisson" and event.adjacency == "add_remove"


def no_guarantee(event: Event) -> str | None:
    """Reason why this event alone makes the total infinite; None if it does not."""
    if isinstance(event, Unbounded):
        return event.reason
    if isinstance(event, GaussianEvent) and math.isinf(event.mu):
        return "a Gaussian release without noise"
    if isinstance(event, PureEvent) and math.isinf(event.epsilon):
        return "a release of infinite pure epsilon"
    if _counts_records(event):
        return "batches of a fixed size tell how many records there are, which add_remove does not make public"
    if isinstance(event, SubsampledGaussianEvent) and event.noise_multiplier == 0:
        return "DP-SGD without noise" if event.steps and event.sampling_rate else None
    return None


def _with_pure(mu: float, pure: tuple[float, ...], delta: float, grids: int) -> Total:
    """Gaussians and pure events: basic composition, or PLD where that is tighter (it need not be)."""
    basic = sum(pure) + epsilon_of(mu, delta)
    if delta < SMALLEST_DELTA or basic > LARGEST_EPSILON or (mu == 0 and len(pure) == 1):
        return Total(basic, None, "basic composition")
    by_pld = epsilon_by_pld(mu, pure, (), delta, grids)
    if by_pld < basic:
        return Total(by_pld, None, "privacy loss distribution")
    return Total(basic, None, "basic composition")
