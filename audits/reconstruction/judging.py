"""From a scored selection to metrics with intervals, and to what the ladder asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedassay.audits.evidence import NEAR_COPY, WORSE, Confounder, ControlResult, LeakTest, Result
from fedassay.audits.reconstruction.selections import Scored
from fedassay.audits.stats.below_baseline import below_baseline
from fedassay.audits.stats.estimate import Estimate
from fedassay.audits.stats.paired import paired_test, smallest_pairs
from fedassay.audits.stats.permutation import Gap, PermutationTest, gap
from fedassay.audits.stats.resampling import ALONE, level_of
from fedassay.audits.stats.typed_intervals import Bounded, Unbounded, interval, mean_of_top
from fedassay.contracts.metrics import declared
from fedassay.contracts.registry import metrics
from fedassay.records.facts import Harm
from fedassay.records.record import Limit, Metric, unmeasured
from fedassay.similarity.metrics import Similarity
from fedassay.support.types import Matrix

_DIFFERENCE = Bounded(-2, 2)
_HALVED = 0.975
"""Coverage of each of two intervals that together make one of 95 %."""

DECIDED_BY = "more private images, a larger preset of the attack or a run of this cell alone may decide"
"""Said where reconstructions are inconclusive."""


@dataclass(frozen=True)
class Closeness:
    """One selection with its intervals.

    Attributes:
        scored: The selection, image by image.
        trials: The tested units: the same person by person where images carry a person's identity.
        metrics: Of the reconstructions, `ssim_gain` among them.
        baseline: Of the images that a leak has to beat: for sets of reconstructions, the attacker's images or
            those that fresh images get from the same set, whichever are closer.
        gain: SSIM over the attacker's images.
        exchanged: Sign-flip test of that gain, each side choosing its own best again.
        farther: p-value of "no farther from the private images than the baseline".
        gap: SSIM of private over fresh images, for sets of reconstructions.
        level: Level of one test, corrected for the number of tests in the run.
    """

    scored: Scored
    trials: Scored
    metrics: dict[str, Metric]
    baseline: dict[str, Metric]
    gain: Estimate
    exchanged: PermutationTest
    farther: float
    gap: Gap | None
    level: float

    @property
    def p(self) -> float:
        """p-value of "no closer than the baseline, or no closer to private than to fresh images"."""
        return self.exchanged.p if self.gap is None else max(self.exchanged.p, self.gap.p)

    @property
    def test(self) -> LeakTest:
        """The test of whether images are closer than the baseline, and closer to private than to fresh images."""
        p, gap = self.exchanged.p, self.gap
        return LeakTest(
            rejects=p <= self.level and (gap is None or gap.p <= self.level),
            uncorrected=p <= ALONE and (gap is None or gap.p <= ALONE),
            words=f"p = {p:.2g}" if gap is None else f"p = {max(p, gap.p):.2g}",
            p=p if gap is None else max(p, gap.p),
            level=self.level,
            statistic="ssim_gain",
        )

    @property
    def below_baseline(self) -> bool:
        """Whether it is farther from the private images than the baseline."""
        return self.farther <= WORSE

    @property
    def near_copies(self) -> int:
        """Number of counted targets with a near copy as reconstruction, where the baseline shows none.

        Where fresh images have near copies in the same set, too, as many are subtracted: they come by chance.
        """
        scored = self.scored
        best = np.argsort(-scored.rank, kind="stable")[: scored.top]
        copies = (scored.values["psnr"] > NEAR_COPY) & (scored.baseline_values["psnr"] <= NEAR_COPY)
        if scored.fresh is None:
            return int(copies[best].sum())
        by_chance = np.ceil((scored.fresh["psnr"] > NEAR_COPY).mean() * len(copies))
        return max(0, int(copies[best].sum()) - int(by_chance))

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control."""
        return ControlResult(
            release,
            detected=self.test.rejects,
            alone=self.test.uncorrected,
            shown=self.shown,
            value=self.metrics["ssim_gain"].value,
            n=self.trials.top,
            detail="SSIM over the same baseline",
            end_to_end=end_to_end,
            gain=self.metrics["ssim_gain"].value,
            possible=max(self.exchanged.smallest, 0.0 if self.gap is None else self.gap.smallest) <= self.level,
        )

    @property
    def shown(self) -> str:
        """The figures that the verdict rests on."""
        # The interval of a few selected ones is too wide to be read beside their test.
        gain = _span(self.gain if self.trials.top == len(self.trials.truth) else replace(self.gain, low=None))
        if self.gap is None:
            return f"gain {gain}, p = {self.exchanged.p:.2g}"
        over = f"{gain} over the attacker's images (p = {self.exchanged.p:.2g})"
        return f"{over}, {self.gap.value:+.3f} over fresh images (p = {self.gap.p:.2g})"

    @property
    def persons_in_words(self) -> tuple[str, ...]:
        """Return the assumption on persons, where images carry a person's identity."""
        if self.scored.persons is None:
            return ()
        most = int(np.unique(self.scored.persons, return_counts=True)[1].max(initial=0))
        return (
            f"targets are {len(self.trials.truth)} persons, each by the mean over its images (up to {most}): "
            "images of one person are no trials of their own; a near copy counts image by image",
        )

    @property
    def undecided(self) -> str:
        """Return the reason why no absence of a leak can be concluded, whatever the test says; "" where it can."""
        if self.near_copies:
            return (
                f"{self.near_copies} reconstructions are near copies of private images (above {NEAR_COPY:g} dB), "
                f"too few for the test of the mean to weigh"
            )
        least = self.exchanged.smallest
        if least <= self.level:
            return ""
        return (
            f"{self.exchanged.n[0]} pairs cannot show a gain at the level of {self.level:.2g}: a sign-flip test "
            f"of so few gives at least {least:.2g}, and {smallest_pairs(self.level)} would do"
        )


