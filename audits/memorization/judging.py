"""Tests and figures of the memorization audit: shares of records given back, metrics, and series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedassay.audits.evidence import Arms, Confounder, ControlResult, LeakTest, Result, by_p_value
from fedassay.audits.memorization.scores import Scores
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.permutation import Gap
from fedassay.audits.stats.stratified import gap_of_counts, stratified_gap
from fedassay.records.facts import Harm
from fedassay.records.record import Limit, Metric, Series
from fedassay.support.types import Bools, Ints, Matrix

_DRAWN = 20_000
_MOST_CLASSES = 1 << 20


@dataclass(frozen=True)
class Memory:
    """Scores of one set of generators, and the tests on what they remember.

    Attributes:
        scores: By client.
        copied: Share of training records that are given back, less that of held-out records.
        gap: Difference between the smallest scores of held-out and of training records.
        threshold: Scores below count as copies.
        tests: Number of tests in the run, which levels are corrected for.
    """

    scores: tuple[Scores, ...]
    copied: Gap
    gap: Gap
    threshold: float
    tests: int

    @property
    def strata(self) -> tuple[Ints, Ints]:
        """Client and class of every training and held-out record that is compared."""
        return _strata(self.scores)

    @property
    def given(self) -> tuple[Bools, Bools]:
        """Whether each of them is given back."""
        return (
            np.concatenate([each.closeness for each in self.scores]) < self.threshold,
            np.concatenate([each.heldout_closeness for each in self.scores]) < self.threshold,
        )

    @property
    def training(self) -> Matrix:
        """Scores of all generated images against the training records."""
        return np.concatenate([each.training for each in self.scores])

    @property
    def heldout(self) -> Matrix:
        """Scores of all generated images against the held-out records."""
        return np.concatenate([each.heldout for each in self.scores])

    @property
    def test(self) -> LeakTest:
        """The test of whether more training than held-out records are given back."""
        return by_p_value(self.copied.p, self.tests, "copied")

    @property
    def closer(self) -> LeakTest:
        """The test of whether training records lie closer to generated images than held-out records do."""
        return by_p_value(self.gap.p, self.tests, "heldout_gap")

    @property
    def only_closer(self) -> bool:
        """Whether training records are closer, and not given back."""
        return not self.test.rejects and (self.closer.rejects or self.closer.uncorrected)

    @property
    def copies(self) -> int:
        """Generated images that score under the threshold."""
        return int((self.training < self.threshold).sum())

    @property
    def apart(self) -> str:
        """The figures of how much closer training records are."""
        gap = self.gap
        return (
            f"training records lie closer to generated images than held-out ones (gap {gap.value:.3f} "
            f"[{gap.low:.3f}, {gap.high:.3f}], p = {gap.p:.2g})"
        )

    @property
    def shown(self) -> str:
        """The figures that the verdict rests on."""
        copied = self.copied
        return (
            f"records given back, training less held-out: {copied.value:+.1%} [{copied.low:+.1%}, "
            f"{copied.high:+.1%}], p = {copied.p:.2g}"
        )

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control."""
        copied, under = self.copied.value, f"{self.copies} of {len(self.training)} images under {self.threshold:g}"
        return ControlResult(
            release,
            detected=self.test.rejects,
            alone=self.test.uncorrected,
            shown=f"{release}; {self.shown}",
            value=copied,
            n=self.copied.n[0],
            detail=f"{self.shown}; {under}",
            end_to_end=end_to_end,
            gain=copied,
        )


def judge(
    scores: Sequence[Scores], threshold: float, rng: np.random.Generator, *, tests: int, draws: int
) -> Memory:
    """Test all generators together; a stratum is a class of one client.

    Args:
        scores: By client, at least one.
        threshold: Scores below count as copies.
        rng: Source of permutations and resamples.
        tests: One-sided tests in the run, to correct the level by.
        draws: Least number of permutations, and number of bootstrap resamples.
    """
    strata = _strata(scores)
    ours = np.concatenate([each.closeness for each in scores])
    theirs = np.concatenate([each.heldout_closeness for each in scores])

    copied = gap_of_counts(ours < threshold, theirs < threshold, strata, rng, draws=draws)
    # A small score is close.
    closer = stratified_gap(-ours, -theirs, strata, rng, tests=tests, draws=draws)
    return Memory(tuple(scores), copied, closer, threshold, tests)


def _strata(scores: Sequence[Scores]) -> tuple[Ints, Ints]:
    first, second = (
        np.concatenate([number * _MOST_CLASSES + each.strata[side] for number, each in enumerate(scores)])
        for side in (0, 1)
    )
    return first, second


