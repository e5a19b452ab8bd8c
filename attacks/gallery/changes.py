"""Messages of one sender at several times: those of the same records, and the changes between others.

Sums of two messages differ by the sums of records that joined less those that left: weights of 1 and -1, and 0 for
records that stayed, which a gallery need not hold. The noise of both adds up. Messages that differ by no more than
their noise (at a level of 1 %) or their rounding are taken to be of the same records, and are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from fedassay.exchange.blocks import Cells, LinearBlock, Of

_Key = tuple[str, str, int, bool, tuple[int, ...], Cells | None]

_LEVEL = 0.99
"""Quantile of squared differences under noise up to which messages count as of the same records."""
_ROUNDED = 4.0
"""Squared differences without noise, relative to rounding, up to which messages count as of the same records."""


def times_of(rounds: Sequence[Sequence[LinearBlock]]) -> list[list[LinearBlock]]:
    """Group blocks by the set of records behind them, in order of time.

    Args:
        rounds: Blocks of every round. Rounds without a sum in common, such as moments after means, are of the
            same records.

    Returns:
        The blocks of each set; one list where no sum was sent twice, or none has changed.
    """
    found: list[list[LinearBlock]] = []
    for blocks in rounds:
        if found and _unchanged(averaged(found[-1]), blocks):
            found[-1] = [*found[-1], *blocks]
        elif blocks:
            found.append(list(blocks))
    return [averaged(blocks) for blocks in found]


def difference(before: Sequence[LinearBlock], after: Sequence[LinearBlock]) -> list[LinearBlock]:
    """Return the difference of two times: the sums of records that joined less those of records that left.

    Args:
        before: Blocks of the first time, one for each sum.
        after: Blocks of the second time, likewise. Only sums that both have are compared. For mixtures these are
            the sums of classes: the components of two fits are of unlike records.
    """
    earlier, later = ([block.together() for block in blocks] for blocks in (before, after))
    known = {_key(block): block for block in earlier}
    return [_minus(block, known[_key(block)]) for block in later if _key(block) in known]


def averaged(blocks: Sequence[LinearBlock]) -> list[LinearBlock]:
    """Average each sum over all times that it was sent, weighted by the inverse of its variance."""
    groups: dict[_Key, list[LinearBlock]] = {}
    for block in blocks:
        groups.setdefault(_key(block), []).append(block)
    return [_mean(group) for group in groups.values()]


def _mean(blocks: Sequence[LinearBlock]) -> LinearBlock:
    if len(blocks) == 1:
        return blocks[0]
    variances = np.array([float(np.mean(block.error**2)) for block in blocks])
    share = 1 / variances if (variances > 0).all() else np.ones(len(blocks))
    share = share / share.sum()
    total = np.sum([part * block.total for part, block in zip(share, blocks, strict=True)], axis=0)
    noise, rounding = (
        np.sqrt(np.sum([(part * each) ** 2 for part, each in zip(share, values, strict=True)], axis=0))
        for values in ([block.noise for block in blocks], [block.rounding for block in blocks])
    )
    return replace(blocks[0], total=total, noise=noise, rounding=rounding)


def _minus(after: LinearBlock, before: LinearBlock) -> LinearBlock:
    return replace(
        after,
        total=after.total - before.total,
        noise=np.hypot(after.noise, before.noise),
        rounding=np.hypot(after.rounding, before.rounding),
        free_ridge=after.free_ridge or before.free_ridge,
    )


def _unchanged(before: Sequence[LinearBlock], after: Sequence[LinearBlock]) -> bool:
    """Whether two messages may be of the same records."""
    noised = rounded = 0.0
    equations = 0
    for block in difference(before, after):
        size, told = _size(block), block.equations
        if (block.noise > 0).any():
            noised, equations = noised + size, equations + told
        else:
            rounded = max(rounded, size / told)
    return noised <= float(stats.chi2.ppf(_LEVEL, max(1, equations))) and rounded <= _ROUNDED


def _size(block: LinearBlock) -> float:
    """Return the squared norm of a difference, in units of the error variance of each equation."""
    total = block.total
    if block.free_ridge:
        width = total.shape[-1]
        trace = np.trace(total, axis1=-2, axis2=-1)
        total = total - (np.asarray(trace) / width)[..., None, None] * np.eye(width)
    squares = (total**2).reshape(len(block.error), -1).sum(axis=1)
    # Where equations have no error, any difference counts.
    variances = np.maximum(block.error**2, 1e-12 * max(float(squares.max(initial=0.0)), 1e-250))
    return float((squares / variances).sum())


def _key(block: LinearBlock) -> _Key:
    """Return the key of a sum, which is the same at any time."""
    of: Of | str = block.of if isinstance(block.of, str) else "own"
    return block.field, of, block.power, block.by_class, block.total.shape, block.cells
