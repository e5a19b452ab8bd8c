"""Messages of one sender at several times: which are of the same records, and what has changed in the others.

Sums of two messages differ by the sums of who joined less those of who left: weights of 1 and -1, and 0 for all
who stayed, whom a gallery need not hold. Noise of both adds up. Messages that differ by no more than their noise
(at a level of 1 %) or their rounding are taken to be of the same records, and are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from fedassay.exchange.blocks import Cells, LinearBlock, Of

_Key = tuple[str, str, int, bool, tuple[int, ...], Cells | None]

_LEVEL = 0.99
"""Quantile of the squared differences of messages of the same records that are still taken for these."""
_ROUNDED = 4.0
"""Squared differences of messages without noise that are still taken for these, over what rounding leaves."""


def times_of(rounds: Sequence[Sequence[LinearBlock]]) -> list[list[LinearBlock]]:
    """The blocks of every set of records that the messages are of, in order of time.

    Args:
        rounds: Blocks of every round. Rounds without a sum in common, such as moments after means, are of the
            same records.

    Returns:
        One list where no sum was sent twice, or none has changed.
    """
    found: list[list[LinearBlock]] = []
    for blocks in rounds:
        if found and _unchanged(averaged(found[-1]), blocks):
            found[-1] = [*found[-1], *blocks]
        elif blocks:
            found.append(list(blocks))
    return [averaged(blocks) for blocks in found]


def difference(before: Sequence[LinearBlock], after: Sequence[LinearBlock]) -> list[LinearBlock]:
    """What was added between two times: the sums of who joined less those of who left.

    Args:
        before: No two of one sum.
        after: Likewise; only sums that both have are compared. Of mixtures these are the sums of classes: the
            components of two fits are of unlike records.
    """
    earlier, later = ([block.together() for block in blocks] for blocks in (before, after))
    known = {_key(block): block for block in earlier}
    return [_minus(block, known[_key(block)]) for block in later if _key(block) in known]


def averaged(blocks: Sequence[LinearBlock]) -> list[LinearBlock]:
    """One block for every sum, of all times that it was sent, each weighted by the inverse of its variance."""
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
    """The squared norm of a difference, in variances of what an equation may be wrong by."""
    total = block.total
    if block.free_ridge:
        width = total.shape[-1]
        trace = np.trace(total, axis1=-2, axis2=-1)
        total = total - (np.asarray(trace) / width)[..., None, None] * np.eye(width)
    squares = (total**2).reshape(len(block.error), -1).sum(axis=1)
    # Where nothing may be wrong, any difference is one.
    variances = np.maximum(block.error**2, 1e-12 * max(float(squares.max(initial=0.0)), 1e-250))
    return float((squares / variances).sum())


def _key(block: LinearBlock) -> _Key:
    """What is the same sum at any time."""
    of: Of | str = block.of if isinstance(block.of, str) else "own"
    return block.field, of, block.power, block.by_class, block.total.shape, block.cells
