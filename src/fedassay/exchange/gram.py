"""Number of vectors in a Gram matrix, and whether they can be separated.

B = F^T F of n independent vectors has rank n, so that the number of records shows in B however well the
counts are hidden; and A_c B^+ A_c^T = 1_c^T F (F^T F)^+ F^T 1_c is the number of records of class c.
Rounding in transport and privacy noise blur both: negative eigenvalues, which no vectors can give, show how far.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedassay.support.errors import Why
from fedassay.support.types import Ints, Matrix

_WHOLE = 0.05
"""Largest distance of a number of records from the whole number that it stands for."""

_ROUNDED = 0.01
_MOST_RANKS = 6
"""Numbers of vectors tried at most where rounding leaves several open."""


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
    """Number of vectors in a Gram matrix, and the evidence for it.

    Attributes:
        rank: Eigenvalues of `second` that stand out from rounding and noise.
        counts: Vectors per group, whole, shape (C,); empty where groups cannot be used.
        total: Vectors in all: the sum of the counts, or the rank.
        edge: Largest eigenvalue that rounding and noise alone would give.
        noise: Standard deviation of the noise, from the spectrum where it is not stated; 0 where rounding
            explains everything.
        counted: Source of the counts: `given`, `from_sums` (A_c B^+ A_c^T is n_c), `total` (counts are given, sums
            to use them with are not), or `rank`.
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
    eigenvalues between that and what the transport's rounding may reach at most, class sums decide where they give
    whole numbers of records, and else the widest gap.
    """
    return sizes(gram)[0]


def sizes(gram: Gram) -> tuple[Size, ...]:
    """Every number of vectors that eigenvalues in the reach of rounding leave open, the likeliest first.

    One where rounding leaves none open, counts are sent, or class sums give whole counts at one rank alone: then
    an eigenvalue more that rounding has lifted above its fellows changes nothing.
    """
    values, vectors = np.linalg.eigh(gram.second)
    values, vectors = values[::-1], vectors[:, ::-1]
    width = len(values)
    rounding = 2 * gram.unit * float(np.sqrt((gram.second**2).sum(axis=1).max() / 3))
    floor = max(1.5 * -float(values[-1]), width * np.finfo(float).eps * abs(float(values[0])))
    # The edge of the spectrum of symmetric noise with halved off-diagonal variance (semicircle law).
    stated = 1.1 * gram.noise * float(np.sqrt(2 * width))
    noise = gram.noise
    if noise == 0 and -values[-1] > 3 * max(rounding, width * np.finfo(float).eps * abs(float(values[0]))):
        noise = -float(values[-1]) / float(np.sqrt(2 * width))
    edge = max(floor, stated)
    ranks = _ranks(values, edge, max(edge, rounding))

    def size(rank: int, counts: Ints, counted: str) -> Size:
        total = int(counts.sum()) if counts.size else rank
        return Size(rank, counts, total, max(edge, rounding), noise, counted)

    given = _given(gram)
    if given is not None:
        return (size(ranks[0], given, "given"),)
    squares = _squares(gram, values, vectors, max(ranks))
    none = np.zeros(0, np.int64)
    if squares is None:
        total = 0 if gram.counts is None else round(float(np.maximum(gram.counts, 0).sum()))
        if total >= ranks[0] > 0:
            return (replace(size(ranks[0], none, "total"), total=total),)
        return tuple(size(rank, none, "rank") for rank in ranks)
    for rank in ranks if noise == 0 else ():
        found = np.rint(squares[:, rank]).astype(np.int64)
        # Equal vectors lower the rank but not the counts.
        if float(np.abs(squares[:, rank] - found).max()) < _WHOLE and int(found.sum()) >= rank > 0:
            return (size(rank, found, "from_sums"),)
    open_ = []
    live = int((np.diag(gram.second) > 0).sum())
    for rank in ranks:
        found = np.rint(squares[:, rank]).astype(np.int64)
        # At full rank the squares are lower bounds of the counts, whatever they add up to.
        whole = 0 < rank < live and int(found.sum()) == rank
        open_.append(size(rank, found, "from_sums") if whole else size(rank, none, "rank"))
    return tuple(open_)


def _ranks(values: Matrix, low: float, high: float) -> list[int]:
    """Numbers of eigenvalues (descending) that may be signal: those before the widest gaps first.

    Args:
        values: Eigenvalues.
        low: Level that rounding and noise reach.
        high: Level that they may reach at most.
    """
    sure, possible = int((values > high).sum()), int((values > low).sum())
    if sure in (possible, 0):
        return [possible]
    ends = np.arange(sure, min(possible, len(values) - 1) + 1)
    following = np.maximum(values[ends], low / 10)
    order = np.argsort(-values[ends - 1] / following, kind="stable")[:_MOST_RANKS]
    return [int(rank) for rank in ends[order]]


def _given(gram: Gram) -> Ints | None:
    """Whole counts as sent, beside sums that they belong to; else None."""
    if gram.sums is None or gram.counts is None:
        return None
    found = np.rint(gram.counts).clip(min=0).astype(np.int64)
    return found if found.any() else None


def _squares(gram: Gram, values: Matrix, vectors: Matrix, rank: int) -> Matrix | None:
    """A_c B^+ A_c^T for every class (rows) at every rank from 0 to `rank`, or None without sums."""
    if gram.sums is None or rank == 0:
        return None
    parts = (gram.sums @ vectors[:, :rank]) ** 2 / values[:rank]
    return np.concatenate([np.zeros((len(parts), 1)), np.cumsum(parts, axis=1)], axis=1)


def obstacle(gram: Gram, size: Size) -> Why | None:
    """Return the reason why non-negative vectors cannot be sought at all, or None."""
    if size.total == 0 or (size.rank == 0 and size.noise > 0):
        return Why("no eigenvalue of the second moment stands out from noise and rounding", kind="nothing_to_read")
    if is_signed(gram, size):
        seen = "sums" if gram.sums is not None else "entries of the second moment"
        return Why(
            f"{seen} are negative, so that features are signed or this is no second moment of them as they are: "
            "the factorization needs non-negative ones, and a "
            "search for the rotation that is left needs records of the attacker's own",
            kind="signed_features",
        )
    return None


def is_signed(gram: Gram, size: Size) -> bool:
    """Whether class sums, or without them products of features, show that features are negative in places."""
    # Noise makes sums negative as well; a sum far below it is a signed feature.
    if size.noise > 0:
        return False
    # Columns that rounding has left nothing of say nothing.
    solid = np.diag(gram.second) > size.edge
    lengths = np.sqrt(np.diag(gram.second)[solid])
    limit = -max(1e-6, 10 * gram.unit)
    if gram.sums is not None:
        return bool((gram.sums[:, solid] / lengths).min(initial=0.0) < limit)
    cosines = gram.second[np.ix_(solid, solid)] / np.outer(lengths, lengths)
    return bool(cosines.min(initial=0.0) < limit * np.sqrt(size.total))


def uncounted(gram: Gram, size: Size) -> bool:
    """Whether there may be more vectors than the rank says: it is full, and no counts say how many."""
    return size.counted == "rank" and size.rank >= int((np.diag(gram.second) > 0).sum())


def least(gram: Gram, size: Size) -> tuple[Matrix, int]:
    """Lower bounds of the numbers of records of each class, A_c B^+ A_c^T, and of all, where the rank is full.

    Args:
        gram: With sums.
        size: Of `measure`.
    """
    assert gram.sums is not None
    values, vectors = np.linalg.eigh(gram.second)
    kept = slice(len(values) - size.rank, len(values))
    along = gram.sums @ vectors[:, kept] / np.sqrt(values[kept])
    bounds = np.asarray((along**2).sum(axis=1))
    total = float((along.sum(axis=0) ** 2).sum())
    whole = int(np.ceil(bounds - _ROUNDED).sum())
    return bounds, max(size.rank, whole, int(np.ceil(total - _ROUNDED)))