def arms_of(
    memory: Memory,
    own: Sequence[Memory] | str,
    copies: Memory,
    negative: Memory,
    *,
    claimed: bool,
    limit: Callable[[], Limit | str],
) -> Arms:
    """The generators with their controls, for the ladder.

    Args:
        memory: Of the audited generators.
        own: Of generators of every architecture that were made to remember control records; or why there are none.
        copies: Of records that are given back as they are: the search alone.
        negative: Of images that know nothing of the records they are asked about.
        claimed: Whether a claim of privacy allows membership some room. What of it is used is for the audits of
            claims to say; only what is given back is a leak then.
        limit: The smallest leak that would have been found.
    """
    silent = negative.control("either half of each client's images as if generated, asked about the other half")
    if not silent.detected:
        silent = replace(silent, detected=negative.closer.rejects and not claimed, shown=negative.apart)
    confounder = None
    if memory.only_closer and not claimed:
        confounder = Confounder(
            negative.gap.p,
            memory.gap.value,
            negative.gap.high,
            "training records lie closer to generated images than held-out ones, but so may records that no "
            f"generator saw (p = {negative.gap.p:.2g})",
        )
    return Arms(
        _result(memory, claimed=claimed, limit=limit),
        own if isinstance(own, str) else tuple(_overfitted(each) for each in own),
        silent,
        (copies.control("images of records as they are, in the place of generated ones"),),
        confounder,
    )


def _overfitted(memory: Memory) -> ControlResult:
    known = memory.scores[0].trained
    release = f"the method's own generator, overfitted to {known} control records"
    control = memory.control(release, end_to_end=True)
    shown = f"the method's own generator that should know {known} control records by heart; {memory.shown}"
    return replace(control, shown=shown)


def _result(memory: Memory, *, claimed: bool, limit: Callable[[], Limit | str]) -> Result:
    values, heldout = memory.training, memory.heldout
    shown = (
        f"{memory.copies} of {len(values)} generated images score under {memory.threshold:g} (smallest "
        f"{values.min():.2f}; against held-out records {int((heldout < memory.threshold).sum())} and "
        f"{heldout.min():.2f}); {memory.shown}"
    )
    test, leak = memory.test, "training records are given back"
    harm = Harm(
        kind="pictures", of="training_record", count=memory.copies, total=len(values), mechanism="memorized"
    )
    if memory.only_closer and claimed:
        shown = f"{shown}; {memory.apart}, which is membership, not memorization"
    elif memory.only_closer:
        test, leak = (
            replace(memory.closer, uncorrected=test.uncorrected or memory.closer.uncorrected),
            memory.apart,
        )
        harm = Harm(kind="members", of="training_record", metric="heldout_gap", value=memory.gap.value)
    return Result(
        test=test,
        shown=shown,
        leak=leak,
        harm=harm,
        clear="no generated image is a copy",
        below_baseline="held-out records" if memory.gap.high < 0 else "",
        undecided="low scores, but not of training records more than of others" if memory.copies else "",
        limit=limit,
    )


def metrics_of(values: Matrix, threshold: float) -> dict[str, Metric]:
    """Metrics of the scores of generated images, (N,)."""
    copies = int((values < threshold).sum())
    low, high = clopper_pearson(copies, len(values))
    return {
        "min_distance": Metric(value=float(values.min()), n=len(values)),
        "under_threshold": Metric(value=float(copies), n=len(values)),
        "share_under_threshold": Metric(
            value=copies / len(values), low=float(low), high=float(high), n=len(values)
        ),
    }


def tested_metrics(memory: Memory) -> dict[str, Metric]:
    """Metrics of both tests."""
    return {
        "copied": _tested(memory.copied, "share of training records given back, less held-out ones"),
        "heldout_gap": _tested(memory.gap, "smallest scores of records, held-out less training"),
    }


def by_client(memory: Memory, names: Sequence[str]) -> Series:
    """Series of memorization by client, one row a client."""
    scores = memory.scores
    return Series(
        title="Memorization scores by client",
        columns={
            "client": tuple(names),
            "generated": tuple(float(len(each.training)) for each in scores),
            "smallest": tuple(float(each.training.min()) for each in scores),
            "under_threshold": tuple(float((each.training < memory.threshold).sum()) for each in scores),
            "held_out_records": tuple(float(len(each.heldout_closeness)) for each in scores),
        },
    )


def _tested(gap: Gap, what: str) -> Metric:
    reason = f"{what}; {gap.n[1]} held-out records, permutation p = {gap.p:.2g}"
    return Metric(value=gap.value, low=gap.low, high=gap.high, n=gap.n[0], reason=reason)


def histogram_of(values: Matrix, heldout: Matrix) -> Series:
    """Every score, sorted; evenly thinned where there are very many, the smallest always kept."""
    size = min(len(values), _DRAWN)
    rows = np.linspace(0, len(values) - 1, size).round().astype(np.int64)
    return Series(
        title="Memorization scores of generated images",
        columns={
            "generated": tuple(np.sort(values)[rows].tolist()),
            "heldout": tuple(np.sort(heldout)[rows].tolist()),
        },
    )