def judge(
    scored: Scored, similarity: Similarity, rng: np.random.Generator, *, tests: int, draws: int
) -> Closeness:
    """Intervals of every metric of a selection and its baseline, and tests of the SSIM between them.

    The gain is tested by exchanging reconstruction and baseline of a record (`audits.stats.paired`): exact where
    the two are exchangeable, which is what "the reconstruction is no closer" is taken to mean.

    Args:
        scored: The selection.
        similarity: Says why a metric is missing.
        rng: Source of exchanges and permutations.
        tests: One-sided tests in the run, to correct the verdict's confidence by.
        draws: Exchanges and permutations at least.
    """
    trials = scored.by_person()
    ours, theirs = trials.values, trials.baseline_values
    metrics = {name: _metric(_mean(ours[name], name, trials.rank, trials.top), name) for name in ours}
    baseline = {name: _metric(_mean(theirs[name], name, trials.baseline_rank, trials.top), name) for name in ours}
    gain = _gain(trials)
    metrics["ssim_gain"] = _metric(gain, "ssim_gain")
    if scored.persons is not None:
        metrics["worst_person"] = _worst_person(trials)
    closeness = None
    if trials.fresh is not None:
        share = trials.top / len(trials.truth)
        closeness = gap(ours["ssim"], trials.fresh["ssim"], rng, share=share, tests=tests, draws=draws)
        metrics["heldout_gap"] = _heldout(trials, closeness)
        if closeness.value < (gain.value or 0.0):
            # Fresh images come closer than the attacker's own: they are what a leak has to beat.
            metrics["ssim_gain"] = metrics["heldout_gap"]
            baseline = {
                name: _metric(_mean(values, name, trials.fresh["ssim"], _counted(trials)), name)
                for name, values in trials.fresh.items()
            }
    for name, remark in similarity.remarks.items():
        metrics[name] = _remarked(metrics.get(name), remark)
        baseline[name] = _remarked(baseline.get(name), remark)
    ranks = (trials.rank, trials.baseline_rank)
    pair = ours["ssim"], theirs["ssim"]
    exchanged = paired_test(*pair, rng, ranks=ranks, top=trials.top, tests=tests, draws=draws)
    farther = below_baseline(*pair, rng, ranks=ranks, top=trials.top).p
    return Closeness(scored, trials, metrics, baseline, gain, exchanged, farther, closeness, level_of(tests))


def confounder_of(others: Closeness | None, judged: Closeness) -> Confounder | None:
    """Images of other private records, shown in the place of reconstructions.

    They know nothing of the records they are held against but their distribution, which need not be that of fresh
    ones (domains, other classes). The gap to fresh images of either counts; None: not asked for.
    """
    if others is None or others.gap is None or judged.gap is None:
        return None
    return Confounder(
        others.gap.p,
        judged.gap.value,
        others.gap.high,
        "private images may differ from fresh ones without any release, and the result is no more than that "
        f"explains: other private images, shown in the place of reconstructions, give {others.shown}",
        others.control("other private images in the place of reconstructions"),
    )


