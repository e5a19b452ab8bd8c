"""Exact nearest neighbours by SSIM, and the SSIM of all pairs.

The search compares a block of queries with a block of the gallery. It bounds the SSIM of every pair in the block
from above (`fedassay.similarity.ssim_bound`) and evaluates the pairs with the highest bounds exactly (float64, the
same function as `fedassay.similarity.ssim.ssim`). Then it evaluates every other pair with a bound that reaches the
k-th best value so far. The result is therefore that of a double loop over `ssim`, ties included: among equal
values the lowest index wins. Where the bound rules out too little (noise, say, has no low frequencies to speak
of), it goes on with all frequencies, which makes the bound the SSIM itself. Memory depends on the block sizes, not
on the number of images.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedassay.similarity.images import check_images, check_same_size
from fedassay.similarity.parallel import parallel_map
from fedassay.similarity.ssim import Moments, join_moments, ssim_of_moments, window_side
from fedassay.similarity.ssim_bound import FLOAT32_ERROR, bound_block, largest_block, prepare_block
from fedassay.support.devices import is_gpu, times_the_cpu
from fedassay.support.progress import Advance, no_progress

QUERY_BLOCK = 1024
GALLERY_BLOCK = 2048
EXACT_BATCH = 64  # pairs that one thread evaluates in float64 at a time; a GPU more, by its memory
PRUNING_DEGREE = 5  # DCT frequencies kept in the bound: 20 of 48 coordinates for a 7x7 window
MOST_SURVIVORS = 0.1  # share of pairs left after pruning above which the exact product is cheaper


class Matches(NamedTuple):
    """Best matches of each query, best first."""

    indices: NDArray[np.int64]
    """(n,) or (n, k), positions in the gallery."""
    values: NDArray[np.float64]
    """Same shape, their SSIM."""


def most_similar(
    queries: NDArray[Any],
    gallery: NDArray[Any],
    *,
    exclude_self: bool = False,
    device: str | torch.device = "cpu",
    progress: Advance = no_progress,
) -> Matches:
    """The image of the gallery with the highest SSIM to each query.

    Args:
        queries: (N, H, W) or (N, H, W, C), uint8 or float in [0, 1].
        gallery: (M, H, W) or (M, H, W, C), the same image size.
        exclude_self: the two are the same images in the same order, and no image may match itself.
        device: where to compute.
        progress: called with (pairs settled, pairs in all).

    Returns:
        Matches: indices (N,) and values (N,). Equal values: the lowest index.

    Raises:
        ValueError: as `top_k`.
    """
    found = top_k(queries, gallery, 1, exclude_self=exclude_self, device=device, progress=progress)
    return Matches(found.indices[:, 0], found.values[:, 0])


def top_k(
    queries: NDArray[Any],
    gallery: NDArray[Any],
    k: int,
    *,
    exclude_self: bool = False,
    device: str | torch.device = "cpu",
    query_block: int = QUERY_BLOCK,
    gallery_block: int = GALLERY_BLOCK,
    progress: Advance = no_progress,
) -> Matches:
    """The k images of the gallery with the highest SSIM to each query, best first.

    Args:
        queries: (N, H, W) or (N, H, W, C), uint8 or float in [0, 1].
        gallery: (M, H, W) or (M, H, W, C), the same image size.
        k: how many matches per query.
        exclude_self: the two are the same images in the same order, and no image may match itself.
        device: where to compute.
        query_block: queries in memory at a time; up to 8 times as many on a GPU.
        gallery_block: gallery images in memory at a time; likewise.
        progress: called with (pairs settled, pairs in all).

    Returns:
        Matches: indices (N, k) and values (N, k). Equal values: the lowest index first.

    Raises:
        ValueError: images of another type, range or size; fewer than k candidates; `exclude_self`
            with different numbers of images.
    """
    queries, gallery = check_images(queries, "queries"), check_images(gallery, "gallery")
    check_same_size(queries, gallery)
    if exclude_self and len(queries) != len(gallery):
        raise ValueError(
            f"exclude_self compares a set with itself: {len(queries)} queries, {len(gallery)} in the gallery"
        )
    candidates = len(gallery) - int(exclude_self)
    if not 1 <= k <= candidates:
        raise ValueError(f"k = {k}: between 1 and the {candidates} candidates of the gallery")
    side = window_side(queries.shape[1], queries.shape[2])
    largest, times = largest_block(queries.shape[1:], side, PRUNING_DEGREE, device), times_the_cpu(device, 8)
    query_block, gallery_block = min(query_block * times, largest), min(gallery_block * times, largest)
    degree: int | None = PRUNING_DEGREE
    indices = np.empty((len(queries), k), dtype=np.int64)
    values = np.empty((len(queries), k))
    settled, pairs = 0, len(queries) * len(gallery)
    for start in range(0, len(queries), query_block):
        left = prepare_block(queries[start : start + query_block], side, degree, device)
        x = join_moments([part for part, _ in left])
        best = Matches(np.full((len(x.mean), k), -1), np.full((len(x.mean), k), -np.inf))
        for first in range(0, len(gallery), gallery_block):
            y, bounds = bound_block(left, gallery[first : first + gallery_block], side, degree, device)
            if exclude_self:
                own = np.arange(start, start + len(bounds)) - first
                inside = (own >= 0) & (own < bounds.shape[1])
                row, column = (torch.from_numpy(each) for each in (np.flatnonzero(inside), own[inside]))
                bounds[row.to(bounds.device), column.to(bounds.device)] = -torch.inf
            best, survivors = _settle(bounds, x, y, best, side=side, offset=first)
            if degree is not None and survivors > MOST_SURVIVORS * bounds.numel() + k * len(bounds):
                degree = None
                left = prepare_block(queries[start : start + query_block], side, degree, device)
            settled += bounds.numel()
            progress(settled, pairs)
        indices[start : start + query_block], values[start : start + query_block] = best
    return Matches(indices, values)


def _settle(
    bounds: torch.Tensor, x: Moments, y: Moments, best: Matches, *, side: int, offset: int
) -> tuple[Matches, int]:
    """Evaluates every pair of a block that may be among the k best.

    Returns:
        The matches with this block taken into account, and how many pairs were evaluated.
    """
    k = min(best.values.shape[1], bounds.shape[1])
    bounds += FLOAT32_ERROR
    # The likeliest first, so that the k-th best value is high before the rest is looked at.
    likely = torch.zeros(bounds.shape, dtype=torch.bool, device=bounds.device)
    likely.scatter_(1, _highest(bounds, k), value=True)
    evaluated = 0
    for candidates in (likely, ~likely):
        least = torch.from_numpy(best.values[:, -1:]).to(bounds.device)
        query, index = _places(candidates & (bounds >= least) & torch.isfinite(bounds))
        best = _merge(best, query, index + offset, _evaluate(x, y, query, index, side))
        evaluated += len(query)
    return best, evaluated


def _highest(bounds: torch.Tensor, k: int) -> torch.Tensor:
    """Columns of k highest entries of each row, (rows, k), on the device; NumPy finds them faster on a CPU."""
    if is_gpu(bounds.device):
        return bounds.topk(k, dim=1, sorted=False).indices
    return torch.from_numpy(np.argpartition(-bounds.numpy(), k - 1, axis=1)[:, :k])


def _places(mask: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of the true entries, in order, on the host."""
    if is_gpu(mask.device):
        row, column = mask.nonzero().T.cpu().numpy()
        return row, column
    row, column = np.nonzero(mask.numpy())
    return row, column


