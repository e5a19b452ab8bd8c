"""Declared noise that captured messages cannot hold.

Messages of a deployed system have no tape and cannot be drawn again, so whether the declared noise was added is
not known from them. What can be known without any record is that it was *not* added: entries that are smaller
than noise of that scale would be, whatever the values beneath it are (see `audits.stats.least_noise`). The test
looks at blocks fixed beforehand: every field over all messages, every array, and every row of it (a class); the
level, `LEVEL` for a transcript, is shared among them.

A field that is not refuted may still lack its noise, where its values are as large as the noise would be.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedassay.audits.claim.noise_blocks import NOTHING_FREE, NoisedArray, noised_arrays
from fedassay.audits.stats.least_noise import log10_ps_of_noise, one_sided_levels, two_sided_levels
from fedassay.exchange.transcript import Transcript
from fedassay.support.types import Matrix

LEVEL = 1e-3
"""Probability of a false accusation, for a transcript."""
_LEAST_ROW = 8
"""Entries from which a row is a block of its own."""
_POOLED = 10_000_000
"""Entries at most, evenly spread, by which a field is tested over all messages: more may not fit in memory."""


@dataclass(frozen=True)
class FieldNoise:
    """Test of one field's entries against the noise that it declares.

    Attributes:
        field: Its name.
        draws: Entries that were tested.
        scale: Smallest declared standard deviation.
        log10_p: Logarithm of the p-value of "the noise is there", corrected for all blocks of the transcript.
        outcome: `refuted`; `not_refuted`; or `not_tested`, where entries are no independent draws.
        where: The block with the smallest p-value, in words.
        reason: Reason why it was not tested, or not whole; "" else.
    """

    field: str
    draws: int
    scale: float
    log10_p: float
    outcome: Literal["refuted", "not_refuted", "not_tested"]
    where: str = ""
    reason: str = ""

    @property
    def words(self) -> str:
        """One clause."""
        if self.outcome == "not_tested":
            return f"{self.field} was not tested ({self.reason})"
        if self.outcome == "not_refuted":
            return f"{self.field} can hold its noise"
        return (
            f"{self.field} declares Gaussian noise of scale {self.scale:.3g}, but entries of {self.where} are "
            f"smaller than such noise would be (p <= {p_words(self.log10_p)})"
        )


def declared_noise(transcript: Transcript, *, level: float = LEVEL) -> tuple[FieldNoise, ...]:
    """Test every field that declares Gaussian noise; one result a field, in the order of their names.

    Args:
        transcript: Captured messages.
        level: Probability of refuting any field of a transcript with its noise present.
    """
    sizes: Counter[str] = Counter()
    for message in transcript.from_clients():
        sizes.update({name: item.size for name, item in message.fields.items()})
    found: dict[str, _Tested] = {}
    for array in noised_arrays(transcript):
        found.setdefault(array.field, _Tested(array.field, -(-sizes[array.field] // _POOLED))).add(array)
    tests = sum(each.tests for each in found.values())
    return tuple(found[name].judged(tests, level) for name in sorted(found))


def p_words(log10_p: float) -> str:
    """A p-value by its logarithm, also where it is below the smallest float."""
    return f"{10**log10_p:.2g}" if log10_p > -300 else "1e-300"


@dataclass
class _Tested:
    """Tests of one field, made array by array: of each, its smallest p-value and some of its levels are kept.

    Attributes:
        name: The field.
        every: One in so many entries is in the test over all messages.
        arrays: Arrays that were tested.
        tests: Blocks that were tested.
        draws: Entries that were tested.
        scale: Smallest declared standard deviation.
        least: Smallest logarithm of a p-value over blocks, and the block in words.
        levels: The levels that are kept.
        reasons: Reasons why arrays were not tested.
    """

    name: str
    every: int
    arrays: int = 0
    tests: int = 0
    draws: int = 0
    scale: float = math.inf
    least: tuple[float, str] = (math.inf, "")
    levels: list[Matrix] = field(default_factory=list)
    reasons: dict[str, None] = field(default_factory=dict)

    def add(self, array: NoisedArray) -> None:
        """Test one array, and each of its rows that is long enough."""
        self.scale = min(self.scale, float(array.scales.min()))
        if array.reason:
            self.reasons[array.reason] = None
            return
        levels = _levels(array)
        self.tests += not self.arrays  # the test over all messages
        self.arrays += 1
        self.draws += int((~array.tied).sum())
        self.levels.append(levels.ravel()[:: self.every].copy())
        whose = f"{array.sender} (round {array.round})"
        self._test(levels.reshape(1, -1), [whose])
        if len(levels) > 1 and levels.shape[1] >= _LEAST_ROW:
            self._test(levels, [f"row {number} of {whose}" for number in range(len(levels))])

    def _test(self, blocks: Matrix, words: list[str]) -> None:
        """Test blocks (n, entries), each with its name."""
        logs = log10_ps_of_noise(blocks)
        self.tests += len(logs)
        self.least = min(self.least, min(zip(logs.tolist(), words, strict=True), key=_log), key=_log)

    def judged(self, tests: int, level: float) -> FieldNoise:
        """Result for the field, of so many tests of the transcript in all."""
        reason = "; ".join(self.reasons)
        if not self.arrays:
            return FieldNoise(self.name, 0, self.scale, 0.0, "not_tested", reason=reason)
        if not self.draws:
            return FieldNoise(self.name, 0, self.scale, 0.0, "not_tested", reason=NOTHING_FREE)
        pooled = float(log10_ps_of_noise(np.concatenate(self.levels)[None])[0])
        log, where = min((pooled, f"all {self.arrays} messages"), self.least, key=_log)
        corrected = min(0.0, log + math.log10(tests))
        outcome: Literal["refuted", "not_refuted"] = "refuted" if corrected <= math.log10(level) else "not_refuted"
        return FieldNoise(self.name, self.draws, self.scale, corrected, outcome, where, reason)


def _log(found: tuple[float, str]) -> float:
    return found[0]


def _levels(array: NoisedArray) -> Matrix:
    """Levels (r, c): 1, which speaks for the noise, where an entry is clipped or another's copy, or may be.

    A floor, 0 above all, may be met once only: the entry nearest to 0 of an array of one sign may be clipped.
    """
    of = one_sided_levels if array.nonnegative else two_sided_levels
    values = array.values
    levels = np.where(array.tied, 1.0, of(values, array.scales, array.half_steps))
    if not array.nonnegative and (values.min() >= 0 or values.max() <= 0):
        levels[np.abs(values) == np.abs(values).min()] = 1.0
    return levels
