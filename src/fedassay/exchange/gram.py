"""How many vectors a Gram matrix is made of, and whether they can be told apart.

B = F^T F of n independent vectors has rank n, so that the number of records shows in B however well the
counts are hidden; and A_c B^+ A_c^T = 1_c^T F (F^T F)^+ F^T 1_c is the number of records of class c.
Rounding in transport and privacy noise blur both: negative eigenvalues, which no vectors can give, show how far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.support.types import Ints

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Gram:
    """Statistics of n unknown non-negative vectors.

    Attributes:
        second: F^T F, shape (d, d), symmetric.
        sums: Sums over the groups, shape (C, d); None where there are none.
        counts: Vectors per group, shape (C,); None where they are not known.
        labels: Label of each group, shape (C,).
        unit: Unit roundoff of the type that the statistics travelled in.
        noise: Standard deviation of Gaussian noise on `second` (isometric, as `symmetric_noise`); 0 for none.
    """

    second: Matrix
    sums: Matrix | None
    counts: Matrix | None
    labels: Ints
    unit: float
    noise: float = 0.0


@dataclass(frozen=True)
class Size:
    """How many vectors a Gram matrix is made of, and how exactly it is known.

    Attributes:
        rank: Eigenvalues of `second` that stand out from rounding and noise.
        counts: Vectors per group, whole, shape (C,); empty where groups cannot be used.
        total: Vectors in all: the sum of the counts, or the rank.
        edge: Largest eigenvalue that rounding and noise alone would give.
        noise: Standard deviation of the noise, from the spectrum where it is not stated; 0 where rounding
            explains everything.
        counted: Where the counts come from: `given`, `from_sums` (A_c B^+ A_c^T is n_c), or `rank`.
    """

    rank: int
    counts: Ints
    total: int
    edge: float
    noise: float
    counted: str


def measure(gram: Gram) -> Size:
    """Estimate how many vectors there are.

    Negative eigenvalues cannot come from vectors: they show how far rounding and noise reach. Among the
    eigenvalues between that and what the transport's rounding may reach at most, the widest gap decides.
    """
    values: Matrix = np.asarray(np.linalg.eigvalsh(gram.second)[::-1])
    width = len(values)
    rounding = 2 * gram.unit * float(np.sqrt((gram.second**2).sum(axis=1).max() / 3))
    floor = max(1.5 * -float(values[-1]), width * np.finfo(float).eps * abs(float(values[0])))
    # The edge of the spectrum of symmetric noise whose off-diagonal variance is halved (semicircle law).
    stated = 1.1 * gram.noise * float(np.sqrt(2 * width))
    noise = gram.noise
    if noise == 0 and -values[-1] > 3 * max(rounding, width * np.finfo(float).eps * abs(float(values[0]))):
        noise = -float(values[-1]) / float(np.sqrt(2 * width))
    edge = max(floor, stated)
    rank = _widest_gap(values, edge, max(edge, rounding))
    counts, counted = _counts(gram, rank, noise)
    total = int(counts.sum()) if counts.size else rank
    return Size(rank, counts, total, max(edge, rounding), noise, counted)


def _widest_gap(values: Matrix, low: float, high: float) -> int:
    """Number of eigenvalues (descending) before the widest gap among those that may or may not be signal."""
    sure, possible = int((values > high).sum()), int((values > low).sum())
    if sure in (possible, 0):
        return possible
    ends = np.arange(sure, min(possible, len(values) - 1) + 1)
    following = np.maximum(values[ends], low / 10)
    return int(ends[np.argmax(values[ends - 1] / following)])


def _counts(gram: Gram, rank: int, noise: float) -> tuple[Ints, str]:
    none = np.zeros(0, np.int64)
    if gram.sums is None:
        return none, "rank"
    if gram.counts is not None:
        found = np.rint(gram.counts).clip(min=0).astype(np.int64)
        return (found, "given") if found.any() else (none, "rank")
    if rank == 0:
        return none, "rank"
    values, vectors = np.linalg.eigh(gram.second)
    whitened = gram.sums @ vectors[:, -rank:] / np.sqrt(values[-rank:])
    squares = (whitened**2).sum(axis=1)
    found = np.rint(squares).astype(np.int64)
    # Equal vectors lower the rank but not the counts.
    whole = noise == 0 and float(np.abs(squares - found).max()) < 0.05 and int(found.sum()) >= rank
    return (found, "from_sums") if whole or int(found.sum()) == rank else (none, "rank")


def obstacle(gram: Gram, size: Size) -> str | None:
    """Why the vectors cannot be sought at all, or None."""
    live = int((np.diag(gram.second) > 0).sum())
    if size.total == 0 or (size.rank == 0 and size.noise > 0):
        return "no eigenvalue of the second moment stands out from noise and rounding"
    groups = int((size.counts > 0).sum())
    if size.total - groups > live:
        return f"{size.total} records are more than the {live} features that are ever active can tell apart"
    if size.counted == "rank" and size.rank >= live:
        return (
            f"the second moment has full rank {size.rank}: there are at least as many records as active features, "
            f"how many is not known"
        )
    # Noise makes sums negative as well; a sum far below it is a signed feature.
    if gram.sums is not None and size.noise == 0:
        lowest = float(
            (gram.sums / np.sqrt(np.maximum(np.diag(gram.second), np.finfo(float).tiny))).min(initial=0.0)
        )
        if lowest < -max(1e-6, 10 * gram.unit):
            return "features are signed (class sums are negative); the factorization needs non-negative ones"
    return None
