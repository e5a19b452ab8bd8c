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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.noise_blocks import NoisedArray, noised_arrays
from fedassay.audits.stats.least_noise import log10_p_of_noise, one_sided_levels, two_sided_levels
from fedassay.exchange.transcript import Transcript

Array = NDArray[np.float64]

LEVEL = 1e-3
"""Probability of a false accusation, for a transcript."""
_LEAST_ROW = 8
"""Entries from which a row is a block of its own."""


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
        reason: Why it was not tested, or not whole; "" else.
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
    by_field: dict[str, list[NoisedArray]] = {}
    for array in noised_arrays(transcript):
        by_field.setdefault(array.field, []).append(array)
    blocks = {name: list(_blocks(arrays)) for name, arrays in by_field.items()}
    tests = max(1, sum(len(part) for part in blocks.values()))
    return tuple(_judged(name, by_field[name], blocks[name], tests, level) for name in sorted(by_field))


def p_words(log10_p: float) -> str:
    """A p-value by its logarithm, also where it is below the smallest float."""
    return f"{10**log10_p:.2g}" if log10_p > -300 else "1e-300"


def _blocks(arrays: Sequence[NoisedArray]) -> list[tuple[str, Array]]:
    """Names and levels of the blocks that are tested of a field."""
    tested = [(array, _levels(array)) for array in arrays if not array.reason]
    found = (
        [(f"all {len(tested)} messages", np.concatenate([part.ravel() for _, part in tested]))] if tested else []
    )
    for array, levels in tested:
        whose = f"{array.sender} (round {array.round})"
        found.append((whose, levels.ravel()))
        if len(levels) > 1 and levels.shape[1] >= _LEAST_ROW:
            found += [(f"row {number} of {whose}", row) for number, row in enumerate(levels)]
    return found


def _levels(array: NoisedArray) -> Array:
    """Levels (r, c): 1, which speaks for the noise, where an entry is clipped or another's copy, or may be.

    A floor, 0 above all, may be met once only: the entry nearest to 0 of an array of one sign may be clipped.
    """
    of = one_sided_levels if array.nonnegative else two_sided_levels
    values = array.values
    levels = np.where(array.tied, 1.0, of(values, array.scales, array.half_steps))
    if not array.nonnegative and (values.min() >= 0 or values.max() <= 0):
        levels[np.abs(values) == np.abs(values).min()] = 1.0
    return levels


def _judged(
    name: str, arrays: Sequence[NoisedArray], blocks: Sequence[tuple[str, Array]], tests: int, level: float
) -> FieldNoise:
    scale = min(float(array.scales.min()) for array in arrays)
    reasons = dict.fromkeys(array.reason for array in arrays if array.reason)
    if not blocks:
        return FieldNoise(name, 0, scale, 0.0, "not_tested", reason="; ".join(reasons))
    logs = [log10_p_of_noise(levels) for _, levels in blocks]
    least = int(np.argmin(logs))
    corrected = min(0.0, logs[least] + math.log10(tests))
    draws = sum(int((~array.tied).sum()) for array in arrays if not array.reason)
    outcome: Literal["refuted", "not_refuted", "not_tested"] = "not_refuted"
    if corrected <= math.log10(level):
        outcome = "refuted"
    elif not draws:
        return FieldNoise(name, 0, scale, 0.0, "not_tested", reason="every entry is clipped or a copy of another")
    return FieldNoise(name, draws, scale, corrected, outcome, blocks[least][0], "; ".join(reasons))
