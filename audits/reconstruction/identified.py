"""Pair recovered vectors with the records that they are features of: a join of the audit, not of the adversary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedassay.contracts.attack import Reconstruction
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, between
from fedassay.exchange.transcript import AGGREGATE
from fedassay.support.types import Floats, Ints

TOLERANCE = 0.01
"""Largest relative error at which a vector is taken for a record's feature."""


def identified(reconstruction: Reconstruction, clients: Sequence[Records], least: int) -> Reconstruction:
    """Pair recovered vectors with the records that they are the features of.

    An image made from a single record's recovered feature can be held against that record, like one made from a
    raw feature; matching whole sets would hide its record. Each record keeps its closest vector; vectors that are
    no record's feature are left out.

    Args:
        reconstruction: Any attack's; raw features, which belong to a record each, and sources between several
            records are returned as they are.
        clients: The private records.
        least: Fewer identified vectors than this, or less than half of them, and it stays a set.
    """
    source = reconstruction.source
    if (
        source.paired
        or between(source.name)
        or source.name == "raw"
        or source.vectors.ndim != 2
        or not len(source.vectors)
    ):
        return reconstruction
    owner = np.concatenate([np.full(len(client), i) for i, client in enumerate(clients)])
    row = np.concatenate([np.arange(len(client)) for client in clients])
    features = np.concatenate([client.features for client in clients]).astype(np.float64)
    if features.shape[1] != source.vectors.shape[1]:
        return reconstruction
    best, error = _closest(source, features, owner, [client.name for client in clients])
    kept = np.flatnonzero(error <= TOLERANCE)
    kept = kept[np.argsort(error[kept], kind="stable")]
    kept = np.sort(kept[np.unique(best[kept], return_index=True)[1]])
    if len(kept) < max(least, len(source.vectors) / 2):
        return reconstruction
    records = best[kept]
    senders = tuple(clients[int(i)].name for i in owner[records])
    paired = replace(source.take(kept), senders=senders, rows=row[records].astype(np.int64))
    return Reconstruction(paired, reconstruction.images[kept])


def _closest(
    source: VectorSource, features: Floats, owner: Ints, names: Sequence[str]
) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """The record of its sender that each vector is closest to, and the relative error."""
    vectors = source.vectors.astype(np.float64)
    squares = (vectors**2).sum(axis=1)[:, None] + (features**2).sum(axis=1) - 2 * vectors @ features.T
    senders = np.array([-1 if name == AGGREGATE else _place(names, name) for name in source.senders])
    squares[(senders[:, None] >= 0) & (senders[:, None] != owner)] = np.inf
    best = squares.argmin(axis=1)
    lengths = np.maximum(np.linalg.norm(features[best], axis=1), 1e-12)
    # Expanding the square loses digits: the distance of the pairs is taken anew.
    distance = np.linalg.norm(vectors - features[best], axis=1)
    distance[np.isinf(squares[np.arange(len(best)), best])] = np.inf
    return best, distance / lengths


def _place(names: Sequence[str], name: str) -> int:
    """A sender's number; one that is no client matches no record."""
    return names.index(name) if name in names else len(names)
