"""Initial clusters for expectation-maximisation: k-means++ and Lloyd, many groups at once.

Seeds are drawn from the matrix of squared distances (one matrix product per group). Lloyd's steps work on it too
where features are wider than half the number of records, so that their cost does not grow with the width; else on
the records. Groups with many records are seeded on a random subset; expectation-maximisation sees all records
afterwards.

Sources: Arthur and Vassilvitskii 2007, "k-means++: the advantages of careful seeding" (greedy
variant, several candidates a step, as scikit-learn does); Lloyd 1982.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

LLOYD_STEPS = 20


@dataclass(frozen=True)
class Draws:
    """All the randomness of one initialisation of one group.

    Attributes:
        subset: Indices of the records that seed the clusters, shape (m,), ascending.
        uniforms: In [0, 1), shape (components, candidates).
    """

    subset: NDArray[np.int64]
    uniforms: NDArray[np.float64]


def subset_size(records: int, components: int) -> int:
    """Return the number of records that seed the clusters."""
    return min(records, max(256, 32 * components))


def draw(generator: np.random.Generator, records: int, components: int) -> Draws:
    """Draw the random numbers of one initialisation; depends on sizes only, never on the records."""
    size = subset_size(records, components)
    subset = np.arange(records, dtype=np.int64)
    if size < records:
        subset = np.sort(generator.choice(records, size, replace=False))
    return Draws(subset, generator.random((components, 2 + int(math.log(components)))))


def initial_assignments(records: torch.Tensor, draws: Sequence[Draws]) -> torch.Tensor:
    """Hard assignments of records to clusters.

    Args:
        records: Shape (G, n, d): G groups of n records each.
        draws: One a group, all for the same number of components K <= n.

    Returns:
        One-hot assignments, shape (G, K, n), of the type of `records`. A cluster can be empty only
        where a group has fewer distinct records than K.
    """
    groups, size, _ = records.shape
    uniforms = torch.as_tensor(np.stack([d.uniforms for d in draws]), device=records.device, dtype=records.dtype)
    subsampled = draws[0].subset.size < size
    seeds = records
    if subsampled:
        index = torch.as_tensor(np.stack([d.subset for d in draws]), device=records.device)
        seeds = records[torch.arange(groups, device=records.device)[:, None], index]
    distances = _squared_distances(seeds)
    centres = _plus_plus(distances, uniforms)
    nearest = distances.gather(2, centres[:, None].expand(-1, distances.shape[1], -1)).argmin(2)
    clusters = uniforms.shape[1]
    nearest = _lloyd(seeds, distances, nearest, clusters)
    if subsampled:
        shares = _shares(nearest, clusters, records.dtype)
        means = torch.bmm(shares, seeds)
        empty = shares.sum(2) == 0
        away = (means * means).sum(2)[:, None] - 2 * torch.bmm(records, means.transpose(1, 2))
        nearest = away.masked_fill(empty[:, None], torch.inf).argmin(2)
    return _one_hot(nearest, clusters, records.dtype)


def _squared_distances(records: torch.Tensor) -> torch.Tensor:
    distances = torch.bmm(records, records.transpose(1, 2))
    norms = distances.diagonal(dim1=1, dim2=2).clone()
    distances.mul_(-2).add_(norms[:, :, None]).add_(norms[:, None, :]).clamp_min_(0)
    distances.diagonal(dim1=1, dim2=2).zero_()
    return distances


def _plus_plus(distances: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Greedy k-means++: of several candidates drawn by squared distance, keep the best. (G, K) indices."""
    groups, size, _ = distances.shape
    rows = torch.arange(groups, device=distances.device)
    first = (uniforms[:, 0, 0] * size).long().clamp_max_(size - 1)
    centres = [first]
    closest = distances[rows, first]
    for step in range(1, uniforms.shape[1]):
        cumulative = closest.cumsum(1)
        aim = uniforms[:, step] * cumulative[:, -1:]
        candidates = torch.searchsorted(cumulative, aim, right=True).clamp_max_(size - 1)
        reduced = torch.minimum(closest[:, None, :], distances[rows[:, None], candidates])
        best = reduced.sum(2).argmin(1)
        centres.append(candidates[rows, best])
        closest = reduced[rows, best]
    return torch.stack(centres, 1)


def _lloyd(records: torch.Tensor, distances: torch.Tensor, nearest: torch.Tensor, clusters: int) -> torch.Tensor:
    """Take Lloyd's steps, on the records or in distance space, depending on which is less work.

    In distance space |x - mean|^2 = mean distance to members - half their mean pair distance.

    A group with a settled assignment is at a fixed point, so further steps for the sake of other groups in the
    batch do not change it.
    """
    for _ in range(LLOYD_STEPS):
        shares = _shares(nearest, clusters, distances.dtype)
        # Clusters last: a minimum along the last axis is several times faster.
        if 2 * records.shape[2] < records.shape[1]:
            means = torch.bmm(shares, records)
            away = torch.bmm(records, means.transpose(1, 2)).mul_(-2)
            away += means.square().sum(2)[:, None]
        else:
            away = torch.bmm(distances, shares.transpose(1, 2))
            away -= (shares.transpose(1, 2) * away).sum(1, keepdim=True) / 2
        away.masked_fill_((shares.sum(2) == 0)[:, None], torch.inf)
        moved = away.argmin(2)
        if torch.equal(moved, nearest):
            break
        nearest = moved
    return nearest


def _shares(nearest: torch.Tensor, clusters: int, kind: torch.dtype) -> torch.Tensor:
    assigned = _one_hot(nearest, clusters, kind)
    return assigned / assigned.sum(2, keepdim=True).clamp_min(1)


def _one_hot(nearest: torch.Tensor, clusters: int, kind: torch.dtype) -> torch.Tensor:
    return (nearest[:, None, :] == torch.arange(clusters, device=nearest.device)[None, :, None]).to(kind)
