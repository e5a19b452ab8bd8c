"""Is the noise of a run normal and as large as declared: p-values of blocks fixed beforehand.

Exact recomputation tells whether the noise is the stream's; this tells whether the stream is noise. Blocks do not
depend on what is seen: windows of 100 numbers in the order of each draw, all of a statistic together, and the
shape of the first thousand numbers. The smallest p-value of all blocks is compared with that of simulated noise
in the same blocks (Monte-Carlo; Davison and Hinkley 1997, section 4.2), which takes their dependence into account.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, ndtr

from fedassay.support.seeds import Seeds

Floats = NDArray[np.float64]

LEVEL = 1e-3
"""Chance that honest noise fails, over a whole run."""

WINDOW = 100
_SIMULATED = 999
_SHAPED = 1000
_WINDOWS = 2000


@dataclass(frozen=True)
class BlockTest:
    """The outcome for a run.

    Attributes:
        p: Of the smallest p-value of all blocks, by Monte-Carlo.
        block: Which block it is, in words.
        statistic: The statistic that it is in.
        share: Root mean square of the noise in it over the declared deviation.
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
class _Blocks:
    """Sizes of the windows, the statistic that each belongs to, and how many windows are tested for shape."""

    sizes: NDArray[np.int64]
    owner: NDArray[np.int64]
    shaped: int


def noise_in_blocks(statistics: Sequence[tuple[str, Floats]]) -> BlockTest | None:
    """Test standardised noise.

    Args:
        statistics: Name and numbers, each independent and standard normal where all is as declared.

    Returns:
        None without any number.
    """
    statistics = [(name, values) for name, values in statistics if len(values)]
    total = sum(len(values) for _, values in statistics)
    if not total:
        return None
    window = WINDOW * max(1, -(-total // (WINDOW * _WINDOWS)))
    sizes, owner, sums, squares = [], [], [], []
    for number, (_, values) in enumerate(statistics):
        starts = np.arange(0, len(values), window)
        sizes.append(np.diff(np.append(starts, len(values))))
        owner.append(np.full(len(starts), number))
        sums.append(np.add.reduceat(values, starts))
        squares.append(np.add.reduceat(values * values, starts))
    together = np.concatenate(sizes)
    ends = np.cumsum(together)
    shaped = int(np.searchsorted(ends, min(_SHAPED, total))) + 1
    blocks = _Blocks(together, np.concatenate(owner), min(shaped, len(together)))
    first = np.concatenate([values for _, values in statistics])[: ends[blocks.shaped - 1]]
    if len(first) > 4 * _SHAPED:
        blocks, first = _Blocks(blocks.sizes, blocks.owner, 0), first[:0]
    own = _p_values(np.concatenate(sums)[None], np.concatenate(squares)[None], first[None], blocks)
    least = int(np.argmin(own[0]))
    p = _corrected(float(own[0, least]), own.shape[1], blocks, first)
    name, words, share = _named(least, own.shape[1], statistics, np.concatenate(squares), blocks)
    return BlockTest(p, words, name, share, total, window)


def _p_values(sums: Floats, squares: Floats, first: Floats, blocks: _Blocks) -> Floats:
    """p-values of every block, (draws, blocks): windows, sizes and means of statistics, shape."""
    groups = np.flatnonzero(np.diff(np.append(-1, blocks.owner)))
    counts = np.add.reduceat(blocks.sizes, groups)
    windows = _two_sided(chdtr(blocks.sizes, squares))
    whole = _two_sided(chdtr(counts, np.add.reduceat(squares, groups, axis=1)))
    means = 2 * ndtr(-np.abs(np.add.reduceat(sums, groups, axis=1)) / np.sqrt(counts))
    parts = [windows, whole, means]
    if first.shape[1]:
        parts.append(_shape(first)[:, None])
    return np.concatenate(parts, axis=1)


def _two_sided(lower: Floats) -> Floats:
    return np.asarray(2 * np.minimum(lower, 1 - lower), dtype=np.float64)


def _shape(values: Floats) -> Floats:
    """Kolmogorov's asymptotic p-value of each row against the standard normal: a score, to be compared."""
    n = values.shape[1]
    levels = ndtr(np.sort(values, axis=1))
    steps = np.arange(n) / n
    distance = np.maximum(levels - steps, steps + 1 / n - levels).max(axis=1)
    scaled = np.maximum(np.sqrt(n) * distance, 1e-3)
    terms = [(-1) ** (k - 1) * np.exp(-2 * (k * scaled) ** 2) for k in range(1, 30)]
    return np.asarray(np.clip(2 * np.sum(terms, axis=0), 0, 1), dtype=np.float64)


def _corrected(least: float, tests: int, blocks: _Blocks, first: Floats) -> float:
    """The Monte-Carlo p-value of the smallest p-value; Bonferroni's where so few simulated ones cannot tell."""
    # Nobody chooses the simulated noise: it follows from what is tested.
    seed = int.from_bytes(hashlib.sha256(first.tobytes() + repr(least).encode()).digest()[:8], "big")
    rng = Seeds(0).numpy("tape", "blocks", seed)
    below = 0
    for start in range(0, _SIMULATED, 111):
        rows = min(111, _SIMULATED - start)
        below += int(np.count_nonzero(_simulated(rows, blocks, rng).min(axis=1) <= least))
    p = (1 + below) / (1 + _SIMULATED)
    return p if below else min(p, tests * least)


def _simulated(rows: int, blocks: _Blocks, rng: np.random.Generator) -> Floats:
    """p-values of all blocks on standard normals."""
    shaped, sizes = blocks.shaped, blocks.sizes
    first = rng.standard_normal((rows, int(sizes[:shaped].sum())))
    rest = sizes[shaped:]
    # Of n normals the sum is normal and the squares about their mean are chi-squared, independently.
    sums = rng.standard_normal((rows, len(rest))) * np.sqrt(rest)
    squares = sums**2 / np.maximum(rest, 1)
    if len(rest):
        squares = squares + np.where(
            rest > 1, 2 * rng.standard_gamma(np.maximum((rest - 1) / 2, 0.5), (rows, len(rest))), 0
        )
    if shaped:
        starts = np.concatenate([[0], np.cumsum(sizes[: shaped - 1])])
        sums = np.concatenate([np.add.reduceat(first, starts, axis=1), sums], axis=1)
        squares = np.concatenate([np.add.reduceat(first * first, starts, axis=1), squares], axis=1)
    return _p_values(sums, squares, first, blocks)


def _named(
    least: int, tests: int, statistics: Sequence[tuple[str, Floats]], squares: Floats, blocks: _Blocks
) -> tuple[str, str, float]:
    """The statistic of a block, the block in words, and the share of the declared noise in it."""
    windows, groups = len(blocks.sizes), len(statistics)
    if least < windows:
        name = statistics[int(blocks.owner[least])][0]
        before = int(np.count_nonzero(blocks.owner[:least] == blocks.owner[least]))
        share = float(np.sqrt(squares[least] / blocks.sizes[least]))
        return name, f"window {before + 1} of {name}", share
    if least == windows + 2 * groups:
        return statistics[0][0], "the shape of the first numbers", float("nan")
    number = (least - windows) % groups
    name, values = statistics[number]
    share = float(np.sqrt(np.mean(values * values)))
    return name, f"{'the size' if least < windows + groups else 'the mean'} of {name}", share
