"""Releases on neighbours until the claim is refuted: bounds that hold at whatever time one stops.

Instead of a fixed number of releases, batches are drawn until a bound exceeds the claim at the corrected level or
the number asked for is spent. What is false is so refuted by some hundreds of releases, and what holds pays a
little for having been looked at often.

- `threshold` becomes a betting martingale on an event that past releases choose (`audits.stats.anytime`).
- `gaussian` is looked at after 1,000 releases a side, and whenever their number has doubled, with half of the
  error that is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedassay.audits.claim.bounds import (
    AGAINST,
    ASSUMPTIONS,
    ENOUGH,
    TOO_LITTLE,
    WITH_ENOUGH,
    WITH_TOO_LITTLE,
    Bounds,
    Estimator,
    Observation,
    ObservedControl,
    Scores,
)
from fedassay.audits.stats.anytime import AnytimeBound
from fedassay.audits.stats.epsilon_bound import EpsilonBound
from fedassay.audits.stats.gdp_bound import LEAST, gdp_bound
from fedassay.audits.stats.refuted import refuted_epsilon
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.reruns import Experiment, llr_scores
from fedassay.privacy.variants import with_mu, with_reference_noise
from fedassay.records.record import Limit
from fedassay.support.seeds import Seeds

_LEVEL = 0.95
_FIRST = 100
"""Releases a side that choose the first event and that nothing is bet on."""


@dataclass(frozen=True)
class SequentialSettings:
    """Parameters of the sequential bounds on releases.

    Attributes:
        claimed: Epsilon, greater than 0.
        delta: In (0, 1).
        tests: Lower bounds in the whole run.
        releases: On either side at most.
        estimators: At least one, in order of preference.
    """

    claimed: float
    delta: float
    tests: int
    releases: int
    estimators: tuple[Estimator, ...]


@dataclass
class Looks:
    """The Gaussian-DP estimate, looked at now and then.

    Attributes:
        asked: Delta, and the number of tests.
        taken: Looks so far; the k-th has 2^-k of the error.
        shown: The largest bound of all looks, at 95 %.
        corrected: The same at the corrected level.
    """

    asked: SequentialSettings
    taken: int = 0
    shown: EpsilonBound | None = None
    corrected: EpsilonBound | None = None

    @property
    def next(self) -> int:
        """Releases a side at the next look."""
        return LEAST << self.taken

    def look(self, zero: Scores, one: Scores) -> None:
        """Look at all scores."""
        self.taken += 1
        self.shown, self.corrected = (
            _larger(best, _looked(zero, one, self.asked.delta, error, self.taken))
            for best, error in ((self.shown, 1 - _LEVEL), (self.corrected, (1 - _LEVEL) / self.asked.tests))
        )

    def bounds(self) -> tuple[EpsilonBound, EpsilonBound]:
        """At 95 % and at the corrected level."""
        levels = (_LEVEL, 1 - (1 - _LEVEL) / self.asked.tests)
        first, second = (
            bound
            or EpsilonBound(None, level, "Gaussian DP", reason=f"fewer than {LEAST} releases a side were needed")
            for bound, level in zip((self.shown, self.corrected), levels, strict=True)
        )
        return first, second


@dataclass
class Stopped:
    """Releases up to where the audit stopped.

    Attributes:
        bounds: The bounds that they show.
        refuted: Whether the claim was refuted at the corrected level.
        zero: Their scores under data set 0.
        one: Their scores under data set 1.
    """

    bounds: Bounds
    refuted: bool
    zero: Scores = field(repr=False)
    one: Scores = field(repr=False)


def observe_until_refuted(
    name: str, experiment: Experiment, asked: SequentialSettings, seeds: Seeds
) -> Observation:
    """Release a noised statistic on its worst neighbours until the claim falls, and both controls beside it.

    Args:
        name: The mechanism's name in the method's outcome.
        experiment: The mechanism and the neighbours.
        asked: The claim, and how many releases there may be.
        seeds: Of the noise.
    """
    needed = mu_of(asked.claimed, asked.delta)

    def run(what: str, variant: Experiment) -> Stopped:
        return until_refuted(variant, asked, seeds.numpy(what, "noise"))

    audited = run("audited", experiment)
    positive = run("positive", with_mu(experiment, TOO_LITTLE * needed))
    negative = run("negative", with_reference_noise(experiment, ENOUGH * needed))
    against = AGAINST.format(asked.claimed)
    used = 2 * audited.bounds.n
    return Observation(
        about=name,
        bounds=audited.bounds,
        positive=ObservedControl(f"releases {WITH_TOO_LITTLE}", positive.bounds, positive.refuted, against),
        negative=ObservedControl(f"releases {WITH_ENOUGH}", negative.bounds, negative.refuted, against),
        assumptions=(
            *ASSUMPTIONS,
            "sequential: bounds hold at whatever time one stops; releases were drawn until the claim was refuted",
        ),
        limit=_limit(asked),
        stopped=f"{'refuted after' if audited.refuted else 'not refuted by'} {used:,} releases",
    )


def until_refuted(experiment: Experiment, asked: SequentialSettings, rng: np.random.Generator) -> Stopped:
    """Draw batches until a bound exceeds the claim at the corrected level, or the releases are spent."""
    corrected = 1 - (1 - _LEVEL) / asked.tests
    bets, looks = AnytimeBound(asked.claimed, asked.delta), Looks(asked)
    bet_on, looked_at = "threshold" in asked.estimators, "gaussian" in asked.estimators
    zero, one = np.zeros(0), np.zeros(0)
    refuted = False
    while len(zero) < asked.releases and not refuted:
        batch = min(max(_FIRST, len(zero) // 4), asked.releases - len(zero))
        if looked_at:
            batch = min(batch, looks.next - len(zero))
        first, second = llr_scores(experiment, reruns=batch, rng=rng)
        zero, one = np.concatenate([zero, first]), np.concatenate([one, second])
        if bet_on:
            bets.see(first, second)
            refuted = bets.refutes(corrected)
        if looked_at and len(zero) == looks.next:
            looks.look(zero, one)
            bound = looks.corrected
            refuted |= bound is not None and (bound.epsilon or 0.0) > asked.claimed
    shown, judged = _collected(bets, looks, asked, corrected)
    certain = bool((zero == -np.inf).all() and (one == np.inf).all())
    return Stopped(Bounds(shown, judged, len(zero), certain), refuted, zero, one)


def _collected(
    bets: AnytimeBound, looks: Looks, asked: SequentialSettings, corrected: float
) -> tuple[tuple[EpsilonBound, ...], tuple[EpsilonBound, ...]]:
    gaussian = looks.bounds()
    free = (bets.bound(_LEVEL), bets.bound(corrected))
    pairs = [gaussian if estimator == "gaussian" else free for estimator in asked.estimators]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def _looked(zero: Scores, one: Scores, delta: float, error: float, number: int) -> EpsilonBound:
    return gdp_bound(zero, one, delta=delta, confidence=1 - error / 2**number)


def _larger(best: EpsilonBound | None, bound: EpsilonBound) -> EpsilonBound:
    if best is None or best.epsilon is None or (bound.epsilon or 0.0) > best.epsilon:
        return bound
    return best


def _limit(asked: SequentialSettings) -> Limit | None:
    """Limit of detection of the last look; None where there is no look."""
    looks = Looks(asked)
    while LEAST * 2 ** (looks.taken + 1) <= asked.releases:
        looks.taken += 1
    n = looks.next
    if "gaussian" not in asked.estimators or n > asked.releases:
        return None
    confidence = 1 - (1 - _LEVEL) / asked.tests / 2 ** (looks.taken + 1)
    found = refuted_epsilon(asked.claimed, delta=asked.delta, n=n, confidence=confidence).gaussian
    if found is None:
        return None
    words = f"{n:,} releases a side, the last that are looked at, would have refuted epsilon {found:.3g}"
    return Limit(metric="epsilon", value=found, n=2 * n, words=words)
