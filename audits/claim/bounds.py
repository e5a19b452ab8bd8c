"""Lower bounds on epsilon from the releases of two neighbouring data sets, and what they are held against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.epsilon_bound import EpsilonBound
from fedassay.audits.stats.gdp_bound import gdp_bound
from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.reruns import Experiment, llr_scores
from fedassay.privacy.variants import with_mu, with_reference_noise
from fedassay.records.record import Limit
from fedassay.support.seeds import Seeds

Scores = NDArray[np.float64]
Estimator = Literal["gaussian", "threshold"]

_LEVEL = 0.95
TOO_LITTLE = 10.0
"""The positive control has a tenth of the noise that the claim needs."""
ENOUGH = 0.5
"""The negative control has twice of it."""
WITH_TOO_LITTLE = "with a tenth of the noise that the claim needs"
WITH_ENOUGH = "with twice the noise that the claim needs"
AGAINST = "lower bound on epsilon, against the claimed {:g}"

ASSUMPTIONS = (
    "the adversary sees the statistic as it was noised, before any projection or rounding, and knows all records "
    "but one",
    "Gaussian DP estimate: the scores are normal with equal spread, as they are for the likelihood ratio of a "
    "Gaussian mechanism (tested); the threshold bound assumes nothing",
)


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on epsilon from the releases of one pair of neighbours.

    Attributes:
        shown: One bound an estimator, at 95 % each, in the order asked for.
        corrected: The same at confidence 1 - 0.05 / tests.
        n: Releases a side.
        certain: Whether a field that differs carries no noise, so that one release of it is proof: likelihood
            ratios of 0 on one side and infinity on the other, in every single release.
    """

    shown: tuple[EpsilonBound, ...]
    corrected: tuple[EpsilonBound, ...]
    n: int
    certain: bool

    @property
    def observed(self) -> EpsilonBound:
        """The 95 % bound of the first estimator that applies (else the last one, which says why not)."""
        return next((bound for bound in self.shown if bound.epsilon is not None), self.shown[-1])

    @property
    def judged(self) -> float:
        """The largest corrected bound; 0 where no estimator applies."""
        return _largest(self.corrected)

    @property
    def proven(self) -> float:
        """The largest corrected bound that assumes nothing about the scores' law."""
        return _largest([bound for bound in self.corrected if bound.mu is None])


@dataclass(frozen=True)
class ObservedControl:
    """One control of an observation.

    Attributes:
        release: The release, in words.
        bounds: The bounds that it showed.
        above: Whether that is above what it is held against.
        detail: Meaning of the number.
    """

    release: str
    bounds: Bounds
    above: bool
    detail: str


@dataclass(frozen=True)
class Observation:
    """An attack on neighbouring data sets, with its controls.

    Attributes:
        about: The repeated release, in words.
        bounds: The bounds that it showed.
        positive: Releases that must be caught.
        negative: Releases that must not be flagged.
        assumptions: Assumptions of the bounds.
        remark: Remark on the bounds' reach; may be empty.
        limit: The smallest epsilon that would have been refuted, where it is not that of releases on neighbours.
        stopped: After how many releases the claim was refuted or given up on, in words, where that was not fixed.
    """

    about: str
    bounds: Bounds
    positive: ObservedControl
    negative: ObservedControl
    assumptions: tuple[str, ...]
    remark: str = ""
    limit: Limit | None = None
    stopped: str = ""


def _largest(bounds: Sequence[EpsilonBound]) -> float:
    return max((bound.epsilon for bound in bounds if bound.epsilon is not None), default=0.0)


def bounds_of(
    zero: Scores,
    one: Scores,
    *,
    delta: float,
    tests: int,
    estimators: Sequence[Estimator],
    rng: np.random.Generator,
) -> Bounds:
    """Bounds from scores (n,) of the releases of data set 0 and of data set 1.

    Args:
        zero: Scores under data set 0.
        one: Scores under data set 1, higher where it is the likelier one.
        delta: In (0, 1).
        tests: Lower bounds in the whole run, m: corrected bounds have confidence 1 - 0.05 / m.
        estimators: At least one, in order of preference.
        rng: Splits scores into the half that chooses a threshold and the half that tests it.
    """

    def at(confidence: float) -> tuple[EpsilonBound, ...]:
        return tuple(
            gdp_bound(zero, one, delta=delta, confidence=confidence)
            if estimator == "gaussian"
            else threshold_bound(zero, one, delta=delta, rng=rng, confidence=confidence)
            for estimator in estimators
        )

    certain = bool((zero == -math.inf).all() and (one == math.inf).all())
    return Bounds(at(_LEVEL), at(1 - (1 - _LEVEL) / tests), min(len(zero), len(one)), certain)


def observe_mechanism(
    name: str,
    experiment: Experiment,
    *,
    claimed: float,
    delta: float,
    tests: int,
    reruns: int,
    estimators: Sequence[Estimator],
    seeds: Seeds,
) -> Observation:
    """Rerun a noised statistic on the neighbours that are worst for it, and both controls beside it.

    The score of a release is its log-likelihood ratio: no test is better (Neyman and Pearson).

    Args:
        name: The mechanism's name in the method's outcome.
        experiment: The mechanism and the neighbours.
        claimed: Epsilon, greater than 0 and finite.
        delta: Of the claim, in (0, 1).
        tests: See `bounds_of`.
        reruns: Releases a side.
        estimators: See `bounds_of`.
        seeds: Of the noise.
    """

    def run(what: str, variant: Experiment) -> Bounds:
        zero, one = llr_scores(variant, reruns=reruns, rng=seeds.numpy(what, "noise"))
        rng = seeds.numpy(what, "halves")
        return bounds_of(zero, one, delta=delta, tests=tests, estimators=estimators, rng=rng)

    needed = mu_of(claimed, delta)
    weak = with_mu(experiment, TOO_LITTLE * needed)
    positive = run("positive", weak)
    if any(bound.epsilon is None for bound in positive.corrected):
        # The Gaussian estimate's own check of normality refuses one good sample in some hundreds. The
        # control asks what the audit can see, not how lucky its draw was; a mechanism that is not Gaussian
        # is refused again.
        positive = run("positive, drawn again", weak)
    negative = run("negative", with_reference_noise(experiment, ENOUGH * needed))
    against = AGAINST.format(claimed)
    return Observation(
        about=name,
        bounds=run("audited", experiment),
        positive=ObservedControl(
            f"releases {WITH_TOO_LITTLE}",
            positive,
            positive.judged > claimed,
            against,
        ),
        negative=ObservedControl(
            f"releases {WITH_ENOUGH}",
            negative,
            negative.judged > claimed,
            against,
        ),
        assumptions=ASSUMPTIONS,
    )
