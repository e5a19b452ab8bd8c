"""Exact nearest neighbours in Euclidean distance, in blocks.

A block of queries meets the whole gallery in one product of matrices, which yields a lower bound on every squared
distance |q|^2 + |g|^2 - 2 q.g, less the error bound n u |q| |g| of a float32 inner product of length n with unit
roundoff u (Higham 2002, section 3.1). Long vectors are first rotated on to the gallery's leading principal
directions, and of the rest of each only the norm r is kept. As q.g <= Pq.Pg + r r' by Cauchy-Schwarz, the bound
still holds, at a sixth of the work for images of 32x32x3. Distances are then measured by the difference itself,
which does not cancel for near pairs: first those of the k best bounds, then of every vector with a bound up to the
k-th measured distance. The result is therefore exact, and the lowest index comes first among equal distances.

On a CPU, with any instruction sets, 8-bit images are searched in whole numbers instead, by the same kind of bound:
`fedassay.similarity.nearest_pixels`.

Queries arrive block by block, so memory holds the gallery once in float32 (or in bytes) and one block, for any
number of queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedassay.similarity import nearest_pixels
from fedassay.similarity.precision import full_float32
from fedassay.support.devices import is_gpu, times_the_cpu

# On a GPU both are up to 32 times as many, by its memory.
BOUNDS = 2**23  # bounds in memory at a time: queries of a block times the gallery
MEASURED = 2**19  # numbers in the differences measured at a time; more would leave the cache
RANK = 512  # principal directions kept of vectors more than twice as long
SAMPLE = 1024  # gallery vectors that the principal directions are estimated from
GROUP = 32  # bounds represented by their minimum in the first selection
ROUNDOFF = 2.0**-24


class Neighbours(NamedTuple):
    """The nearest vectors of the gallery to each query, nearest first."""

    indices: NDArray[np.int64]
    """(n, k), positions in the gallery."""
    distances: NDArray[np.float64]
    """(n, k), Euclidean."""


class _Gallery(NamedTuple):
    centre: torch.Tensor  # (D,): all vectors are taken relative to it, since rounding grows with the norms
    vectors: torch.Tensor  # (M, D) float32
    directions: torch.Tensor | None  # (D, RANK), orthonormal, or None: no reduction
    reduced: torch.Tensor  # (M, RANK + 1) coordinates and remainder, or the vectors themselves
    squares: torch.Tensor  # (M,) squared norms
    largest: float  # the largest norm


def top_k_l2(
    queries: NDArray[Any],
    gallery: NDArray[Any],
    k: int,
    *,
    device: str | torch.device = "cpu",
    query_block: int = 1024,
) -> Neighbours:
    """The k vectors of the gallery nearest to each query.

    Args:
        queries: (N, ...) real; everything behind the first axis is one vector, taken in float32. Where both
            are uint8 and on a CPU, distances are exact and ordered so; else they are right to float32.
        gallery: (M, ...) real, M at least k, vectors of the same size.
        k: how many neighbours.
        device: where to compute.
        query_block: queries converted at a time.

    Returns:
        Neighbours: indices (N, k) and distances (N, k), nearest first; equal distances by rising index.

    Raises:
        ValueError: k out of range, vectors of different sizes, values that are not finite.
    """
    indices = np.empty((len(queries), k), dtype=np.int64)
    distances = np.empty((len(queries), k))
    blocks = (queries[start : start + query_block] for start in range(0, len(queries), query_block))
    done = 0
    for found in stream_top_k_l2(blocks, gallery, k, device=device):
        part = slice(done, done + len(found.indices))
        indices[part], distances[part] = found
        done = part.stop
    return Neighbours(indices, distances)


def stream_top_k_l2(
    query_blocks: Iterable[NDArray[Any]],
    gallery: NDArray[Any],
    k: int,
    *,
    device: str | torch.device = "cpu",
) -> Iterator[Neighbours]:
    """As `top_k_l2`, for queries that arrive in blocks: yields one `Neighbours` per block.

    Blocks of a few hundred to a few thousand queries use the processor best.
    """
    if not 1 <= k <= len(gallery):
        raise ValueError(f"k = {k}: between 1 and the {len(gallery)} vectors of the gallery")
    prepared: _Gallery | None = None
    pixels: nearest_pixels.PixelGallery | None = None
    for block in query_blocks:
        _check_sizes(block, gallery)
        if gallery.dtype == block.dtype == np.uint8 and nearest_pixels.is_suited(gallery, device):
            pixels = pixels or nearest_pixels.prepare(_rows(gallery))
            indices, squares = nearest_pixels.search(_rows(block), pixels, k)
            yield Neighbours(indices, np.sqrt(squares))
            continue
        with full_float32():
            prepared = prepared or _prepare(gallery, device)
        queries = _flat(block, "queries", device)
        step = max(1, BOUNDS * times_the_cpu(device) // len(gallery))
        with full_float32():
            parts = [_nearest(queries[start : start + step], prepared, k) for start in range(0, len(block), step)]
        yield Neighbours(
            np.concatenate([part.indices for part in parts] or [np.empty((0, k), np.int64)]),
            np.concatenate([part.distances for part in parts] or [np.empty((0, k))]),
        )


def _rows(vectors: NDArray[Any]) -> NDArray[Any]:
    """One vector a row, in order in memory."""
    return np.ascontiguousarray(vectors).reshape(len(vectors), math.prod(vectors.shape[1:]))


def _check_sizes(queries: NDArray[Any], gallery: NDArray[Any]) -> None:
    sizes = [math.prod(vectors.shape[1:]) for vectors in (queries, gallery)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"vectors differ in size: {sizes[0]} in queries, {sizes[1]} in the gallery")


def _flat(vectors: NDArray[Any], name: str, device: str | torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(_rows(vectors)).to(device).to(torch.float32)
    # NaN and infinity both show in the extremes, without an array of flags.
    if tensor.numel() and not all(bool(torch.isfinite(value)) for value in torch.aminmax(tensor)):
        raise ValueError(f"{name}: values that are not finite")
    return tensor


def _prepare(gallery: NDArray[Any], device: str | torch.device) -> _Gallery:
    vectors = _flat(gallery, "gallery", device)
    centre = vectors.mean(dim=0)
    vectors = vectors - centre
    squares = torch.linalg.vector_norm(vectors, dim=1).square_()
    directions = None
    if vectors.shape[1] > 2 * RANK and len(vectors) > 2 * RANK:
        sample = vectors[:: -(-len(vectors) // SAMPLE)]
        # Any orthonormal directions give a bound; the leading ones of a sample give a tight one.
        _, vectors_of_gram = torch.linalg.eigh(sample @ sample.T)
        directions, _ = torch.linalg.qr(sample.T @ vectors_of_gram[:, -RANK:])
    reduced = _reduce(vectors, squares, directions)
    return _Gallery(centre, vectors, directions, reduced, squares, float(squares.max().sqrt()))


def _reduce(vectors: torch.Tensor, squares: torch.Tensor, directions: torch.Tensor | None) -> torch.Tensor:
    """Coordinates along the directions and the norm of the rest, rounded up."""
    if directions is None:
        return vectors
    reduced = torch.empty((len(vectors), directions.shape[1] + 1), device=vectors.device)
    torch.mm(vectors, directions, out=reduced[:, :-1])
    rest = (squares - reduced[:, :-1].square().sum(dim=1)).clamp_(min=0)
    # Both terms of the difference carry rounding in proportion to the squared norm.
    reduced[:, -1] = (rest + 2 * vectors.shape[1] * ROUNDOFF * squares).sqrt_()
    return reduced


def _nearest(queries: torch.Tensor, gallery: _Gallery, k: int) -> Neighbours:
    """Answers one block of queries against the whole gallery."""
    queries = queries - gallery.centre
    count, size = queries.shape
    squares = torch.linalg.vector_norm(queries, dim=1).square_()
    reduced = _reduce(queries, squares, gallery.directions)
    # Half the squared distance less half of |q|^2, which orders a row like the distance does.
    bounds = torch.mm(reduced, gallery.reduced.T).neg_().add_(gallery.squares / 2)
    error = (2 * size + 16) * ROUNDOFF * (squares.sqrt() + gallery.largest) * gallery.largest
    limit = _kth_or_more(bounds, k) + 2 * error
    pairs = _pairs(bounds <= limit[:, None])
    measured = _measure(queries, pairs, gallery)
    column, distance = _best(pairs, measured, count, k)
    if gallery.directions is None:
        # Bounds are distances within the error, so nothing beyond the limit can be nearer.
        return Neighbours(column, distance)
    farthest = torch.from_numpy(distance[:, -1]).to(bounds) * (1 + 1e-5)
    reach = (farthest.square() - squares) / 2 + error
    more = _pairs((bounds <= reach[:, None]) & (bounds > limit[:, None]))
    pairs, measured = torch.cat([pairs, more]), torch.cat([measured, _measure(queries, more, gallery)])
    column, distance = _best(pairs, measured, count, k)
    return Neighbours(column, distance)


def _kth_or_more(bounds: torch.Tensor, k: int) -> torch.Tensor:
    """For each row a number that at least k of its entries do not exceed, and few more: (rows,)."""
    rows, columns = bounds.shape
    groups = columns // GROUP
    if groups < 2 * k:
        return bounds.kthvalue(k, dim=1).values
    # The k-th smallest of the groups' minima is such a number. Group j holds the columns j,
    # j + groups, ..., so that the minimum runs along contiguous memory.
    return bounds[:, : groups * GROUP].view(rows, GROUP, groups).amin(dim=1).kthvalue(k, dim=1).values


def _pairs(mask: torch.Tensor) -> torch.Tensor:
    """Rows and columns of the true entries, (pairs, 2), in order; on a CPU NumPy finds few among many faster."""
    if is_gpu(mask.device):
        return mask.nonzero()
    flat = torch.from_numpy(np.flatnonzero(mask.numpy()))
    return torch.stack([flat // mask.shape[1], flat % mask.shape[1]], dim=1)


def _measure(queries: torch.Tensor, pairs: torch.Tensor, gallery: _Gallery) -> torch.Tensor:
    """Distances of (query, gallery) pairs by the difference itself: (pairs,) float32."""
    distances = torch.empty(len(pairs), device=queries.device)
    step = max(1, MEASURED * times_the_cpu(queries.device) // queries.shape[1])
    theirs, ours = (torch.empty((step, queries.shape[1]), device=queries.device) for _ in range(2))
    for start in range(0, len(pairs), step):
        row, column = pairs[start : start + step].T
        left, right = ours[: len(row)], theirs[: len(row)]
        torch.index_select(queries, 0, row, out=left)
        torch.index_select(gallery.vectors, 0, column, out=right)
        torch.linalg.vector_norm(right.sub_(left), dim=1, out=distances[start : start + step])
    return distances


def _best(
    pairs: torch.Tensor, measured: torch.Tensor, count: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k nearest of each row: columns and distances, each (count, k)."""
    row, column = pairs.T.cpu().numpy()
    distance = measured.cpu().numpy().astype(np.float64)
    order = np.lexsort((column, distance, row))
    starts = np.searchsorted(row[order], np.arange(count))
    chosen = order[starts[:, None] + np.arange(k)]
    return column[chosen], distance[chosen]
