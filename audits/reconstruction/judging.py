"""From a scored selection to metrics with intervals, and to what the ladder asks of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.evidence import NEAR_COPY, Control, Explanation, LeakTest, Result
from fedassay.audits.reconstruction.selections import Scored
from fedassay.audits.stats.paired import paired_test, smallest_pairs
from fedassay.audits.stats.permutation import Gap, PermutationTest, gap
from fedassay.audits.stats.resampling import (
    ALONE,
    Interval,
    Statistic,
    difference,
    mean_of,
    mean_of_top,
    resampled,
)
from fedassay.records.record import Metric, unmeasured
from fedassay.similarity.metrics import Similarity

_UNITS = {"psnr": "dB"}

_DOUBTED = 0.05
"""p-value of other private images up to which they may explain that private ones are closer than fresh ones."""


@dataclass(frozen=True)
class Closeness:
    """One selection with its intervals.

    Attributes:
        scored: The selection.
        metrics: Of the reconstructions, `ssim_gain` among them.
        baseline: Of what a leak has to beat: for sets of reconstructions, the attacker's images or what fresh
            images get from the same set, whichever is closer.
        gain: SSIM over the attacker's images.
        exchanged: Sign-flip test of that gain, each side choosing its own best again.
        gap: SSIM of private over fresh images, for sets of reconstructions.
        level: Level of one test, corrected for the number of tests in the run.
    """

    scored: Scored
    metrics: dict[str, Metric]
    baseline: dict[str, Metric]
    gain: Interval
    exchanged: PermutationTest
    gap: Gap | None
    level: float

    @property
    def test(self) -> LeakTest:
        """Of whether it is closer than the baseline, and closer to private than to fresh images."""
        p, gap = self.exchanged.p, self.gap
        return LeakTest(
            beats=p <= self.level and (gap is None or gap.p <= self.level),
            alone=p <= ALONE and (gap is None or gap.p <= ALONE),
            words=f"p = {p:.2g}" if gap is None else f"p = {max(p, gap.p):.2g}",
        )

    @property
    def worse(self) -> bool:
        """Whether it is farther from the private images than the baseline."""
        high = self.metrics["ssim_gain"].high
        return high is not None and high < 0

    @property
    def near_copies(self) -> int:
        """Targets that count and whose reconstruction is a near copy."""
        best = np.argsort(-self.scored.rank, kind="stable")[: self.scored.top]
        return int((self.scored.values["psnr"][best] > NEAR_COPY).sum())

    def control(self, release: str) -> Control:
        """As a control."""
        return Control(
            release,
            detected=self.test.beats,
            shown=self.shown,
            value=self.metrics["ssim_gain"].value,
            n=self.scored.top,
            detail="SSIM over the same baseline",
        )

    @property
    def shown(self) -> str:
        """The figures that the verdict rests on."""
        if self.gap is None:
            return f"gain {_span(self.gain)}, p = {self.exchanged.p:.2g}"
        over = f"{_span(self.gain)} over the attacker's images (p = {self.exchanged.p:.2g})"
        return f"{over}, {_span(self.gap)} over fresh images (p = {self.gap.p:.2g})"

    @property
    def undecided(self) -> str:
        """Why so few pairs could not have shown a leak, whatever they are like; "" where they could."""
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
    """Intervals of every metric of a selection and its baseline (bootstrap), and tests of the SSIM between them.

    The gain is tested by exchanging reconstruction and baseline of a record (`audits.stats.paired`): exact where
    the two are exchangeable, which is what "the reconstruction is no closer" is taken to mean.

    Args:
        scored: The selection.
        similarity: Says why a metric is missing.
        rng: Source of the resamples.
        tests: One-sided tests in the run, to correct the verdict's confidence by.
        draws: Bootstrap resamples.
    """

    def interval(statistic: Statistic) -> Interval:
        behind = max(2, scored.top)
        return resampled(len(scored.truth), statistic, rng, tests=tests, draws=draws, behind=behind)

    def ours(name: str) -> Statistic:
        return _kept_mean(scored.values[name], scored.rank, scored.top)

    def theirs(name: str) -> Statistic:
        return _kept_mean(scored.baseline_values[name], scored.baseline_rank, scored.top)

    metrics = {name: _metric(interval(ours(name)), name, scored.top) for name in scored.values}
    baseline = {name: _metric(interval(theirs(name)), name, scored.top) for name in scored.values}
    gain = interval(difference(ours("ssim"), theirs("ssim")))
    metrics["ssim_gain"] = _metric(gain, "ssim_gain", scored.top)
    closeness = None
    if scored.fresh is not None:
        share = scored.top / len(scored.truth)
        closeness = gap(scored.values["ssim"], scored.fresh["ssim"], rng, share=share, tests=tests, draws=draws)
        metrics["heldout_gap"] = Metric(
            value=closeness.value,
            low=closeness.low,
            high=closeness.high,
            n=scored.top,
            reason=f"against {closeness.n[1]} fresh images; permutation p = {closeness.p:.2g}",
        )
        if closeness.value < gain.value:
            # Fresh images come closer than the attacker's own: they are what a leak has to beat.
            metrics["ssim_gain"] = metrics["heldout_gap"]
            baseline = _fresh_metrics(scored.fresh, share, rng, draws)
    for name, remark in similarity.remarks.items():
        metrics[name] = _remarked(metrics.get(name), remark)
        baseline[name] = _remarked(baseline.get(name), remark)
    exchanged = paired_test(
        scored.values["ssim"],
        scored.baseline_values["ssim"],
        rng,
        ranks=(scored.rank, scored.baseline_rank),
        top=scored.top,
        tests=tests,
        draws=draws,
    )
    return Closeness(scored, metrics, baseline, gain, exchanged, closeness, 0.05 / tests)


def explains(others: Closeness, judged: Closeness) -> bool:
    """Whether images of other private records, shown in the place of reconstructions, come as close.

    They know nothing of the records they are held against but their distribution, which need not be that of fresh
    ones (domains, other classes). They explain what is at most twice as far above fresh images as they may be.
    """
    if others.gap is None or judged.gap is None or others.gap.p > _DOUBTED:
        return False
    return judged.gap.value <= 2 * others.gap.high


def _fresh_metrics(
    fresh: dict[str, NDArray[np.float64]], share: float, rng: np.random.Generator, draws: int
) -> dict[str, Metric]:
    """Metrics of the fresh images that count: the same share of them as of the private ones."""
    count = max(1, round(share * len(fresh["ssim"])))
    return {
        name: _metric(
            resampled(len(values), _kept_mean(values, fresh["ssim"], count), rng, draws=draws), name, count
        )
        for name, values in fresh.items()
    }


def result_of(closeness: Closeness, others: Closeness | None) -> Result:
    """A selection for the ladder; `others`, where there are any, `explains` it."""
    ours, base = closeness.metrics["ssim"].value, closeness.baseline["ssim"].value
    explanation = None
    if others is not None:
        control = others.control("other private images in the place of reconstructions")
        explanation = Explanation(
            "private images may differ from fresh ones without any release, and the result is no more than that "
            f"explains: other private images, shown in the place of reconstructions, give {others.shown}",
            replace(control, detected=True),
        )
    return Result(
        test=closeness.test,
        shown=f"SSIM {ours:.3f} against {base:.3f} for the baseline ({closeness.shown})",
        leak="reconstructions come closer than the baseline",
        worse="what needs no generator" if closeness.worse else "",
        undecided=closeness.undecided,
        explained=explanation,
        # A paired reconstruction has its record, and nothing else is held in its place.
        near_copies=closeness.near_copies if closeness.gap is not None else 0,
    )


def _kept_mean(values: NDArray[np.float64], rank: NDArray[np.float64], top: int) -> Statistic:
    if top == len(values):
        return mean_of(values)
    return mean_of_top(values, rank, top)


def _span(interval: Interval | Gap) -> str:
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def _metric(interval: Interval, name: str, n: int) -> Metric:
    return Metric(value=interval.value, low=interval.low, high=interval.high, n=n, unit=_UNITS.get(name, ""))


def _remarked(metric: Metric | None, remark: str) -> Metric:
    return unmeasured(remark) if metric is None else metric.model_copy(update={"reason": remark})
