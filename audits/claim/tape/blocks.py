"""Is the noise of a run independent, normal and as large as declared: p-values of blocks fixed beforehand.

Exact recomputation shows whether the noise is the stream's; this test shows whether the stream is noise. Blocks do
not depend on the values, and each has a share of the level:

| block | share | what it finds |
|---|---|---|
| the size of a statistic | .65 | noise of another scale, four fifths of it for too little |
| windows of 100 numbers in the order of each draw | .1 | noise that is missing here and there |
| the mean of a statistic | .05 | noise that is shifted |
| products of numbers at every lag, and mirrored | .1 | autoregression, repeats, changed signs |
| the shape of all numbers | .1 | another distribution of the same size |

A p-value p at a share w counts as 1 - (1 - p)^(1 / w) (Sidak 1967, with weights). For normals the size, the mean,
and statistics that neither a scale nor a shift changes are independent (Basu 1955), so windows are held against
the size of their statistic, and lags and shape are of numbers that are centred and scaled. The smallest of all is
then all but uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import betainc, chdtr, chdtrc, log_ndtr, ndtr

from fedassay.support.types import Matrix

LEVEL = 1e-3
"""Chance that honest noise fails, over a whole run."""

WINDOW = 100
SIZES, WINDOWS, MEANS, LAGS, SHAPE = 0.65, 0.1, 0.05, 0.1, 0.1
"""Shares of the level."""
TOO_SMALL = 0.8
"""Part of a size's share that tests for too little noise; the rest tests for too much."""
_MOST_WINDOWS = 2000
_OVERLAP = 16
"""Least number of products at a lag that is tested."""
_LAGGED, _SHAPED = 64, 8
"""Least numbers for the tests of lags and of the shape."""
_MOST = 1 << 22
"""Maximum count of numbers in the tests of products: the first ones of a run."""


@dataclass(frozen=True)
class BlockTest:
    """The outcome for a run.

    Attributes:
        p: Of the smallest p-value of all blocks, each at its share.
        block: Name of the block, in words.
        statistic: The statistic that it is in.
        share: Root mean square of the noise in it over the declared deviation; NaN where that is not what is off.
        numbers: Normals that were tested.
        window: Numbers in a window.
    """

    p: float
    block: str
    statistic: str
    share: float
    numbers: int
    window: int


@dataclass(frozen=True)
class _Block:
    """A block: its name, the statistic that it is in, its p-value, its share of the level, and the noise in it."""

    words: str
    statistic: str
    p: float
    share: float
    size: float = float("nan")
    window: bool = False

    def counted(self, shares: float) -> float:
        """The p-value at its share of all shares."""
        return float(-np.expm1(np.log1p(-min(self.p, 1 - 1e-16)) * shares / self.share))


