"""From membership scores to a curve, to what a claim of privacy allows, and to whether it was exceeded.

Two questions, each with the test that fits it.

Does anything tell members apart? If a release says nothing of who is a member, members and strangers of one client
and label are exchangeable given that release. So a rank test is valid however much one release ties their scores
together. Two tests at half the level each: Mann and Whitney's for the whole curve, and a threshold test
(`audits.stats.threshold_bound` above 0) for its low corner.

More than the claim allows? The two members of a pair (member and stranger of one client and label) can be
exchanged, independently of other pairs: each pair is a hidden fair bit, and exchanging it replaces one record by
one of the same label. So the pairs of one release are the canaries of a one-run audit, for neighbours that differ
in one replaced record, and its bound holds for one release. A claim for `add_remove` allows two steps for that:
(2 epsilon, (1 + e^epsilon) delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.evidence import ControlResult, LeakTest, by_p_value
from fedassay.audits.stats.below_baseline import auc_below_half
from fedassay.audits.stats.epsilon_bound import EpsilonBound
from fedassay.audits.stats.estimate import Estimate
from fedassay.audits.stats.gdp_bound import gdp_bound
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.one_run_fdp import one_run_fdp_bound
from fedassay.audits.stats.resampling import ALONE, level_of
from fedassay.audits.stats.roc import auc, roc_curve, tpr_at_fpr
from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.exchange.release import Claim, PrivacyClaim
from fedassay.privacy.conversions import group_pair
from fedassay.privacy.gaussian import tpr_bound_approx_dp
from fedassay.records.record import Metric, Series
from fedassay.support.types import Bools, Matrix

RATES = {"tpr_at_1pct": 0.01, "tpr_at_0.1pct": 0.001}
_POINTS = 200


@dataclass(frozen=True)
class Allowed:
    """The (epsilon, delta) that a claim implies for the neighbours of a game.

    Attributes:
        epsilon: Greater than 0.
        delta: In [0, 1).
        words: The claim and the neighbours that they are for.
    """

    epsilon: float
    delta: float
    words: str


NOTHING = 1 - 1e-9
"""Delta from which on a claim allows everything."""


def allowed_by(claim: PrivacyClaim, *, replaced: bool, records: int = 1) -> Allowed:
    """Return the allowance of a claim for a replaced record or person, or for one change under its adjacency.

    A claim on records hides a person who has several less well: each is a step (group privacy; Dwork and Roth
    2014, theorem 2.2, with delta as in Vadhan 2017, lemma 2.2).

    Args:
        claim: Of privacy.
        replaced: Neighbours of the game differ in a replacement.
        records: Records of a person, where neighbours differ in one with all of its records.
    """
    epsilon, delta = claim.epsilon, claim.delta
    stated = f"({epsilon:g}, {delta:g}) under {claim.adjacency}"
    stated += "" if claim.unit == "record" else f" for one {claim.unit}"
    steps = records if claim.unit == "record" else 1
    if claim.adjacency == "add_remove" and replaced:
        steps *= 2
    if steps == 1:
        return Allowed(epsilon, delta, stated)
    whole = min(group_pair(epsilon, delta, steps).delta, NOTHING)
    one = "record" if records == 1 else f"person of up to {records} records"
    words = f"({steps * epsilon:g}, {whole:.3g}) for one replaced {one}, {_counted(steps)} steps of {stated}"
    return Allowed(steps * epsilon, whole, words)


def allowed_of(claim: Claim, records: int, *, person: bool) -> tuple[Allowed | None, tuple[str, ...]]:
    """Return a claim's allowance for a replaced record or person, None where nothing is claimed; and a remark.

    Args:
        claim: Of privacy, or none.
        records: Records of a person.
        person: Whether a person is replaced, and not a single record.
    """
    if not isinstance(claim, PrivacyClaim):
        return None, ()
    allowed = allowed_by(claim, replaced=True, records=records)
    if person and allowed.delta >= NOTHING:
        # A bound that allows everything is no claim, so any inference is a leak.
        return None, (f"nothing is claimed of a person: {allowed.words}",)
    return allowed, ()


def _counted(steps: int) -> str:
    return "two" if steps == 2 else str(steps)


@dataclass(frozen=True)
class Separation:
    """Separation of the scores of members from those of strangers.

    Attributes:
        outside: Scores of strangers.
        inside: Scores of members.
        area: AUC.
        p: The smaller of two one-sided p-values of "no better than chance", doubled; the threshold test counts as
            the level at which it was made.
        p_below: One-sided p-value of "no worse than chance", for the whole curve.
        tests: Number of tests in the run, which levels are corrected for.
        bound: Lower bound on epsilon at 95 %, for the game's neighbours.
        uncorrected: The same at confidence 1 - `ALONE`.
        corrected: The same at confidence 1 - 0.05 / tests.
        reach: The most that so many scores can show at that corrected confidence.
    """

    outside: Matrix
    inside: Matrix
    area: Estimate
    p: float
    p_below: float
    tests: int
    bound: EpsilonBound
    uncorrected: EpsilonBound
    corrected: EpsilonBound
    reach: float

    @property
    def value(self) -> float:
        """AUC as a number."""
        assert self.area.value is not None
        return self.area.value

    @property
    def words(self) -> str:
        """The figures that every reason holds."""
        return f"AUC {self.value:.3f} [{self.area.low:.3f}, {self.area.high:.3f}]"

    @property
    def test(self) -> LeakTest:
        """The test of whether members are distinguished from non-members at all."""
        return by_p_value(self.p, self.tests, "auc")

    def exceeds(self, allowed: Allowed) -> LeakTest:
        """The test of whether members are distinguished better than a claim allows."""
        uncorrected, corrected = self.uncorrected.epsilon or 0.0, self.corrected.epsilon or 0.0
        return LeakTest(
            rejects=corrected > allowed.epsilon,
            uncorrected=uncorrected > allowed.epsilon,
            words=f"epsilon at least {uncorrected:.3g}, above {allowed.words},",
            statistic="observed",
        )

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control: whether members are distinguished from strangers at all."""
        shown = f"AUC {self.value:.3f}, p = {self.p:.2g}"
        count = len(self.inside) + len(self.outside)
        gain = self.value - 0.5
        alone = self.test.uncorrected
        return ControlResult(
            release, self.test.rejects, shown, self.value, count, "AUC", end_to_end, gain, alone=alone
        )


