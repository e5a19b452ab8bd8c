"""The noise that a draw should have had, computed again without the code that drew it.

Everything from the hash of a stream's name to the layout of symmetric noise is written here a second time, on
purpose: a mechanism that halves its noise, or streams that forget a part of their name, must not agree with
themselves.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from fedassay.privacy.tape import Draw, Key
from fedassay.support.seeds import Seeds
from fedassay.support.types import Matrix

_PREFIX = 8
"""Normals that two draws are compared by."""


def normals(root: Seeds, key: Key, count: int) -> Matrix:
    """The first `count` standard normals of a draw's stream."""
    names = (key.sender, key.round, key.field, key.cell, key.part, key.step)
    path = b"".join(f"{len(str(name))}:{type(name).__name__}:{name};".encode() for name in names)
    digest = hashlib.sha256(root._root + path).digest()
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest, "big"))))
    return np.asarray(generator.standard_normal(count), dtype=np.float64)


def expected(draw: Draw, root: Seeds) -> Matrix:
    """Recompute the output of a draw from its stream."""
    if draw.scale == 0:
        return draw.exact
    if draw.layout == "entries":
        noise = normals(root, draw.key, draw.exact.size).reshape(draw.exact.shape) * draw.scale
    else:
        width = draw.exact.shape[-1]
        matrices = draw.exact.size // (width * width)
        upper = normals(root, draw.key, matrices * width * (width + 1) // 2).reshape(matrices, -1)
        noise = np.empty((matrices, width, width))
        start = 0
        for row in range(width):
            own = upper[:, start : start + width - row] * (draw.scale * _factors(width - row, draw.layout))
            noise[:, row, row:] = noise[:, row:, row] = own
            start += width - row
        noise = noise.reshape(draw.exact.shape)
    if draw.grid:
        noise = np.rint(noise / draw.grid) * draw.grid
    return np.asarray(draw.exact + noise, dtype=np.float64)


def _factors(length: int, layout: str) -> Matrix:
    """Factors of the noise of a row's entries, from the diagonal on."""
    factors = np.full(length, 1.0 if layout == "mirrored" else 1 / math.sqrt(2.0))
    factors[0] = 1.0
    return factors


def standardised(draw: Draw) -> Matrix:
    """Added noise over its declared deviation, (n,): every independent number once."""
    added = draw.out - draw.exact
    if draw.layout == "entries":
        return np.asarray(added.ravel() / draw.scale, dtype=np.float64)
    width = draw.exact.shape[-1]
    row, column = np.triu_indices(width)
    factor = np.where(row == column, 1.0, 1.0 if draw.layout == "mirrored" else 1 / math.sqrt(2.0))
    return np.asarray((added[..., row, column] / (draw.scale * factor)).ravel(), dtype=np.float64)


def fingerprint(draw: Draw) -> bytes | None:
    """The beginning of the normals of a draw, to tell streams apart; None of too few numbers."""
    first = standardised(draw)[:_PREFIX] if draw.exact.size <= 4096 else _head(draw)
    return None if len(first) < _PREFIX // 2 else np.round(first, 4).tobytes()


def _head(draw: Draw) -> Matrix:
    added = (draw.out - draw.exact).reshape(-1)[:_PREFIX]
    factors = np.ones(len(added))
    if draw.layout == "symmetric":
        factors[1:] = 1 / math.sqrt(2.0)
    return np.asarray(added / (draw.scale * factors), dtype=np.float64)


def squared_distance(first: Draw, second: Draw) -> float:
    """Between what went into two draws, entries off the diagonal counted as the layout of the noise says."""
    difference = second.exact - first.exact
    square = float(np.sum(difference * difference))
    if first.layout == "mirrored":
        # The same noise stands on both sides of the diagonal: each entry off it is one number, not two.
        diagonal = np.diagonal(difference, axis1=-2, axis2=-1)
        square = (square + float(np.sum(diagonal * diagonal))) / 2
    return square
