"""Estimate the common mean of a few records from their known differences.

A head's equations give records about their mean. The mean follows from the distribution of features in the
attacker's own images: every feature by itself has a density, and a share of zeros where a rectifier made it. Where
that share is large, the smallest of the records is most likely 0, and the mean follows exactly.

Source: this project.
"""

from __future__ import annotations

import numpy as np

from fedassay.support.types import Matrix

_BINS = 40
_PLACES = 64
"""Number of values of a mean between the least and the largest possible one."""
_SAME = 0.02
"""Largest distance of two records in a feature in which both may be 0, in units of its range."""


def common_mean(centred: Matrix, own: Matrix) -> Matrix:
    """Return the expected mean of the records (d,), feature by feature.

    Args:
        centred: Records about their mean, shape (n, d).
        own: Features of the attacker's images, shape (M, d).
    """
    rectified = bool(own.min() >= 0)
    low = np.zeros(own.shape[1]) if rectified else own.min(axis=0)
    # The records may exceed the range of the attacker's own.
    width = np.maximum(own.max(axis=0) - low, np.ptp(centred, axis=0)) * 1.1 + 1e-12
    zero = (own == 0).mean(axis=0) if rectified else np.zeros(own.shape[1])
    density = _densities(own, low, width, zero)
    least = centred.min(axis=0)
    room = np.maximum(width - np.ptp(centred, axis=0), 0.0)
    steps = (np.arange(_PLACES) + 0.5)[:, None] * (room / _PLACES)
    places = low - least + steps
    likely = sum(_at(density, (row + places - low) / width) for row in centred) - len(centred) * np.log(width)
    evidence = likely + np.log(np.maximum(room / _PLACES, 1e-300))
    # If the smallest records are 0, the others have the density of positive values.
    above = centred - least
    alike = above <= _SAME * width
    dense = np.array([_at(density, row / width) for row in above]) - np.log(width)
    atoms, same = np.log(np.maximum(zero, 1e-300)), np.log(_SAME * width)
    at_zero = np.where(alike, atoms - same, dense).sum(axis=0) + same
    logs = np.concatenate([evidence, at_zero[None]])
    shares = np.exp(logs - logs.max(axis=0))
    shares /= shares.sum(axis=0)
    values = np.concatenate([places, -least[None]])
    return np.asarray((shares * values).sum(axis=0))


def _densities(own: Matrix, low: Matrix, width: Matrix, zero: Matrix) -> Matrix:
    """Return log densities of the attacker's values without zeros, over the width, shape (bins, d)."""
    places = np.clip(((own - low) / width * _BINS).astype(np.int64), 0, _BINS - 1)
    counts = np.full((_BINS, own.shape[1]), 0.5)
    columns = np.broadcast_to(np.arange(own.shape[1]), own.shape)
    seen = (own != 0) | (zero == 0)
    np.add.at(counts, (places[seen], columns[seen]), 1.0)
    return np.asarray(np.log(counts / (len(own) + 0.5 * _BINS) * _BINS))


def _at(density: Matrix, share: Matrix) -> Matrix:
    """Look up densities at shares (..., d) of the width."""
    places = np.clip((share * _BINS).astype(np.int64), 0, _BINS - 1)
    return np.asarray(density[places, np.arange(density.shape[1])])
