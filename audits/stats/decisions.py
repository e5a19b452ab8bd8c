"""Whether a permutation test rejects at a level, for thousands of runs: what `paired` and `permutation` decide.

A limit of detection asks a test of some thousand runs that are put together, and reads nothing but whether it
rejects. So the arrangements are drawn once, and a run that cannot reject any more is left (Besag and Clifford
1991): p is (1 + higher) / (1 + draws), and once more arrangements are higher than a level allows, the rest cannot
take that back. A run that rejects for certain is left as well: an upper bound of how likely an arrangement is to
reach the bar says so. The best of a side are chosen anew in every arrangement, from the top of one sorted list of
both. The decision is the one that `paired_test` or `gap` takes on the same draws (but for a chance of `OTHERWISE`
where the bound decides); tests hold them against each other. Those draw more where p lies near the level, which
finds a little more: a limit without it is no smaller than theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.best_bound import (
    depth_of_best,
    log_chance_of_groups,
    log_chance_of_pairs,
    sum_of_groups,
    sum_of_pairs,
)
from fedassay.audits.stats.permutation import OTHERWISE, counted, enough, most_higher
from fedassay.audits.stats.resampling import level_of
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools, Floats, Ints, Matrix

_ENUMERATED = 14
"""Pairs up to which all exchanges are gone through, as in `paired`."""

_LARGEST = 64 << 20
"""Bytes of the arrangements of a decision that are kept in float32 as well."""

_SEEDS = Seeds(0)
"""Arrangements are the same in every run; the runs that are decided on are drawn by its seeds."""
_KEPT = 2
"""Sets of arrangements that are kept, since the limits of a run ask of few sizes."""

_TIE = 1e-12
_FIRST, _SIZE = 512, 8192
"""Arrangements of the first block, and of all others: after each comes a look whether to stop."""


class _Block(NamedTuple):
    """Some arrangements.

    Attributes:
        chosen: Whether an entry is in the first group, or a pair is exchanged, shape (n, draws).
        numbers: The same in float32, which products take as it is, where all of them are small; else the same.
    """

    chosen: Bools
    numbers: Bools | NDArray[np.float32]


@dataclass(frozen=True)
class PairedDecision:
    """Decisions of `paired_test` for runs of one size.

    Attributes:
        n: Pairs; where both sides choose by one rank, those that are chosen.
        top: Number of each side that count.
        tests: Tests in the run; the level is 0.05 / tests.
        draws: Least number of exchanges.
    """

    n: int
    top: int
    tests: int
    draws: int = 2000

    @property
    def _blocks(self) -> tuple[_Block, ...]:
        return _exchanges(self.n, enough(self.tests, self.draws))

    def rejects(self, first: Matrix, second: Matrix) -> bool:
        """Whether the best of the first side score higher than those of the second, each chosen by its own scores.

        Args:
            first: Scores, shape (n,).
            second: Scores of the partners, shape (n,).
        """
        if self.n <= _ENUMERATED:
            # The observed arrangement is among all of them.
            most = int(np.floor(level_of(self.tests) * 2**self.n + 1e-9))
        else:
            most = most_higher(self.tests, enough(self.tests, self.draws))
        bar = _best(first, self.top) - _best(second, self.top)
        bar -= _TIE * float(max(np.abs(first).max(), np.abs(second).max()))
        of_one = partial(log_chance_of_pairs, first, second, self.top, bar)
        if self.top == self.n:
            weights, least = sum_of_pairs(first, second, bar)
            return _at_most(most, self._blocks, lambda block: _sums_reach(weights, block.numbers, least), of_one)
        return _at_most(most, self._blocks, lambda block: self._reached(first, second, block, bar), of_one)

    def _reached(self, first: Matrix, second: Matrix, block: _Block, bar: float) -> int:
        is_second = np.repeat([False, True], self.n)

        def inside(entries: Ints, draws: Ints) -> Bools:
            return np.asarray(block.chosen[:, draws][entries % self.n] == is_second[entries, None])

        def summed(rows: Floats, entries: Ints) -> Floats:
            # Of a pair the second one is on the first side where it is exchanged, and the first one where not.
            weights = np.zeros((len(rows), 2 * self.n), np.float32)
            weights[:, entries] = rows
            kept, exchanged = weights[:, : self.n], weights[:, self.n :]
            sums = _weighted(exchanged - kept, block.numbers)
            return np.asarray(sums + kept.sum(axis=1)[:, None])

        both = np.concatenate([first, second])
        return _gaps_reach(both, inside, summed, (self.top, self.top), share=0.5, bar=bar)


@dataclass(frozen=True)
class GapDecision:
    """Decisions of `gap` for two groups of fixed sizes.

    Attributes:
        n: Size of the first group.
        m: Size of the second.
        share: Share of each group that counts, its best ones.
        tests: Tests in the run.
        draws: Least number of permutations.
    """

    n: int
    m: int
    share: float
    tests: int
    draws: int = 2000
    _counts: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        counts = counted(self.share, self.n), counted(self.share, self.m)
        object.__setattr__(self, "_counts", counts)

    @property
    def _blocks(self) -> tuple[_Block, ...]:
        return _groups(self.n, self.m, enough(self.tests, self.draws))

    def rejects(self, first: Matrix, second: Matrix) -> bool:
        """Whether the best share of the first group (n,) scores higher than that of the second (m,)."""
        both = np.concatenate([first, second])
        most = most_higher(self.tests, enough(self.tests, self.draws))
        bar = _best(first, self._counts[0]) - _best(second, self._counts[1]) - _TIE * float(np.abs(both).max())
        of_one = partial(log_chance_of_groups, both, self._counts, self.n, bar)
        if self._counts == (self.n, self.m):
            weights, least = sum_of_groups(both, self.n, bar)
            return _at_most(most, self._blocks, lambda block: _sums_reach(weights, block.numbers, least), of_one)
        return _at_most(most, self._blocks, lambda block: self._reached(both, block, bar), of_one)

    def _reached(self, both: Matrix, block: _Block, bar: float) -> int:
        def inside(entries: Ints, draws: Ints) -> Bools:
            return np.asarray(block.chosen[:, draws][entries])

        def summed(rows: Floats, entries: Ints) -> Floats:
            weights = np.zeros((len(rows), len(both)), np.float32)
            weights[:, entries] = rows
            return _weighted(weights, block.numbers)

        return _gaps_reach(both, inside, summed, self._counts, share=self.n / (self.n + self.m), bar=bar)


@lru_cache(maxsize=_KEPT)
def _exchanges(n: int, draws: int) -> tuple[_Block, ...]:
    """Whether each of n pairs is exchanged, in so many exchanges, or in all."""
    if n <= _ENUMERATED:
        return _cut(np.asarray((np.arange(2**n)[:, None] >> np.arange(n)) & 1, np.bool_))
    return _cut(_SEEDS.numpy("arrangements").random((draws, n)) < 0.5)


@lru_cache(maxsize=_KEPT)
def _groups(n: int, m: int, draws: int) -> tuple[_Block, ...]:
    """Whether each of n + m entries is in the first group, in so many permutations."""
    rng, both = _SEEDS.numpy("arrangements"), np.arange(n + m, dtype=np.int64)
    members = np.zeros((draws, len(both)), np.bool_)
    for start in range(0, draws, 256):
        rows = members[start : start + 256]
        order = rng.permuted(np.broadcast_to(both, (len(rows), len(both))), axis=1)
        np.put_along_axis(rows, order[:, :n], values=True, axis=1)
    return _cut(members)


def _cut(chosen: Bools) -> tuple[_Block, ...]:
    """Blocks of arrangements, shape (draws, n), each turned round and by itself in memory."""
    starts = [0, *range(_FIRST, len(chosen), _SIZE)]
    parts = [np.ascontiguousarray(chosen[a:b].T) for a, b in pairwise([*starts, len(chosen)])]
    small = 4 * chosen.size <= _LARGEST
    return tuple(_Block(part, part.astype(np.float32) if small else part) for part in parts)


def _best(scores: Matrix, count: int) -> float:
    """Mean of the best scores."""
    return float(np.sort(scores)[-count:].mean())


def _at_most(
    most: int,
    blocks: Sequence[_Block],
    reached: Callable[[_Block], int],
    log_chance_of_one: Callable[[], float],
) -> bool:
    """Whether at most so many of all statistics reach the bar.

    The chance of one may tell that no more will, and the first ones that more do.
    """
    total = sum(block.chosen.shape[1] for block in blocks)
    if len(blocks) > 1:
        # Of N draws, more than k reach it with a chance of at most (N p)^(k + 1) / (k + 1)!.
        more = (most + 1) * (math.log(total) + log_chance_of_one()) - math.lgamma(most + 2)
        if more <= math.log(OTHERWISE):
            return True
    higher = 0
    for block in blocks:
        higher += reached(block)
        if higher > most:
            return False
    return True


def _sums_reach(weights: Matrix, chosen: Bools | NDArray[np.float32], bar: float) -> int:
    """Count sums of chosen weights that reach the bar, over arrangements in the columns of `chosen` (n, draws)."""
    sums = (weights.astype(np.float32) @ chosen.astype(np.float32, copy=False)).astype(np.float64)
    near = np.flatnonzero(np.abs(sums - bar) <= _rounding(weights, float(np.abs(weights).sum())))
    sums[near] = weights @ chosen[:, near]
    return int((sums >= bar).sum())


def _rounding(terms: Matrix, total: float) -> float:
    """Twice what a product in float32 of so many terms may be off by (Higham 2002, 3.1); total: of their sizes."""
    return 4 * (len(terms) + 1) * float(np.finfo(np.float32).eps) / 2 * total


def _gaps_reach(
    scores: Matrix,
    inside: Callable[[Ints, Ints], Bools],
    summed: Callable[[Floats, Ints], Floats],
    counts: tuple[int, int],
    *,
    share: float,
    bar: float,
) -> int:
    """In how many arrangements the mean of the best of one side, less that of the other, reaches the bar.

    Args:
        scores: Of all entries, shape (k,).
        inside: Of some entries and arrangements, whether they are on the first side, shape (entries, draws).
        summed: From rows of weights of some entries, shape (rows, entries), to their sums over those on the first
            side in all arrangements, shape (rows, draws).
        counts: Number of each side's best ones that count.
        share: Of all entries that are on the first side.
        bar: As it says.
    """
    order = np.argsort(-scores, kind="stable")
    best = scores[order]
    depth = depth_of_best(len(order), counts, share, spreads=4)
    left = np.flatnonzero(_may_reach(best[:depth], lambda rows: summed(rows, order[:depth]), counts, bar))
    reached = 0
    while len(left):
        here = inside(order[:depth], left)
        settled, reach = _best_reach(best[:depth], here, counts, bar)
        reached, left = reached + int(reach[settled].sum()), left[~settled]
        depth = min(len(order), 2 * depth)
    return reached


def _weighted(rows: Floats, chosen: Bools | NDArray[np.float32]) -> Floats:
    """Sums of the weights of what is chosen, shape (rows, draws); `chosen` has shape (n, draws)."""
    used = np.flatnonzero(rows.any(axis=0))
    return np.asarray(rows[:, used] @ chosen[used].astype(np.float32, copy=False))


def _may_reach(best: Matrix, summed: Callable[[Floats], Floats], counts: tuple[int, int], bar: float) -> Bools:
    """Whether an upper bound of the gap, linear but for two counts, reaches the bar, shape (draws,).

    With t the score down to which as many entries lie as count on both sides together, and F a side's sum of what
    its entries are above t: the best k of a side sum to at most k t + F, and to that less what its entries beyond
    the k-th are above t, or less what it lacks of k entries is below t. Both are bounded by how many these are.
    """
    top = min(sum(counts), len(best))
    t = best[top - 1]
    above = np.maximum(best - t, 0)
    total = float(above.sum())
    rows = np.stack([above, np.arange(len(best)) < top, np.ones(len(best))]).astype(np.float32)
    first, ours, all_ours = summed(rows)
    # More of the second side than count, or fewer, by what each of them is worth at most.
    off = ours - np.float32(top - counts[1])
    worth = np.float32(t - best[-1]), np.float32(best[min(counts[1], len(best) - 1)] - t)
    bound = first * np.float32(1 / counts[0] + 1 / counts[1])
    bound += np.maximum(off * worth[0], off * -worth[1]) / np.float32(counts[1])
    rounding = 2 * _rounding(best, (total + len(best) * float(max(worth))) * (1 / counts[0] + 1 / counts[1]))
    return np.asarray((bound >= bar + total / counts[1] - rounding) | (all_ours > len(best) - counts[1]))


def _best_reach(best: Matrix, here: Bools, counts: tuple[int, int], bar: float) -> tuple[Bools, Bools]:
    """Whether the best entries hold as many of either side as count, and whether the gap reaches the bar, if so.

    Sums are in float32, and once more in float64 where they come so close to the bar that rounding could matter.
    """
    ours = _running_count(here)
    theirs = np.arange(1, len(best) + 1, dtype=ours.dtype)[:, None] - ours
    settled = (ours[-1] >= counts[0]) & (theirs[-1] >= counts[1])
    sides = here & (ours <= counts[0]), ~here & (theirs <= counts[1])
    short = best.astype(np.float32)
    first, second = ((short @ side.astype(np.float32)).astype(np.float64) for side in sides)
    gaps = first / counts[0] - second / counts[1]
    near = np.flatnonzero(np.abs(gaps - bar) <= _rounding(best, 2 * float(np.abs(best).max())))
    first, second = (best @ side[:, near] for side in sides)
    gaps[near] = first / counts[0] - second / counts[1]
    return settled, gaps >= bar


def _running_count(here: Bools) -> NDArray[np.unsignedinteger[Any]]:
    """Number of entries of the first side as high up as each, shape (entries, draws).

    Row by row on the narrowest integers: several times faster than `cumsum`, and than a product with a triangle,
    as its threads wait for each other on a busy machine.
    """
    count = here.astype(np.min_scalar_type(len(here)))
    for above, row in pairwise(count):
        np.add(row, above, out=row)
    return count
