"""A second opinion on a composition: the PRV accountant of Opacus, written by others from another theory.

Gopi, Lee and Wutschitz, "Numerical Composition of Differential Privacy" (2021). The ledger itself rests on privacy
loss distributions (`fedassay.privacy.loss_distributions`); where the two disagree by more than their errors, one
of them is wrong.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from fedassay.privacy.events import Event, GaussianEvent, SubsampledGaussianEvent
from fedassay.support import limits
from fedassay.support.errors import PlanError

_ALMOST_ALL = 1 - 1e-9
"""Opacus's formula divides by 1 - the sampling rate; a plain Gaussian is sampled at a rate of 1."""

_STEPS, _LEAST, _MOST = 1_000_000, 1e-3, 1e6
"""Steps, and noise multipliers, that it answers for in seconds."""

_ERROR = 0.01
"""Tolerance of epsilon, in absolute terms; that of delta is a thousandth of delta."""


class Opinion(NamedTuple):
    """Epsilon by the PRV accountant, with its rigorous bounds."""

    low: float
    estimate: float
    high: float


def second_opinion(events: Sequence[Event], delta: float, *, error: float = _ERROR) -> Opinion:
    """Epsilon of a composition by Opacus's PRV accountant, under add_remove.

    Args:
        events: Gaussian mechanisms and DP-SGD.
        delta: In (0, 1).
        error: Largest error of epsilon.

    Raises:
        PlanError: An event is of another kind or adjacency, which that accountant does not know, there are too
            many of them for it, or numbers that it cannot compute with.
    """
    squares = 0.0
    history: list[tuple[float, float, int]] = []
    for event in events:
        if isinstance(event, GaussianEvent):
            squares += event.mu**2
        elif (
            isinstance(event, SubsampledGaussianEvent)
            and event.adjacency == "add_remove"
            and event.sampling == "poisson"
        ):
            history.append((event.noise_multiplier, min(event.sampling_rate, _ALMOST_ALL), event.steps))
        else:
            raise PlanError(
                f"second opinion: {event} is unknown to Opacus's PRV accountant; allowed: gaussian, and dp_sgd "
                "under add_remove"
            )
    if squares:
        # Plain Gaussians compose to one.
        history.append((1 / math.sqrt(squares), _ALMOST_ALL, 1))
    if not history:
        return Opinion(0.0, 0.0, 0.0)
    kinds, steps = len(set(history)), sum(count for _, _, count in history)
    least, most = min(history)[0], max(history)[0]
    if kinds > limits.DISTINCT or steps > _STEPS or not _LEAST <= least <= most <= _MOST:
        raise PlanError(
            f"second opinion: {kinds:,} kinds of releases, {steps:,} steps, noise multipliers from {least:g} to "
            f"{most:g}; allowed for Opacus's PRV accountant: {limits.DISTINCT} kinds, {_STEPS:,} steps, and "
            f"multipliers from {_LEAST:g} to {_MOST:g}"
        )
    return _opinion(history, delta, error)


def _opinion(history: list[tuple[float, float, int]], delta: float, error: float) -> Opinion:
    from opacus.accountants import PRVAccountant  # takes seconds

    accountant = PRVAccountant()
    accountant.history = history
    small = delta / 1000
    try:
        with warnings.catch_warnings(action="ignore"):
            found = accountant._get_dprv(eps_error=error, delta_error=small)
            low, estimate, high = found.compute_epsilon(delta, small, error)
    except (ArithmeticError, ValueError, RuntimeError, MemoryError) as refused:
        raise PlanError(f"second opinion: Opacus's PRV accountant cannot compute with these: {refused}") from None
    return Opinion(float(low), float(estimate), float(high))
