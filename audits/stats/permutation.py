"""Permutation test of whether one group scores higher than an exchangeable other.

If a release carries nothing about the private records, private and fresh records of the same
distribution are exchangeable given that release, whatever it looks like; so the test is exact
(Fisher 1935; Good 2005, chapter 3), with no assumption about scores and none about what else the
release favours. Of pairs, see `audits.stats.paired`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from fedassay.audits.stats.best_bound import CERTAIN, log_chance_of_groups
from fedassay.audits.stats.resampling import level_of
from fedassay.support.types import Matrix

_BLOCK = 4_000_000
_TIE = 1e-12  # relative rounding between two sums of the same scores
OTHERWISE = 1e-9
"""Chance at most that draws would say otherwise, where a bound spares them."""
HIGHER = 20
"""Arrangements as high as what was observed, among the first ones, that settle a test: p is above any level."""
_NEAR = 10
"""Times as many are drawn where p lies near the level of the run: draws decide it otherwise from seed to seed."""


@dataclass(frozen=True)
class PermutationTest:
    """A one-sided permutation test of "the first is not higher".

    Attributes:
        value: The statistic, first minus second.
        p: In (0, 1]; at most a level with a probability of at most that level, where the hypothesis holds.
        smallest: The smallest p that could have come out, of so few scores or so few draws.
        n: Sizes of the two groups; of pairs, their number twice.
        exact: Whether all arrangements were gone through.
    """

    value: float
    p: float
    smallest: float
    n: tuple[int, int]
    exact: bool

    @staticmethod
    def of_all(value: float, arrangements: Matrix, n: tuple[int, int], scale: float) -> PermutationTest:
        """From the statistic of every arrangement, the observed one among them; `scale` as in `of_some`."""
        p = float(np.mean(arrangements >= value - _TIE * scale))
        return PermutationTest(value, p, 1 / len(arrangements), n, exact=True)

    @staticmethod
    def of_some(
        value: float,
        draw: Callable[[int], Matrix],
        size: Draws,
        smallest: float,
        n: tuple[int, int],
        scale: float,
        *,
        log_chance_of_one: Callable[[float], float] | None = None,
    ) -> PermutationTest:
        """From drawn arrangements; the observed one counts as another (Phipson and Smyth, 2010).

        `Draws` says how many are drawn, and p. Where none of the first ones is as high, and an upper bound of the
        chance of one says that none of the others will be, these are taken as drawn.

        Args:
            value: The observed statistic.
            draw: Gives the statistics of so many arrangements drawn independently.
            size: Number of draws.
            smallest: Share of the observed arrangement among all.
            n: Sizes.
            scale: Largest magnitude among the scores, for what rounding may do to their sums.
            log_chance_of_one: Upper bound of the log of the chance that an arrangement reaches a value; None: none
                is known.
        """
        bar = value - _TIE * scale
        higher, drawn = 0, 0
        for count in size.blocks(sum(n)):
            higher += int((draw(count) >= bar).sum())
            drawn += count
            bound = log_chance_of_one if drawn == size.first and not higher else None
            if bound is not None and size.spared(bound(bar)):
                drawn = size.all
            if size.settle(higher, drawn):
                break
        least = max(smallest, 1 / (1 + size.all))
        return PermutationTest(value, size.p(higher, drawn), least, n, exact=False)


@dataclass(frozen=True)
class Draws:
    """Numbers of arrangements that a test draws.

    Where twenty are as high as what was observed, no more are drawn (Besag and Clifford 1991): p is above .01 of
    2,000 first ones, and above six levels of a run's of all. Where none of all is as high, no more are drawn
    either. In between p lies near the level, and chance would decide it: ten times as many are drawn. Where a
    level leaves room for twenty, twenty decide it.

    Attributes:
        first: Before the first look.
        all: Their number where these settle nothing.
        near: Their number where not even those do; a multiple of `all`, or `all` itself.
    """

    first: int
    all: int
    near: int

    @staticmethod
    def of_run(tests: int, first: int) -> Draws:
        """Those of a test in a run of so many."""
        size = enough(tests, first)
        settled = level_of(tests) * (1 + size) >= HIGHER
        return Draws(first, size, size if settled else _NEAR * size)

    def settle(self, higher: int, drawn: int) -> bool:
        """Whether no more are drawn after so many, of which so many are as high as what was observed."""
        if drawn < self.all:
            return drawn >= self.first and higher >= HIGHER
        return drawn >= self.near or (drawn == self.all and not 0 < higher < HIGHER)

    def p(self, higher: int, drawn: int) -> float:
        """p-value of a test that ended after so many arrangements.

        It is the chance, under the hypothesis, of what came out or of something that says more against it: of N
        of all that none is as high, of M near ones that at most k are. With ranks that are all as likely,

            p = 1 / (N + 1) + sum over j = 0 .. k of (1 - C(M - N, j) / C(M, j)) / (M + 1),

        since j of M that are as high have no part in the first N with a chance of C(M - N, j) / C(M, j).
        """
        if drawn <= self.all:
            return (1 + higher) / (1 + drawn)
        none_of_all, rest = 1.0, 0.0
        for number in range(higher + 1):
            rest += 1 - none_of_all
            none_of_all *= max(0, drawn - self.all - number) / (drawn - number) if number < drawn else 0.0
        return 1 / (1 + self.all) + rest / (1 + drawn)

    def spared(self, log_chance_of_one: float) -> bool:
        """Whether none of these is as high as what one of them is with a chance of at most that."""
        return math.log(self.all) + log_chance_of_one <= math.log(OTHERWISE)

    def blocks(self, width: int) -> list[int]:
        """Sizes of the blocks in which rows of `width` numbers are drawn; some make up `first`, and some `all`."""
        ends = (0, self.first, self.all, self.near)
        return [size for start, end in pairwise(ends) for size in blocks(end - start, width)]


@dataclass(frozen=True)
class Gap:
    """Difference of means of the best scores of two groups.

    Attributes:
        value: First minus second.
        low: Lower end of the 95 % bootstrap interval (approximate).
        high: Upper end.
        p: One-sided permutation p-value of "the first is not higher", in (0, 1].
        n: Sizes of the two groups.
        smallest: The smallest p that could have come out.
    """

    value: float
    low: float
    high: float
    p: float
    n: tuple[int, int]
    smallest: float = 0.0


def gap(
    first: Matrix,
    second: Matrix,
    rng: np.random.Generator,
    *,
    share: float = 1.0,
    tests: int = 1,
    draws: int = 2000,
) -> Gap:
    """Test whether the best `share` of the first group scores higher than that of the second.

    Args:
        first: Scores, shape (n,), n at least 2.
        second: Scores, shape (m,), m at least 2.
        rng: Source of permutations and resamples.
        share: Share of each group that counts, its best ones; at least one each.
        tests: Number of tests in the run: there are enough permutations for a level of 0.05 / tests.
        draws: Least number of permutations, and number of bootstrap resamples.

    Raises:
        ValueError: A group with fewer than 2 scores, or a score that is not finite.
    """
    both = np.concatenate([first, second])
    if min(len(first), len(second)) < 2 or not np.isfinite(both).all():
        raise ValueError(
            f"two groups of at least 2 finite scores are needed, given {len(first)} and {len(second)}"
        )
    n, m = len(first), len(second)

    def differences(rows: Matrix) -> Matrix:
        return _best_share(rows[:, :n], share) - _best_share(rows[:, n:], share)

    value = float(differences(both[None])[0])

    def shuffled(count: int) -> Matrix:
        return differences(rng.permuted(np.broadcast_to(both, (count, n + m)), axis=1))

    counts = counted(share, n), counted(share, m)
    of_one = partial(log_chance_of_groups, both, counts, n, spreads=CERTAIN)
    size = Draws.of_run(tests, draws)
    smallest, scale = 1 / math.comb(n + m, n), float(np.abs(both).max())
    test = PermutationTest.of_some(value, shuffled, size, smallest, (n, m), scale, log_chance_of_one=of_one)
    resampled = np.concatenate(
        [
            _best_share(first[rng.integers(0, n, (size, n))], share)
            - _best_share(second[rng.integers(0, m, (size, m))], share)
            for size in blocks(draws, n + m)
        ]
    )
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Gap(value, float(low), float(high), test.p, (n, m), test.smallest)


def enough(tests: int, draws: int) -> int:
    """Arrangements to draw: at least `draws`, and so many that 3 of them lie beyond a level of 0.05 / tests."""
    return max(draws, 60 * tests)


def most_higher(tests: int, draws: int) -> int:
    """Drawn arrangements, of `draws`, that may be as high as the observed one where a test of a run rejects."""
    return int(np.floor(level_of(tests) * (1 + draws) + 1e-9)) - 1


def blocks(total: int, width: int) -> list[int]:
    """Sizes of the blocks in which `total` rows of `width` numbers are drawn."""
    size = max(1, _BLOCK // width)
    return [min(size, total - start) for start in range(0, total, size)]


def best_mean(scores: Matrix, ranks: Matrix, count: int) -> Matrix:
    """Mean of the scores of each row's `count` highest-ranked entries, shape (draws,)."""
    best = np.argpartition(ranks, -count, axis=1)[:, -count:]
    return np.asarray(np.take_along_axis(scores, best, axis=1).mean(axis=1))


def _best_share(scores: Matrix, share: float) -> Matrix:
    """Mean of each row's best `share`, shape (draws,)."""
    return largest_mean(scores, counted(share, scores.shape[1]))


def counted(share: float, size: int) -> int:
    """Number of the best ones that are a share of so many; at least one."""
    return max(1, round(share * size))


def largest_mean(scores: Matrix, count: int) -> Matrix:
    """Mean of each row's `count` largest scores, shape (draws,)."""
    if count == scores.shape[1]:
        return np.asarray(scores.mean(axis=1))
    return np.asarray(np.partition(scores, -count, axis=1)[:, -count:].mean(axis=1))