def result_of(
    closeness: Closeness, source: str, limit: Callable[[], Limit | str] | None, *, noised: bool
) -> Result:
    """A selection of images made from `source`, for the ladder."""
    ours, base = closeness.metrics["ssim"].value, closeness.baseline["ssim"].value
    return Result(
        test=closeness.test,
        shown=f"SSIM {ours:.3f} against {base:.3f} for the baseline ({closeness.shown})",
        leak="reconstructions come closer than the baseline",
        harm=_harm(closeness, source),
        below_baseline="what needs no generator" if closeness.below_baseline else "",
        ruin_expected=noised,
        undecided=closeness.undecided,
        decided_by=DECIDED_BY,
        near_copies=closeness.near_copies,
        limit=limit,
    )


def _harm(closeness: Closeness, source: str) -> Harm:
    """Near copies by their number, of the images that count; other images by their mean, over those tested."""
    copies = closeness.near_copies
    tested = closeness.scored if copies else closeness.trials
    selected, tried = tested.top, len(tested.truth)
    likeness = {} if copies else {"metric": "ssim", "value": closeness.metrics["ssim"].value}
    return Harm(
        kind="pictures",
        of="record" if tested is closeness.scored else "person",
        count=copies or None,
        total=selected,
        among=tried if tried > selected else None,
        mechanism=source,
        **likeness,
    )


def _mean(values: Matrix, name: str, rank: Matrix, top: int, level: float = 0.95) -> Estimate:
    """Mean of a metric over the selected targets, with the interval of its range."""
    facts = declared(name)
    if facts.low is None or facts.high is None:
        return mean_of_top(values, rank, top, Unbounded("mean"), level=level)
    return mean_of_top(values.clip(facts.low, facts.high), rank, top, Bounded(facts.low, facts.high), level=level)


def _gain(scored: Scored) -> Estimate:
    """Mean SSIM over the baseline's: of pairs, where both sides select the same ones."""
    ours, theirs = (values["ssim"].clip(-1, 1) for values in (scored.values, scored.baseline_values))
    if scored.top == len(ours):
        return interval(ours - theirs, _DIFFERENCE)
    if np.array_equal(scored.rank, scored.baseline_rank):
        return mean_of_top(ours - theirs, scored.rank, scored.top, _DIFFERENCE)
    return _apart(
        _mean(ours, "ssim", scored.rank, scored.top, _HALVED),
        _mean(theirs, "ssim", scored.baseline_rank, scored.top, _HALVED),
    )


def _worst_person(trials: Scored) -> Metric:
    """The largest gain of a person over its baseline; the best of so many is above 0 by chance, too."""
    gains = trials.values["ssim"] - trials.baseline_values["ssim"]
    words = f"the largest of {len(gains)} persons' gains, whose median is {np.median(gains):+.3f}"
    return Metric(value=float(gains.max()), n=len(gains), reason=words)


def _apart(first: Estimate, second: Estimate) -> Estimate:
    """The difference of two means with 97.5 % intervals: covered at 95 %, however they hang together."""
    value = (first.value or 0.0) - (second.value or 0.0)
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return Estimate(value, None, None, first.n, reason=first.reason or second.reason)
    return Estimate(value, first.low - second.high, first.high - second.low, first.n, first.method)


def _heldout(scored: Scored, closeness: Gap) -> Metric:
    """SSIM of private over fresh images, held against the same set."""
    assert scored.fresh is not None
    fresh = scored.fresh["ssim"]
    ends = _apart(
        _mean(scored.values["ssim"], "ssim", scored.rank, scored.top, _HALVED),
        _mean(fresh, "ssim", fresh, _counted(scored), _HALVED),
    )
    return Metric(
        value=closeness.value,
        low=ends.low,
        high=ends.high,
        n=scored.top,
        reason=f"against {closeness.n[1]} fresh images; permutation p = {closeness.p:.2g}",
    )


def _counted(scored: Scored) -> int:
    """Number of fresh images that count: the same share of them as of the private ones."""
    assert scored.fresh is not None
    return max(1, round(scored.top / len(scored.truth) * len(scored.fresh["ssim"])))


def _span(estimate: Estimate) -> str:
    ends = "" if estimate.low is None else f" [{estimate.low:+.3f}, {estimate.high:+.3f}]"
    return f"{estimate.value:+.3f}{ends}"


def _metric(estimate: Estimate, name: str) -> Metric:
    approximate = "approximate" in estimate.method
    return estimate.metric(estimate.method if approximate and not estimate.reason else "", metrics()[name].unit)


def _remarked(metric: Metric | None, remark: str) -> Metric:
    return unmeasured(remark) if metric is None else metric.model_copy(update={"reason": remark})