def separate_one_release(
    scores: Matrix,
    members: Bools,
    blocks: NDArray[np.generic],
    rng: np.random.Generator,
    *,
    delta: float,
    tests: int,
) -> Separation:
    """Judge the scores of candidates of one release.

    Args:
        scores: Shape (n,), NaN where a candidate was not scored.
        members: Shape (n,).
        blocks: Names of the exchangeable groups (client and label), shape (n,).
        rng: Pairs up members and strangers, and splits them.
        delta: At which epsilon is bounded, in [0, 1).
        tests: Number of tests in the run, for corrected levels.

    Raises:
        ValueError: Fewer than 4 scored members or strangers.
    """
    known = ~np.isnan(scores)
    scores, members, blocks = scores[known], members[known], blocks[known]
    first, second = [], []
    for block in np.unique(blocks):
        inside = rng.permutation(np.flatnonzero((blocks == block) & members))
        outside = rng.permutation(np.flatnonzero((blocks == block) & ~members))
        size = min(len(inside), len(outside))
        first.append(inside[:size])
        second.append(outside[:size])
    gains = scores[np.concatenate(first)] - scores[np.concatenate(second)]
    # A fair coin of our own decides the order of a pair: the guess must not know it.
    heads = rng.random(len(gains)) < 0.5
    signed = np.where(heads, gains, -gains)

    def bound(values: Matrix, confidence: float) -> EpsilonBound:
        if len(values) < 2:
            return EpsilonBound(0.0, confidence, "one run (f-DP)")
        return one_run_fdp_bound(values, heads, delta=delta, confidence=confidence)

    perfect = bound(np.where(heads, 1.0, -1.0), 1 - level_of(tests)).epsilon or 0.0
    bounds = _at_levels(lambda confidence, _: bound(signed, confidence), rng, tests)
    return _separation(scores[~members], scores[members], bounds, perfect, rng, tests)


def separate_many_releases(
    outside: Matrix,
    inside: Matrix,
    rng: np.random.Generator,
    *,
    delta: float,
    tests: int,
    gaussian: tuple[Matrix, Matrix] | None = None,
) -> Separation:
    """Judge scores that are each of a release of its own: bounds from independent trials.

    Args:
        outside: Scores where the record was not in, shape (n0,), n0 at least 4.
        inside: Scores where it was, shape (n1,), n1 at least 4.
        rng: Splits them.
        delta: In [0, 1).
        tests: As in `separate_one_release`.
        gaussian: Those of the scores that should be normal with equal spread: from 1,000 a side on epsilon is
            bounded from these by the Gaussian-DP estimate, where they pass its checks.
    """
    if gaussian is not None and min(len(side) for side in gaussian) >= 2 and delta > 0:
        bounds = _at_levels(
            lambda confidence, _: gdp_bound(*gaussian, delta=delta, confidence=confidence), rng, tests
        )
        if all(bound.epsilon is not None for bound in bounds):
            return _separation(outside, inside, bounds, math.inf, rng, tests)

    def bound(zero: Matrix, one: Matrix, confidence: float, halves: np.random.Generator) -> EpsilonBound:
        return threshold_bound(zero, one, delta=delta, rng=halves, confidence=confidence)

    level = level_of(tests)
    reach = bound(np.zeros(len(outside)), np.ones(len(inside)), 1 - level, rng).epsilon or 0.0
    bounds = _at_levels(lambda confidence, halves: bound(outside, inside, confidence, halves), rng, tests)
    return _separation(outside, inside, bounds, reach, rng, tests)


