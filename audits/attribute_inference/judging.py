"""Judge guesses of attributes against the best guess without the message, and against guesses of strangers.

A message adds to what is known of a record if its attribute is guessed rightly more often than without the message
(more than imputation: Jayaraman and Evans 2022), and more often than the attribute of a stranger with the same
message (more than what the message teaches of people in general: the advantage of Yeom et al. 2018, definition 5).
Neither alone is a leak: a message that teaches more than the adversary's own records improves guesses of
everybody, and attributes of clients from another population are guessed differently without any message. So the
test is an intersection-union test (Berger 1982): its p-value is the larger of both, each by sign-flips of pairs.

If the message does not distinguish a member from a stranger of the same label, it is a fair coin which of the two
is the member, whatever the attack computes. So the second test is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedassay.audits.attribute_inference.facts import ADVANTAGE
from fedassay.audits.detection_limit import limit_of
from fedassay.audits.evidence import WORSE, ControlResult, LeakTest, Result, by_p_value
from fedassay.audits.stats.betting import betting_interval
from fedassay.audits.stats.decisions import PairedDecision
from fedassay.audits.stats.paired import sign_flip
from fedassay.records.facts import Harm
from fedassay.records.record import Metric
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Matrix

_EACH = 0.975
"""Coverage of each gain's interval: an end of the smaller one is wrong where either of its tails is."""


@dataclass(frozen=True, eq=False)
class Guessed:
    """Whether each guess was right, 1 or 0, of n records of clients and as many strangers.

    Attributes:
        ours: Of the clients' records, with the message, shape (n,).
        imputed: Of the same records without it, shape (n,).
        non_members: Of the stranger that each is paired with, with the message, shape (n,).
        tests: Tests in the run, which levels are corrected for.
        seeds: Random streams of the tests.
    """

    ours: Matrix
    imputed: Matrix
    non_members: Matrix
    tests: int
    seeds: Seeds

    def __len__(self) -> int:
        return len(self.ours)

    @property
    def gains(self) -> tuple[Matrix, Matrix]:
        """Over the best guess without the message, and over strangers, shapes (n,), each in [-1, 1]."""
        return self.ours - self.imputed, self.ours - self.non_members

    @property
    def advantage(self) -> float:
        """The smaller of both mean gains; 0 without trials."""
        return min(float(gains.mean()) for gains in self.gains) if len(self) else 0.0

    @cached_property
    def test(self) -> LeakTest:
        """The test of whether both gains are above 0."""
        names = ("imputed", "strangers")
        p = [self._p(gains, name) for gains, name in zip(self.gains, names, strict=True)] if len(self) else [1.0]
        return by_p_value(max(p), self.tests, "attribute_advantage")

    @cached_property
    def below_baseline(self) -> bool:
        """Whether guesses without the message are right more often than those with it."""
        return bool(len(self)) and self._p(-self.gains[0], "worse") <= WORSE

    def _p(self, gains: Matrix, name: str) -> float:
        return sign_flip(gains, self.seeds.numpy("flips", name), tests=self.tests).p

    @property
    def shown(self) -> str:
        """The figures that the verdict rests on."""
        ours, imputed, non_members = (float(part.mean()) for part in (self.ours, self.imputed, self.non_members))
        return (
            f"of {len(self)} attributes {100 * ours:.3g} % are guessed rightly with the message, "
            f"{100 * imputed:.3g} % without it, and {100 * non_members:.3g} % of strangers' with it, "
            f"{self.test.words}"
        )

    def control(self, release: str, *, end_to_end: bool = False) -> ControlResult:
        """As a control."""
        value = self.advantage
        return ControlResult(
            release,
            self.test.rejects,
            self.shown,
            value,
            len(self),
            "attribute advantage",
            end_to_end,
            gain=value,
            alone=self.test.uncorrected,
        )

    def metrics(self, from_features: Matrix) -> dict[str, Metric]:
        """Figures with intervals; `from_features` says which guesses are right that read all features, (n,)."""
        ends = [betting_interval(gains, -1.0, 1.0, level=_EACH) for gains in self.gains]
        low, high = (min(each[side] for each in ends) for side in (0, 1))
        size = len(self)
        advantage = Metric(value=self.advantage, low=low, high=high, n=size, reason=self.test.words)
        return {
            ADVANTAGE.name: advantage,
            "attribute_told": _share(self.ours),
            "attribute_imputed": _share(self.imputed),
            "attribute_strangers": _share(self.non_members),
            "attribute_from_features": _share(from_features),
        }

    def result(self, source: str, negative: Guessed, own: Guessed | None) -> Result:
        """The audited release, with the smallest leak that would have been found, for the ladder.

        Args:
            source: The vectors or fields that were attacked.
            negative: Strangers in the place of the clients' records.
            own: Known leaks, end to end; None where there are none.
        """
        limit = None
        if own is not None:
            limit = limit_of(
                Runs(self, negative, own),
                self.seeds.child("limit"),
                shifts=np.geomspace(0.01, 1.0, 12),
                unit=ADVANTAGE.name,
                of="record",
                planted="attribute",
                reach=len(self),
            )
        return Result(
            self.test,
            self.shown,
            leak="the message adds to what is known of the attribute",
            clear="the message adds nothing to what is known of the attribute",
            below_baseline="the best guess without the message" if self.below_baseline else "",
            limit=limit,
            harm=Harm(
                kind="attributes",
                of="record",
                total=len(self),
                metric=ADVANTAGE.name,
                value=self.advantage,
                mechanism=source,
            ),
        )


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of the audited size, put together from the guesses of both controls.

    Attributes:
        audited: As many trials, levels and streams as these.
        negative: Guesses of the negative control.
        positive: Guesses of the end-to-end positive control.
    """

    audited: Guessed
    negative: Guessed
    positive: Guessed

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Places, and trials of the negative and the positive control."""
        return len(self.audited), len(self.negative), len(self.positive)

    @cached_property
    def _decision(self) -> PairedDecision:
        places = len(self.audited)
        return PairedDecision(places, places, self.audited.tests)

    def finds(self, silent: Ints, leaking: Ints, count: int) -> bool:
        """Whether the test rejects where the first `count` records leak."""
        return self._rejects(
            np.concatenate([known[leaking[:count]], nobody[silent[count:]]])
            for known, nobody in zip(self.positive.gains, self.negative.gains, strict=True)
        )

    def finds_shift(self, shift: float, rng: np.random.Generator) -> bool:
        """Whether it rejects where so large a share of a silent run's wrong guesses is right."""
        rows = rng.integers(len(self.negative), size=len(self.audited))
        turned = rng.random(len(rows)) < shift
        ours = np.where(turned, 1.0, self.negative.ours[rows])
        return self._rejects(ours - part[rows] for part in (self.negative.imputed, self.negative.non_members))

    def _rejects(self, gains: Iterable[Matrix]) -> bool:
        return all(self._decision.rejects(each, np.zeros_like(each)) for each in gains)


def _share(right: Matrix) -> Metric:
    low, high = betting_interval(right, 0.0, 1.0)
    return Metric(value=float(right.mean()), low=low, high=high, n=len(right))
