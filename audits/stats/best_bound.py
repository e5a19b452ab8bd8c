"""An upper bound of the chance that a random arrangement brings the gap between the best of both sides to a bar.

The gap is the mean of the best scores of the first side less that of the second, as `paired_test` and `gap` have
it. No arrangement is drawn: events that cover all of those with such a gap are sums of chosen weights, which
`audits.stats.chernoff` bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedassay.audits.stats.chernoff import log_chance, log_chances
from fedassay.support.types import Ints, Matrix

SPREADS = 8
CERTAIN = 14
"""The same for a bound that is to spare one test all of its draws."""
_CELLS = 6
"""Into how many the scores are divided among which a bound looks for the last of the best of a side."""
_THRESHOLDS = (1.0, 2.0)
"""Down to how many times as many as count on a side a bound sums up the scores of both."""


def log_chance_of_pairs(first: Matrix, second: Matrix, top: int, bar: float, *, spreads: int = SPREADS) -> float:
    """Bound of the log of the chance that an exchange of random pairs reaches the bar; at most 0.

    Args:
        first: Scores, shape (n,).
        second: Scores of the partners, shape (n,).
        top: Number of each side's best ones that count.
        bar: Gap of the means of these.
        spreads: Spreads of a side's number among the highest that the bound looks down to: a bound is no smaller
            than the chance that a side has more or fewer.
    """
    n = len(first)
    if top == n:
        return log_chance(*sum_of_pairs(first, second, bar), 0.5)
    events = _events(np.concatenate([first, second]), (top, top), 0.5, bar, spreads)
    # Of each pair one is on the first side: the first one of it, and the second one where it is exchanged.
    weights = np.zeros((len(events.bars), 2 * n))
    weights[:, events.entries] = events.weights
    ours, theirs = weights[:, :n], weights[:, n:]
    moved = (theirs - ours)[:, (theirs != ours).any(axis=0)]
    return events.any_of(log_chances(moved, events.bars - ours.sum(axis=1), 0.5))


def log_chance_of_groups(
    both: Matrix, counts: tuple[int, int], n: int, bar: float, *, spreads: int = SPREADS
) -> float:
    """Bound of the log of the chance that random groups reach the bar; at most 0.

    Args:
        both: Scores of all, shape (n + m,).
        counts: Number of the best ones of each group that count.
        n: Size of the first group.
        bar: Gap of the means of these.
        spreads: Spreads of a side's number among the highest that the bound looks down to: a bound is no smaller
            than the chance that a side has more or fewer.
    """
    m, share = len(both) - n, n / len(both)
    if counts == (n, m):
        return log_chance(*sum_of_groups(both, n, bar), share, chosen=n)
    events = _events(both, counts, share, bar, spreads)
    others = len(both) - len(events.entries)
    return events.any_of(log_chances(events.weights, events.bars, share, chosen=n, others=others))


def sum_of_pairs(first: Matrix, second: Matrix, bar: float) -> tuple[Matrix, float]:
    """Weights of exchanged pairs, shape (n,), and their sum where the gap of all means reaches the bar.

    An exchange takes twice from the sum of gains what it moves.
    """
    return (second - first) * (2 / len(first)), bar - float((first - second).mean())


def sum_of_groups(both: Matrix, n: int, bar: float) -> tuple[Matrix, float]:
    """The same of the entries of the first group: with T their sum and S that of both, T / n - (S - T) / m."""
    m = len(both) - n
    return both * (1 / n + 1 / m), bar + float(both.sum()) / m


@dataclass(frozen=True, eq=False)
class _Events:
    """Sums of weights of the entries on the first side; a gap always implies that some of them reach their bars.

    Attributes:
        entries: Indices of the entries with weights, shape (n,).
        weights: Shape (events, n).
        bars: Shape (events,).
        ways: The event that each row bounds, shape (events,): the least chance of an event's rows counts.
    """

    entries: Ints
    weights: Matrix
    bars: Matrix
    ways: Ints

    def any_of(self, logs: Matrix) -> float:
        """Log of the sum of the chances of all events, which bounds that of any of them."""
        return float(np.logaddexp.reduce([logs[self.ways == way].min() for way in np.unique(self.ways)]))


def _events(scores: Matrix, counts: tuple[int, int], share: float, bar: float, spreads: int) -> _Events:
    """Events that cover every arrangement with a gap of at least `bar` between the best of both sides.

    The mean of the best k of a set is the minimum over t of t + (sum of the entries' excesses over t) / k,
    attained at the k-th best (Rockafellar and Uryasev 2000, theorem 1). So every t bounds the first side's mean
    from above. On the second side the k-th best lies between two scores of a grid: the mean is at least the lower
    one plus the excesses over the upper one. Or fewer than k entries are as high up as the grid reaches.
    """
    order = np.argsort(-scores, kind="stable")
    depth = depth_of_best(len(scores), counts, share, spreads=spreads)
    best = scores[order[:depth]]
    ours, theirs = counts
    weights, bars, ways = [np.ones(depth)], [depth - theirs + 1.0], [0]
    grid = np.unique(np.linspace(theirs - 1, depth - 1, _CELLS + 1).astype(np.int64))
    for way, (above, below) in enumerate(pairwise([0, *grid.tolist()]), 1):
        second = np.maximum(best - best[above], 0) / theirs
        for factor in _THRESHOLDS:
            t = best[min(depth - 1, int(factor * ours))]
            weights.append(np.maximum(best - t, 0) / ours + second)
            bars.append(bar - t + best[below] + float(second.sum()))
            ways.append(way)
    return _Events(order[:depth], np.array(weights), np.array(bars), np.array(ways))


def depth_of_best(total: int, counts: tuple[int, int], share: float, *, spreads: int) -> int:
    """Depth that contains the best of both sides in all but few arrangements; those take twice the depth."""
    spread = max(np.sqrt(counts[0] * (1 - share)) / share, np.sqrt(counts[1] * share) / (1 - share))
    return min(total, int(sum(counts) + spreads * spread) + 1)
