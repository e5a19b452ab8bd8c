"""Noise measured from the same messages captured several times, of the same records.

What lies beneath the noise is the same every time, so that deviations from the mean over the captures are noise
alone: over T captures and n entries, their squares over the declared variance are chi-squared with n (T - 1)
degrees of freedom, exactly. Two captures are the difference with its variance 2 sigma^2. Too small a sum: there
is less noise than declared, or the same noise again. Too large a sum: the records were not the same, or there
is more noise; that refutes nothing.

Blocks fixed beforehand: every field over all messages, every array, its rows, and windows of 100 entries; and of
every array how many entries are the same in all captures, where noise repeats none but by rounding. Noise that
rows, or senders, have in common is of the declared size in each of them and falls out of their difference: sums
and differences of every two rows, and of the same rows of every two senders, have at least twice the variance.
The level, `declared_noise.LEVEL`, is shared among all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import bdtrc, chdtr, chdtrc, chdtri

from fedassay.audits.claim.declared_noise import LEVEL
from fedassay.audits.claim.noise_blocks import NOTHING_FREE, NoisedArray, noised_arrays
from fedassay.exchange.transcript import Transcript
from fedassay.support.errors import DataError
from fedassay.support.types import Matrix

_WINDOW = 100
_LEAST_ROW = 8
_PAIRS = 2000
"""Pairs of rows of one array, and of senders of one field, that are tested; of more, those that are adjacent."""


@dataclass(frozen=True)
class MeasuredNoise:
    """Measured noise of one field, against the declared one.

    Attributes:
        field: Its name.
        draws: Degrees of freedom behind the measurement.
        ratio: Measured standard deviation over the declared one; None where it was not measured.
        low: Lower end of its exact 95 % interval.
        high: Upper end.
        limit: A ratio that would have been found with probability .95, had the whole field had it.
        outcome: `too_little`, `as_declared`, `too_much` or `not_measured`.
        where: The block that decided, in words.
        reason: Reason why it was not measured; "" else.
    """

    field: str
    draws: int
    ratio: float | None
    low: float | None
    high: float | None
    limit: float | None
    outcome: Literal["too_little", "as_declared", "too_much", "not_measured"]
    where: str = ""
    reason: str = ""

    @property
    def words(self) -> str:
        """One clause."""
        if self.ratio is None:
            return f"the noise of {self.field} was not measured ({self.reason})"
        measured = (
            f"{self.ratio:.3g} of the declared scale [{self.low:.3g}, {self.high:.3g}] over {self.draws:,} draws"
        )
        if self.outcome == "as_declared":
            return (
                f"the noise of {self.field} is {measured}; less than {self.limit:.2g} of it would have been found"
            )
        side = "less" if self.outcome == "too_little" else "more"
        return f"{self.field} varies {side} between captures than it declares, in {self.where} ({measured} in all)"


@dataclass(frozen=True)
class _Block:
    where: str
    squares: float
    freedom: int

    @property
    def too_small(self) -> float:
        """P-value of so small a sum."""
        return float(chdtr(self.freedom, self.squares))


class _Still(NamedTuple):
    """Entries of an array that are the same in all captures, and the p-value of so many."""

    where: str
    too_small: float


def measured_noise(captures: Sequence[Transcript], *, level: float = LEVEL) -> tuple[MeasuredNoise, ...]:
    """Measure the noise of every field that declares Gaussian noise, in the order of their names.

    Args:
        captures: At least two transcripts of the same senders and records, with the same fields and scales.
        level: Probability of any outcome but `as_declared` for captures with noise as declared.

    Raises:
        DataError: Fewer than two captures, or captures with noised arrays that do not match.
    """
    if len(captures) < 2:
        raise DataError("captures of the same records: at least two transcripts are needed")
    matched = _matched([list(noised_arrays(capture)) for capture in captures])
    by_field: dict[str, list[tuple[NoisedArray, ...]]] = {}
    for arrays in matched:
        by_field.setdefault(arrays[0].field, []).append(arrays)
    blocks = {name: list(_blocks(sets)) for name, sets in by_field.items()}
    still = {name: [_still(arrays) for arrays in sets if not _why_not(arrays)] for name, sets in by_field.items()}
    shared = {name: list(_contrasts(sets)) for name, sets in by_field.items()}
    tests = sum(2 * len(blocks[name]) + len(still[name]) + len(shared[name]) for name in by_field)
    each = level / max(1, tests)
    return tuple(
        _judged(name, by_field[name], blocks[name], [*still[name], *shared[name]], each)
        for name in sorted(by_field)
    )


def _matched(captures: Sequence[list[NoisedArray]]) -> list[tuple[NoisedArray, ...]]:
    """The arrays of the first capture, each with its likes in the others."""
    keyed = [{(a.field, a.sender, a.round): a for a in arrays} for arrays in captures]
    for number, other in enumerate(keyed[1:], start=2):
        if other.keys() != keyed[0].keys():
            odd = sorted(other.keys() ^ keyed[0].keys())[0]
            raise DataError(
                f"capture {number}: field {odd[0]!r} of {odd[1]} in round {odd[2]} is in one capture and not in "
                "the other; captures must be of the same senders, rounds and fields"
            )
        for key, array in other.items():
            like = keyed[0][key]
            if array.nonnegative == like.nonnegative and not _alike(array, like):
                raise DataError(
                    f"capture {number}: field {key[0]!r} of {key[1]} has another shape or declares another scale "
                    "than in the first; captures must be of the same records and releases"
                )
    return [tuple(part[key] for part in keyed) for key in keyed[0]]


def _alike(one: NoisedArray, other: NoisedArray) -> bool:
    return one.values.shape == other.values.shape and np.array_equal(one.scales, other.scales)


def _why_not(arrays: tuple[NoisedArray, ...]) -> str:
    reason = next((array.reason for array in arrays if array.reason), "")
    if not reason and any(array.nonnegative for array in arrays):
        reason = "a second moment without negative eigenvalues may have been projected, which shrinks noise"
    if not reason and any((array.half_steps > array.scales / 2).any() for array in arrays):
        reason = "entries are rounded to steps as wide as the noise"
    return reason


def _squares(arrays: tuple[NoisedArray, ...]) -> Matrix:
    """Sum over captures of squared deviations over the declared variance, shape (r, c).

    NaN where an entry is tied in any capture: at a bound it varies less than its noise.
    """
    return np.asarray((_deviations(arrays) ** 2).sum(axis=0))


def _blocks(sets: Sequence[tuple[NoisedArray, ...]]) -> Iterator[_Block]:
    whole: list[Matrix] = []
    freedom = 1
    for arrays in sets:
        if _why_not(arrays):
            continue
        freedom, squares = len(arrays) - 1, _squares(arrays)
        whose = f"{arrays[0].sender} (round {arrays[0].round})"
        whole.append(squares.ravel())
        yield _block(whose, squares, freedom)
        if len(squares) > 1 and squares.shape[1] >= _LEAST_ROW:
            for number, row in enumerate(squares):
                yield _block(f"row {number} of {whose}", row, freedom)
        flat = squares.ravel()
        if flat.size > _WINDOW:
            for start in range(0, flat.size - _WINDOW + 1, _WINDOW):
                part = flat[start : start + _WINDOW]
                yield _block(f"entries {start} to {start + _WINDOW - 1} of {whose}", part, freedom)
    if whole:
        yield _block("all messages", np.concatenate(whole), freedom)


def _contrasts(sets: Sequence[tuple[NoisedArray, ...]]) -> Iterator[_Block]:
    """Sums and differences of rows, and of what several senders send, over their declared variance."""
    sets = [arrays for arrays in sets if not _why_not(arrays)]
    freedom = len(sets[0]) - 1 if sets else 0
    found = [(f"{arrays[0].sender} (round {arrays[0].round})", _deviations(arrays)) for arrays in sets]
    for whose, own in found:
        for one, two in _pairs(own.shape[1]):
            yield from _of_two(f"rows {one} and {two} of {whose}", own[:, one], own[:, two], freedom)
    for one, two in _pairs(len(found)):
        if found[one][1].shape == found[two][1].shape:
            yield from _of_two(f"{found[one][0]} and {found[two][0]}", found[one][1], found[two][1], freedom)


def _pairs(count: int) -> list[tuple[int, int]]:
    if count * (count - 1) // 2 > _PAIRS:
        return [(number, number + 1) for number in range(count - 1)]
    return list(combinations(range(count), 2))


def _of_two(where: str, one: Matrix, two: Matrix, freedom: int) -> Iterator[_Block]:
    for words, sign in (("difference", -1), ("sum", 1)):
        yield _block(f"the {words} of {where}", ((one + sign * two) ** 2 / 2).sum(axis=0), freedom)


def _deviations(arrays: tuple[NoisedArray, ...]) -> Matrix:
    """Deviations from the mean over captures, over the declared deviation, (captures, r, c); NaN where tied."""
    values = np.stack([array.values for array in arrays])
    rounding = np.max([array.half_steps for array in arrays], axis=0) ** 2 / 3
    found = (values - values.mean(axis=0)) / np.sqrt(arrays[0].scales ** 2 + rounding)
    return np.where(np.any([array.tied for array in arrays], axis=0), np.nan, found)


def _block(where: str, squares: Matrix, freedom: int) -> _Block:
    known = squares[~np.isnan(squares)]
    return _Block(where, float(known.sum()), freedom * len(known))


def _still(arrays: tuple[NoisedArray, ...]) -> _Still:
    """Number of entries that no capture changes, without those at a bound of the array, and its p-value.

    Rounded to steps of h, normals of deviation s meet one step with a probability of at most h / (s sqrt(2 pi)).
    """
    values = np.stack([array.values for array in arrays])
    tied = np.any([array.tied for array in arrays], axis=0)
    inside = ~tied & (values[0] > values.min()) & (values[0] < values.max())
    same = int((inside & (values == values[0]).all(axis=0)).sum())
    steps = 2 * np.max([array.half_steps for array in arrays], axis=0)
    chance = float((steps / (arrays[0].scales * math.sqrt(2 * math.pi))).max()) ** (len(arrays) - 1)
    where = f"{same:,} of {values[0].size:,} entries of {arrays[0].sender} (round {arrays[0].round})"
    p = float(bdtrc(same - 1, int(inside.sum()), min(1.0, chance))) if same else 1.0
    return _Still(f"{where}, which are always the same", p)


def _judged(
    name: str,
    sets: Sequence[tuple[NoisedArray, ...]],
    blocks: Sequence[_Block],
    still: Sequence[_Block | _Still],
    each: float,
) -> MeasuredNoise:
    reasons = "; ".join(dict.fromkeys(why for arrays in sets if (why := _why_not(arrays))))
    tested = [block for block in blocks if block.freedom]
    if reasons or not tested:
        reasons = reasons or NOTHING_FREE
        return MeasuredNoise(name, 0, None, None, None, None, "not_measured", reason=reasons)
    whole = tested[-1]
    narrow: list[_Block | _Still] = [*tested, *still]
    few = min(narrow, key=lambda block: block.too_small)
    many = min(tested, key=lambda block: float(chdtrc(block.freedom, block.squares)))
    outcome: Literal["too_little", "as_declared", "too_much", "not_measured"] = "as_declared"
    where = ""
    if few.too_small <= each:
        outcome, where = "too_little", few.where
    elif chdtrc(many.freedom, many.squares) <= each:
        outcome, where = "too_much", many.where
    if outcome == "too_little" and _clipped(sets):
        reason = f"{_clipped(sets)} entries are clipped or copies, and clipping shrinks noise"
        return MeasuredNoise(name, 0, None, None, None, None, "not_measured", reason=reason)
    low, high = (math.sqrt(whole.squares / float(chdtri(whole.freedom, tail))) for tail in (0.025, 0.975))
    limit = math.sqrt(float(chdtri(whole.freedom, 1 - each)) / float(chdtri(whole.freedom, 0.05)))
    ratio = math.sqrt(whole.squares / whole.freedom)
    return MeasuredNoise(name, whole.freedom, ratio, low, high, limit, outcome, where)


def _clipped(sets: Sequence[tuple[NoisedArray, ...]]) -> int:
    return sum(int(array.tied.sum()) for arrays in sets for array in arrays)