def noise_in_blocks(statistics: Sequence[tuple[str, Matrix]]) -> BlockTest | None:
    """Test standardised noise.

    Args:
        statistics: Name and numbers, each independent and standard normal where all is as declared.

    Returns:
        None without any number.
    """
    statistics = [(name, np.asarray(values, np.float64)) for name, values in statistics if len(values)]
    total = sum(len(values) for _, values in statistics)
    if not total:
        return None
    window = WINDOW * max(1, -(-total // (WINDOW * _MOST_WINDOWS)))
    together = np.concatenate([_scaled(values) for _, values in statistics])
    blocks = [*_wholes(statistics), *_windows(statistics, window), *_alike(statistics[0][0], together)]
    # Where there are too few numbers for a kind of block, its share is the others'.
    shares = sum(block.share for block in blocks)
    p = min(block.counted(shares) for block in blocks)
    # Where a window is off by itself it says more than what it is a part of.
    off = [block for block in blocks if block.window and block.counted(shares) <= LEVEL]
    least = min(off or blocks, key=lambda block: block.counted(shares))
    return BlockTest(p, least.words, least.statistic, least.size, total, window)


def size_level(level: float, statistics: int) -> float:
    """The part of a level that each of so many statistics is tested at, by the test for too little noise."""
    return level * SIZES * TOO_SMALL / statistics


def _scaled(values: Matrix) -> Matrix:
    """Numbers about their mean over their deviation; none of them where they are all alike."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else values[:0]


def _wholes(statistics: Sequence[tuple[str, Matrix]]) -> list[_Block]:
    """Sizes and means of every statistic."""
    found = []
    for name, values in statistics:
        count, square = len(values), float(values @ values)
        size = float(np.sqrt(square / count))
        off = min(chdtr(count, square) / TOO_SMALL, chdtrc(count, square) / (1 - TOO_SMALL))
        mean = 2 * float(ndtr(-abs(values.sum()) / np.sqrt(count)))
        found.append(_Block(f"the size of {name}", name, float(min(off, 1.0)), SIZES / len(statistics), size))
        found.append(_Block(f"the mean of {name}", name, mean, MEANS / len(statistics), size))
    return found


def _windows(statistics: Sequence[tuple[str, Matrix]], window: int) -> list[_Block]:
    """The window with the least likely part of its statistic's squares."""
    found: list[tuple[float, str, int, float]] = []
    number = 0
    for name, values in statistics:
        starts = np.arange(0, len(values), window)
        square = float(values @ values)
        if len(starts) == 1 or square == 0:
            continue
        sizes = np.diff(np.append(starts, len(values)))
        squares = np.add.reduceat(values * values, starts)
        own, rest = sizes / 2, (len(values) - sizes) / 2
        part = np.clip(squares / square, 0, 1)
        p = 2 * np.minimum(betainc(own, rest, part), betainc(rest, own, 1 - part))
        least = int(np.argmin(p))
        found.append((float(p[least]), name, least, float(np.sqrt(squares[least] / sizes[least]))))
        number += len(starts)
    if not found:
        return []
    p_least, name, least, size = min(found)
    return [_Block(f"window {least + 1} of {name}", name, _smallest(p_least, number), WINDOWS, size, True)]


def _alike(statistic: str, together: Matrix) -> list[_Block]:
    """Blocks that neither a scale nor a shift changes: the shape, and products at every lag and mirrored.

    For normals, a sum of products with earlier numbers is normal, with the sum of their squares as its variance:
    exactly where the two parts share no number, and nearly where many numbers are added up.
    """
    found = []
    if len(together) >= _SHAPED:
        found.append(_Block("the shape of all numbers", statistic, _shape(together), SHAPE))
    values = together[:_MOST]
    count = len(values)
    if count < _LAGGED:
        return found
    size = next_fast_len(2 * count, real=True)
    turned = rfft(values, size)
    squares = np.concatenate([[0.0], np.cumsum(values * values)])
    lags = np.arange(1, count - _OVERLAP + 1)
    forwards = irfft(turned * turned.conj(), size)[lags] / np.sqrt(squares[count - lags])
    # Each pair with i + j = s is met twice, and where s is even a number meets itself once.
    sums = np.arange(2 * _OVERLAP - 1, 2 * (count - _OVERLAP))
    own = np.where(sums % 2 == 0, values[sums // 2] ** 2, 0.0)
    first, last = np.maximum(0, sums - count + 1), (sums + 1) // 2
    mirrored = (irfft(turned * turned, size)[sums] - own) / 2 / np.sqrt(squares[last] - squares[first])
    for scores, words in ((forwards, "{} numbers apart"), (mirrored, "mirrored at half of {}")):
        place = int(np.argmax(np.abs(scores)))
        p = _smallest(float(2 * ndtr(-abs(scores[place]))), len(scores))
        at = int(lags[place] if scores is forwards else sums[place])
        found.append(_Block(f"products of numbers {words.format(at)}", statistic, p, LAGS / 2))
    return found


def _smallest(p: float, of: int) -> float:
    """Probability that the smallest of so many independent p-values is at most p."""
    return float(-np.expm1(of * np.log1p(-min(p, 1 - 1e-16))))


def _shape(values: Matrix) -> float:
    """Anderson and Darling's p-value of a normal shape, mean and deviation estimated.

    D'Agostino and Stephens, "Goodness-of-Fit Techniques" (1986), table 4.9.
    """
    count = len(values)
    ordered = np.sort(values)
    weights = 2 * np.arange(1, count + 1) - 1
    square = -count - float((weights * (log_ndtr(ordered) + log_ndtr(-ordered[::-1]))).mean())
    a = square * (1 + 0.75 / count + 2.25 / count**2)
    if a >= 0.6:
        # The fit is a parabola, and would rise again beyond what it was fitted to.
        return float(np.exp(1.2937 - 5.709 * min(a, 150.0) + 0.0186 * min(a, 150.0) ** 2))
    if a >= 0.34:
        return float(np.exp(0.9177 - 4.279 * a - 1.38 * a**2))
    if a >= 0.2:
        return float(1 - np.exp(-8.318 + 42.796 * a - 59.938 * a**2))
    return float(1 - np.exp(-13.436 + 101.14 * a - 223.73 * a**2))