_Bounds = tuple[EpsilonBound, EpsilonBound, EpsilonBound]
"""Bounds at 95 %, at 1 - `ALONE`, and at the corrected level."""


def _at_levels(
    bound: Callable[[float, np.random.Generator], EpsilonBound], rng: np.random.Generator, tests: int
) -> _Bounds:
    # The uncorrected bound draws from its own stream, so that the other two bounds do not change with it.
    return bound(0.95, rng), bound(1 - ALONE, rng.spawn(1)[0]), bound(1 - level_of(tests), rng)


def _separation(
    outside: Matrix, inside: Matrix, bounds: _Bounds, reach: float, rng: np.random.Generator, tests: int
) -> Separation:
    p, below = above_chance_p(outside, inside, rng, tests), auc_below_half(outside, inside)
    return Separation(outside, inside, auc(outside, inside), p, below, tests, *bounds, reach)


def above_chance_p(outside: Matrix, inside: Matrix, rng: np.random.Generator, tests: int) -> float:
    """The `p` of a `Separation`: Mann and Whitney's for the whole curve, or the level for its low corner."""
    # Non-members scoring no lower than members is members scoring no higher than non-members.
    above = auc_below_half(inside, outside)
    return min(1.0, 2 * above, level_of(tests) if in_low_corner(outside, inside, rng, tests) else 1.0)


def in_low_corner(outside: Matrix, inside: Matrix, rng: np.random.Generator, tests: int) -> bool:
    """Whether there is an event that members are likelier to be in, which an area hardly sees."""
    bound = threshold_bound(outside, inside, delta=0.0, rng=rng, confidence=1 - 0.025 / tests).epsilon or 0.0
    return bound > 0 and _higher(outside, inside)


def _higher(outside: Matrix, inside: Matrix) -> bool:
    """Whether members score higher in the low corner: a threshold test also fires where they score lower."""
    both = np.sort(np.concatenate([outside, inside]))
    top = both[int(0.95 * (len(both) - 1))]
    return float(np.mean(inside >= top)) > float(np.mean(outside >= top))


def metrics(separation: Separation, adjacency: str) -> dict[str, Metric]:
    """`auc`, `tpr_at_1pct`, `tpr_at_0.1pct` and `observed`."""
    figures = {"auc": separation.area.metric()}
    for name, rate in RATES.items():
        figures[name] = tpr_at_fpr(separation.outside, separation.inside, rate).metric()
    figures["observed"] = Metric(
        value=separation.bound.epsilon,
        n=len(separation.outside) + len(separation.inside),
        unit=adjacency,
        reason=f"{separation.bound.estimator}, 95 % one-sided lower bound on epsilon, {adjacency}",
    )
    return figures


def baseline(allowed: Allowed | None) -> dict[str, Metric]:
    """The rates that guessing has, or the highest that a claim allows."""
    grid = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 4000)])
    if allowed is None:
        reason = "guessing"
        rates = grid
    else:
        reason = f"the most that {allowed.words} allows"
        rates = tpr_bound_approx_dp(allowed.epsilon, allowed.delta, grid)
    area = float(np.trapezoid(rates, grid))
    rates_by_name = {"auc": Metric(value=min(1.0, area), reason=reason)}
    for name, rate in RATES.items():
        top = rate if allowed is None else float(tpr_bound_approx_dp(allowed.epsilon, allowed.delta, rate))
        rates_by_name[name] = Metric(value=top, reason=reason)
    return rates_by_name


def roc_series(separation: Separation) -> Series:
    """The curve with its Clopper-Pearson band at each threshold, thinned to what a page can show."""
    curve = roc_curve(separation.outside, separation.inside)
    rows = np.arange(len(curve.fpr))
    if len(rows) > _POINTS:
        # Dense where both rates are small, which is what the logarithmic axes show.
        rows = np.unique(
            np.concatenate([np.geomspace(1, len(rows), _POINTS).astype(np.int64) - 1, [len(rows) - 1]])
        )
    hits = np.rint(curve.tpr[rows] * len(separation.inside))
    band = clopper_pearson(hits, len(separation.inside))
    return Series(
        title="Receiver operating characteristic",
        columns={
            "fpr": tuple(curve.fpr[rows].tolist()),
            "tpr": tuple(curve.tpr[rows].tolist()),
            "tpr_low": tuple(band.low.tolist()),
            "tpr_high": tuple(band.high.tolist()),
        },
    )
