"""One budget for a FedDiff client's whole message: DP-SGD for the weights, noise for the histogram and the mean.

The histogram and a `gaussian` mean magnitude get fixed shares of the squared Gaussian-DP parameter that the target
allows; a `pydp` mean gets a share of epsilon itself, since it is pure. The weights get the rest: their noise
multiplier is the smallest for which the composition by privacy loss distributions meets the target.

As published, PyDP's epsilon is that of every coordinate, and is counted once for all of them (`per_coordinate`).
The weights are then calibrated to the paper's claim, but the release of the mean declares its true epsilon: the
ledger adds up every coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic import Field

from fedassay.exchange.release import PrivacyTarget, Release
from fedassay.methods.shared.dp_sgd import DpSgd
from fedassay.methods.shared.sent_generators import HistogramNoise, histogram_noise
from fedassay.nets.dp_sgd.steps import PrivateSteps, steps_of
from fedassay.privacy.accounting import calibrate_noise_multiplier
from fedassay.privacy.events import Event, GaussianEvent, PureEvent
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.sensitivities import magnitude_sum
from fedassay.support.optimisation import OptimizerKey

Fmf = Literal["none", "gaussian", "pydp"]
"""Protection of a client's mean magnitude in a private run; `none` sends none, and filters nothing."""

Composition = Literal["total", "per_coordinate"]
"""Scope of a `pydp` mean's share of epsilon: all coordinates together, or, as published, each of them."""


@dataclass(frozen=True)
class Filtering:
    """The budget of the mean magnitude.

    Attributes:
        fmf: See `Fmf`.
        share: Share of the squared Gaussian-DP parameter, or of epsilon for `pydp`.
        composition: See `Composition`.
        clip: L2 norm that magnitude vectors are clipped to.
        coordinates: H W C.
    """

    fmf: Fmf
    share: float
    composition: Composition
    clip: float
    coordinates: int


class DiffusionDpSgd(DpSgd):
    """Settings of a generator's training in a private run.

    Attributes:
        epochs: Times that each record is sampled, on average.
        batch: Divisor of the noised gradient sums, a public constant.
        learning_rate: Learning rate of the optimiser.
        optimizer: The rule that follows the noised gradients; None: AdamW without decay.
        draws: Time steps and noises that each record's loss is averaged over before clipping; no privacy is spent
            on them.
        together: Number of records with gradients held at once: the size of a virtual step.
        average: Decay of the moving average of the weights; 0 sends the last weights, as in the paper.
    """

    epochs: int = Field(default=40, ge=1)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=2e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    draws: int = Field(default=4, ge=1)
    together: int = Field(default=64, ge=1)
    average: float = Field(default=0.0, ge=0, lt=1)


@dataclass(frozen=True)
class Budget:
    """The budget of every part of a client's message.

    Attributes:
        steps: Settings of DP-SGD.
        histogram: Noise on the label histogram.
        magnitude: Noise on each coordinate of the sum of magnitude vectors; 0 where there is none.
        magnitude_sensitivity: L2 sensitivity of that sum.
        each: `pydp`: epsilon of one coordinate.
        coordinates: `pydp`: number of coordinates.
    """

    steps: PrivateSteps
    histogram: HistogramNoise
    magnitude: float = 0.0
    magnitude_sensitivity: float = 0.0
    each: float = 0.0
    coordinates: int = 0

    def of_magnitude(self, target: PrivacyTarget) -> Release:
        """The release of the mean magnitude."""
        if self.coordinates:
            return Release(
                mechanism="pure",
                adjacency="add_remove",
                pure_epsilon=(self.coordinates * self.each,),
                note=f"PyDP BoundedMean at epsilon {self.each:.3g} a coordinate, {self.coordinates} coordinates",
            )
        divisor = "the noised number of records" if target.adjacency == "add_remove" else "the number of records"
        return target.gaussian(
            self.magnitude,
            self.magnitude_sensitivity,
            note=f"of the sum over half the spectrum, paired frequencies times sqrt(2); sent divided by {divisor}",
        )


def make_budget(
    target: PrivacyTarget,
    dp_sgd: DiffusionDpSgd,
    *,
    labels: Literal["noised", "exact"],
    label_share: float,
    filtering: Filtering,
    classes: int,
) -> Budget:
    """Split a finite target.

    Args:
        target: Epsilon, delta and adjacency for everything.
        dp_sgd: The schedule that the weights are trained by.
        labels: Whether the histogram is noised.
        label_share: Share of the squared Gaussian-DP parameter that it gets.
        filtering: Budget of the mean magnitude.
        classes: C.

    Raises:
        PlanError: No noise multiplier meets the target.
    """
    mu = mu_of(target.epsilon, target.delta)
    histogram = histogram_noise(target, labels, label_share, classes)
    others: list[Event] = [GaussianEvent(histogram.mu)] if histogram.mu else []
    magnitude = moved = each = 0.0
    if filtering.fmf == "gaussian":
        own = math.sqrt(filtering.share) * mu
        moved = magnitude_sum(2, filtering.clip, adjacency=target.adjacency).sensitivity
        magnitude = moved / own
        others.append(GaussianEvent(own))
    if filtering.fmf == "pydp":
        total = filtering.share * target.epsilon
        # A guarantee for an added or removed record counts twice for a replaced one.
        each = total / (1 if target.adjacency == "add_remove" else 2)
        each /= filtering.coordinates if filtering.composition == "total" else 1
        others.append(PureEvent(total))
    steps = steps_of(dp_sgd.epochs, dp_sgd.sampling_rate)
    multiplier = _noise_multiplier(target, dp_sgd.sampling_rate, steps, tuple(others))
    return Budget(
        PrivateSteps(multiplier, dp_sgd.sampling_rate, steps, dp_sgd.norm, float(dp_sgd.batch), dp_sgd.engine),
        histogram,
        magnitude,
        moved,
        each,
        filtering.coordinates if filtering.fmf == "pydp" else 0,
    )


@lru_cache(maxsize=64)
def _noise_multiplier(target: PrivacyTarget, rate: float, steps: int, others: tuple[Event, ...]) -> float:
    """By bisection over privacy loss distributions: seconds, so the result is kept."""
    return calibrate_noise_multiplier(
        target.epsilon,
        target.delta,
        sampling_rate=rate,
        steps=steps,
        adjacency=target.adjacency,
        others=list(others),
    )