def _merge(
    best: Matches, query: NDArray[np.int64], index: NDArray[np.int64], value: NDArray[np.float64]
) -> Matches:
    """The k best of each query by falling value, then rising index, after some more pairs."""
    count, k = best.indices.shape
    all_query = np.concatenate([np.repeat(np.arange(count), k), query])
    all_index = np.concatenate([best.indices.ravel(), index])
    all_value = np.concatenate([best.values.ravel(), value])
    order = np.lexsort((all_index, -all_value, all_query))
    starts = np.searchsorted(all_query[order], np.arange(count))
    keep = order[starts[:, None] + np.arange(k)]
    return Matches(all_index[keep], all_value[keep])


def _evaluate(
    x: Moments, y: Moments, query: NDArray[np.int64], index: NDArray[np.int64], side: int
) -> NDArray[np.float64]:
    """SSIM of some pairs: (pairs,)."""
    device = x.mean.device
    batch = EXACT_BATCH * times_the_cpu(device)

    def evaluate(start: int) -> NDArray[np.float64]:
        part = slice(start, start + batch)
        left = x.select(torch.from_numpy(query[part]).to(device))
        right = y.select(torch.from_numpy(index[part]).to(device))
        return ssim_of_moments(left, right, side).cpu().numpy()

    values = parallel_map(evaluate, range(0, len(query), batch), device)
    return np.concatenate([np.empty(0), *values])


def ssim_matrix(x: NDArray[Any], y: NDArray[Any], *, device: str | torch.device = "cpu") -> NDArray[np.float32]:
    """SSIM of all pairs: (N, M), float32, within 1e-5 of `ssim`.

    For matrices that fit in memory; `most_similar` and `top_k` need none.

    Args:
        x: (N, H, W) or (N, H, W, C), uint8 or float in [0, 1].
        y: (M, H, W) or (M, H, W, C), the same image size.
        device: where to compute.

    Raises:
        ValueError: images of another type, range or size.
    """
    x, y = check_images(x, "x"), check_images(y, "y")
    check_same_size(x, y)
    side = window_side(x.shape[1], x.shape[2])
    largest = largest_block(x.shape[1:], side, None, device)
    rows, columns = min(QUERY_BLOCK, largest), min(GALLERY_BLOCK, largest)
    matrix = np.empty((len(x), len(y)), dtype=np.float32)
    for start in range(0, len(x), rows):
        left = prepare_block(x[start : start + rows], side, None, device)
        for first in range(0, len(y), columns):
            _, bounds = bound_block(left, y[first : first + columns], side, None, device)
            matrix[start : start + rows, first : first + columns] = bounds.cpu().numpy()
    return matrix
