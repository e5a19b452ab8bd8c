"""Whether a permutation test rejects at a level, for thousands of runs: what `paired` and `permutation` decide.

A limit of detection asks a test of some thousand runs that are put together, and reads nothing but whether it
rejects. So the arrangements are drawn once, and a run that cannot reject any more is left (Besag and Clifford
1991): p is (1 + higher) / (1 + draws), and once more arrangements are higher than a level allows, the rest cannot
take that back. The best of a side are chosen anew in every arrangement, from the top of one sorted list of both.
The decision is the one that `paired_test` or `gap` takes on the same draws; tests hold them against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.permutation import enough
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools, Ints

Floats = NDArray[np.float64]

_ENUMERATED = 14
"""Pairs up to which all exchanges are gone through, as in `paired`."""

_TIE = 1e-12
_BLOCKS = (64, 192, 768, 2048)
"""Arrangements looked at before each look whether to stop; the last size goes on."""


@dataclass(frozen=True)
class PairedDecision:
    """Decisions of `paired_test` for runs of one size.

    Attributes:
        n: Pairs; where both sides choose by one rank, those that are chosen.
        top: How many of each side count.
        tests: Tests in the run; the level is 0.05 / tests.
        seed: Names the exchanges.
        draws: Least number of exchanges.
    """

    n: int
    top: int
    tests: int
    seed: int
    draws: int = 2000

    @cached_property
    def _flips(self) -> Bools:
        """Whether each pair is exchanged, shape (n, draws)."""
        if self.n <= _ENUMERATED:
            return np.asarray((np.arange(2**self.n) >> np.arange(self.n)[:, None]) & 1, np.bool_)
        rng = Seeds(self.seed).numpy("arrangements")
        return np.ascontiguousarray((rng.random((enough(self.tests, self.draws), self.n)) < 0.5).T)

    def rejects(self, first: Floats, second: Floats) -> bool:
        """Whether the best of the first side score higher than those of the second, each chosen by its own scores.

        Args:
            first: Scores, shape (n,).
            second: Scores of the partners, shape (n,).
        """
        size = self._flips.shape[1]
        everything = self.n <= _ENUMERATED
        # The observed arrangement is among all of them, and is one more where some are drawn.
        most = int(np.floor(0.05 / self.tests * (size + (not everything)) + 1e-9)) - (not everything)
        bar = float(self._gains(first, second, np.zeros((self.n, 1), np.bool_))[0])
        bar -= _TIE * float(max(np.abs(first).max(), np.abs(second).max()))
        return _at_most(most, bar, size, lambda block: self._gains(first, second, self._flips[:, block]))

    def _gains(self, first: Floats, second: Floats, flips: Bools) -> Floats:
        if self.top == self.n:
            gains = first - second
            return np.asarray((gains.sum() - 2 * (gains @ flips)) / self.n)
        is_second = np.repeat([False, True], self.n)

        def inside(entries: Ints) -> Bools:
            return np.asarray(flips[entries % self.n] == is_second[entries, None])

        return _best_gap(np.concatenate([first, second]), inside, (self.top, self.top))


@dataclass(frozen=True)
class GapDecision:
    """Decisions of `gap` for two groups of fixed sizes.

    Attributes:
        n: Size of the first group.
        m: Size of the second.
        share: Share of each group that counts, its best ones.
        tests: Tests in the run.
        seed: Names the permutations.
        draws: Least number of permutations.
    """

    n: int
    m: int
    share: float
    tests: int
    seed: int
    draws: int = 2000
    _counts: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        counts = (max(1, round(self.share * self.n)), max(1, round(self.share * self.m)))
        object.__setattr__(self, "_counts", counts)

    @cached_property
    def _members(self) -> Bools:
        """Whether each entry is in the first group, shape (n + m, draws)."""
        rng, both = Seeds(self.seed).numpy("arrangements"), np.arange(self.n + self.m, dtype=np.int64)
        size = enough(self.tests, self.draws)
        members = np.zeros((size, len(both)), np.bool_)
        for start in range(0, size, 256):
            rows = members[start : start + 256]
            order = rng.permuted(np.broadcast_to(both, (len(rows), len(both))), axis=1)
            np.put_along_axis(rows, order[:, : self.n], values=True, axis=1)
        return np.ascontiguousarray(members.T)

    def rejects(self, first: Floats, second: Floats) -> bool:
        """Whether the best share of the first group (n,) scores higher than that of the second (m,)."""
        both = np.concatenate([first, second])
        size = self._members.shape[1]
        most = int(np.floor(0.05 / self.tests * (1 + size) + 1e-9)) - 1
        observed = (np.arange(len(both)) < self.n)[:, None]
        bar = float(self._differences(both, observed)[0]) - _TIE * float(np.abs(both).max())
        return _at_most(most, bar, size, lambda block: self._differences(both, self._members[:, block]))

    def _differences(self, both: Floats, members: Bools) -> Floats:
        if self._counts == (self.n, self.m):
            total = both @ members
            return np.asarray(total / self.n - (both.sum() - total) / self.m)
        return _best_gap(both, lambda entries: members[entries], self._counts)


def _at_most(most: int, bar: float, total: int, statistics: Callable[[slice], Floats]) -> bool:
    """Whether at most so many of all statistics reach the bar; the first ones may tell that more do."""
    higher, start, steps = 0, 0, iter(_BLOCKS)
    while start < total:
        stop = min(total, start + next(steps, _BLOCKS[-1]))
        higher += int((statistics(slice(start, stop)) >= bar).sum())
        if higher > most:
            return False
        start = stop
    return True


def _best_gap(scores: Floats, inside: Callable[[Ints], Bools], counts: tuple[int, int]) -> Floats:
    """Mean of the best of one side minus that of the other, by arrangement, shape (draws,).

    Args:
        scores: Of all entries, shape (k,).
        inside: Of some entries, whether they are on the first side, shape (entries, draws).
        counts: How many of each side count, its best ones.
    """
    order = np.argsort(-scores, kind="stable")
    depth = 2 * max(counts) + 8 * int(np.sqrt(max(counts))) + 8
    while True:
        depth = min(len(order), depth)
        here = inside(order[:depth])
        ours = _running_count(here)
        theirs = np.arange(1, depth + 1, dtype=ours.dtype)[:, None] - ours
        # The best of either side must lie so high up, in every arrangement.
        if depth == len(order) or (ours[-1].min() >= counts[0] and theirs[-1].min() >= counts[1]):
            break
        depth *= 2
    best = scores[order[:depth]]
    first, second = best @ (here & (ours <= counts[0])), best @ (~here & (theirs <= counts[1]))
    return np.asarray(first / counts[0] - second / counts[1])


def _running_count(here: Bools) -> NDArray[np.unsignedinteger[Any]]:
    """How many entries of the first side are as high up as each, shape (entries, draws).

    Row by row on the narrowest integers: several times faster than `cumsum`, and than a product with a triangle,
    whose threads wait for each other on a busy machine.
    """
    count = here.astype(np.min_scalar_type(len(here)))
    for above, row in pairwise(count):
        np.add(row, above, out=row)
    return count
