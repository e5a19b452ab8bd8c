"""Pictures that are the same, or nearly: a leak of one record of a pair is a leak of the other.

Two pictures are near duplicates where their small grey copies differ by at most a tenth of each copy's difference
from an even slope of brightness, as root mean squares. A picture that is saved again, scaled or brightened is
found. Two patches of one sky are not, for there is nothing in them but the slope.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.data.pictures_seen import SMALL, Seen
from fedassay.support.types import Floats

NEAR = 0.1
"""Largest difference of near duplicates, as a share of their own structure."""
_LEAST = 4.0
"""Least structure of a picture that is compared, in grey levels: noise alone makes pictures of less alike."""
_AXES = 12
"""Dimensions that neighbours are looked for in; the full copies are compared afterwards."""
_NEIGHBOURS = 6
"""Neighbours of each picture that are compared with it."""
_FITTED = 2_000
"""Pictures that the axes are computed from."""


class Twin(NamedTuple):
    """Two similar pictures, by their places in `Seen`; the first is the earlier one.

    Attributes:
        first: Place of one.
        second: Place of the other.
        same: Whether they are equal in small copies, mean and deviation.
    """

    first: int
    second: int
    same: bool


def twins(seen: Seen) -> list[Twin]:
    """The pairs of pictures that are alike; of several equal ones, the first with each of the others."""
    structure = _structure(seen.small)
    amount = np.sqrt((structure**2).mean(axis=1))
    # Small copies of pictures with little structure are soon equal: mean and deviation have to be, too.
    key = np.concatenate([seen.small, np.stack([seen.brightness, seen.contrast], axis=1).view(np.uint8)], axis=1)
    _, first, of = np.unique(key, axis=0, return_index=True, return_inverse=True)
    earliest = first[of.ravel()].tolist()
    pairs = [Twin(before, place, True) for place, before in enumerate(earliest) if before != place]
    kept = np.sort(first[amount[first] >= _LEAST])
    for a, b in kept[_near(structure[kept], amount[kept])].tolist():
        pairs.append(Twin(a, b, False))
    return sorted(pairs)


def _structure(small: NDArray[np.uint8]) -> Floats:
    """Structure of small copies: the residual from an even slope of brightness, shape (m, SMALL * SMALL)."""
    down, across = np.meshgrid(np.arange(SMALL), np.arange(SMALL), indexing="ij")
    plane = np.stack([np.ones(SMALL * SMALL), down.ravel(), across.ravel()])
    basis = np.linalg.qr(plane.T.astype(np.float32))[0]
    values = small.astype(np.float32)
    return np.asarray(values - (values @ basis) @ basis.T)


def _near(structure: Floats, amount: Floats) -> NDArray[np.int64]:
    """Pairs of places with structures near each other, each once, shape (k, 2)."""
    if len(structure) < 2:
        return np.zeros((0, 2), np.int64)
    from scipy.spatial import cKDTree

    unit = structure / amount[:, None]
    sample = unit[np.random.default_rng(0).permutation(len(unit))[:_FITTED]]
    axes = np.linalg.eigh(sample.T @ sample)[1][:, -_AXES:]
    # No projection is farther than the whole, and scaling both to one amount adds at most as much as they differ.
    most = 2 * NEAR * SMALL
    points = unit @ axes
    places = cKDTree(points).query(points, k=min(_NEIGHBOURS, len(points)), distance_upper_bound=most)[1]
    rows = np.repeat(np.arange(len(points)), places.shape[1])
    pairs = np.stack([rows, places.ravel()], axis=1)
    pairs = np.unique(np.sort(pairs[(pairs[:, 1] < len(points)) & (pairs[:, 0] != pairs[:, 1])], axis=1), axis=0)
    found = [np.zeros((0, 2), np.int64)]
    for part in np.array_split(pairs, max(1, len(pairs) // _FITTED)):
        difference = np.sqrt(((structure[part[:, 0]] - structure[part[:, 1]]) ** 2).mean(axis=1))
        found.append(part[difference <= NEAR * np.minimum(amount[part[:, 0]], amount[part[:, 1]])])
    return np.concatenate(found)
