"""Trials beside a baseline each: the assay of most audits, whole.

An audit scores every target twice, what was made of it and what needs no attack. That is all that is asked here:
whether the one is larger (sign-flips of the pairs, `fedassay.audits.stats.paired`), in the result and in its
controls, and the smallest share of leaking targets that a run of this size would have found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedassay.audits.detection_limit import limit_of
from fedassay.audits.evidence import Arms, ControlResult, LeakTest, Result, by_p_value
from fedassay.audits.stats.decisions import PairedDecision
from fedassay.audits.stats.detection import drawn_trials
from fedassay.audits.stats.paired import paired_test, smallest_pairs
from fedassay.audits.stats.resampling import ALONE
from fedassay.records.facts import Harm
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Matrix


class Pairs(NamedTuple):
    """Scores of targets and of their baselines, the larger the worse for privacy.

    Attributes:
        ours: Shape (n,).
        baseline: Shape (n,).
        rank: Values that the best targets are chosen by, shape (n,); None: by the scores themselves.
        top: Number of the best that count; None: all.
        alike: Whether the rank is no score and chooses the same targets on both sides.
    """

    ours: Matrix
    baseline: Matrix
    rank: Matrix | None = None
    top: int | None = None
    alike: bool = False


@dataclass(frozen=True)
class PairedRuns:
    """Runs of the audited size, put together from the pairs of both controls.

    Attributes:
        result: The audited pairs: how many there are, and how many count.
        negative: Pairs of the negative control.
        positive: Pairs of the end-to-end positive control.
        tests: Tests in the run.
    """

    result: Pairs
    negative: Pairs
    positive: Pairs
    tests: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Places, and trials of the negative and the positive control."""
        return len(self.result.ours), len(self.negative.ours), len(self.positive.ours)

    @cached_property
    def _decision(self) -> PairedDecision:
        places = len(self.result.ours)
        top = places if self.result.top is None else self.result.top
        return PairedDecision(top if self.result.alike else places, top, self.tests)

    def finds(self, silent: Ints, leaking: Ints, count: int) -> bool:
        """Whether the test rejects where the first `count` targets leak."""
        known, nobody = self._rows(self.positive, leaking[:count]), self._rows(self.negative, silent[count:])
        return self._rejects(np.concatenate([known, nobody], axis=1))

    def finds_shift(self, shift: float, rng: np.random.Generator) -> bool:
        """Whether it rejects where every target of a silent run is closer by this much."""
        rows = self._rows(self.negative, drawn_trials(self.sizes[1], self.sizes[0], rng))
        return self._rejects(rows + np.array([[shift], [0.0], [0.0]]))

    @staticmethod
    def _rows(pairs: Pairs, trials: Ints) -> Matrix:
        rank = pairs.ours if pairs.rank is None else pairs.rank
        return np.stack([each[trials] for each in (pairs.ours, pairs.baseline, rank)])

    def _rejects(self, rows: Matrix) -> bool:
        ours, theirs, rank = rows
        if self.result.alike:
            best = np.argsort(-rank, kind="stable")[: self.result.top]
            ours, theirs = ours[best], theirs[best]
        return self._decision.rejects(ours, theirs)


@dataclass(frozen=True)
class Paired:
    """Pairs of one release, judged.

    Attributes:
        pairs: Scores of targets and of their baselines.
        statistic: Declared metric that the mean gain is.
        tests: Tests in the run, which levels are corrected for.
        seeds: Random streams of the audit.
    """

    pairs: Pairs
    statistic: str
    tests: int
    seeds: Seeds

    @property
    def gain(self) -> float:
        """Mean of the scores over their baselines."""
        return float((self.pairs.ours - self.pairs.baseline).mean()) if len(self.pairs.ours) else 0.0

    @cached_property
    def test(self) -> LeakTest:
        """The test of whether the scores are above their baselines on average."""
        if not len(self.pairs.ours):
            return by_p_value(1.0, self.tests, self.statistic)
        rng = self.seeds.numpy("exchanges")
        found = paired_test(self.pairs.ours, self.pairs.baseline, rng, tests=self.tests)
        return by_p_value(found.p, self.tests, self.statistic)

    @property
    def shown(self) -> str:
        """The figures that the verdict rests on."""
        return f"mean gain {self.gain:.3g} over {len(self.pairs.ours)} targets, {self.test.words}"

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control."""
        size = len(self.pairs.ours)
        return ControlResult(
            release,
            self.test.rejects,
            self.shown,
            self.gain,
            size,
            "mean gain",
            end_to_end,
            gain=self.gain,
            # Four targets are rejected by no sign-flip test, however much each of them gives away.
            possible=size >= smallest_pairs(ALONE),
            alone=self.test.uncorrected,
        )

    def arms(
        self, own: Paired | str, negative: Paired, *, of: tuple[str, str], leak: str, clear: str, harm: Harm
    ) -> Arms:
        """This result with both controls and its limit of detection.

        Args:
            own: Trials on the method's own release of control records; or the reason why there is none.
            negative: Trials on a release that cannot leak.
            of: Names of these two releases.
            leak: Meaning of a leak, as a clause.
            clear: Meaning of no leak.
            harm: Harm of a leak.
        """
        limit = None
        if isinstance(own, Paired) and min(map(len, (self.pairs.ours, negative.pairs.ours, own.pairs.ours))):
            runs = PairedRuns(self.pairs, negative.pairs, own.pairs, self.tests)
            shifts = np.geomspace(0.01, 1.0, 12) * max(own.gain, 1e-9)
            limit = limit_of(
                runs,
                self.seeds.child("limit"),
                shifts=shifts,
                unit=self.statistic,
                of=harm.of,
                planted=harm.mechanism,
                reach=len(self.pairs.ours),
            )
        result = Result(self.test, self.shown, leak, clear, harm=harm, limit=limit)
        known = own if isinstance(own, str) else (own.control(of[0], end_to_end=True),)
        return Arms(result, known, negative.control(of[1]))
