"""Exact nearest neighbours of 8-bit images in Euclidean distance, in whole numbers.

Pixels less 128 are signed bytes. Processors with VNNI instructions compute their inner products four times as fast
as those of float32, and without rounding. Other processors use products in float32, which holds every sum of 1,024
of them: longer images are taken in parts. (Without VNNI, products of bytes would be added up in 16 bits, and
saturate.) Every distance measured here is therefore exact, equal distances are ordered by index, and the lists are
those of a brute-force search, for all pixels and processors.

Few distances have to be measured. Images are reduced to coordinates a along R orthonormal directions near the
gallery's leading principal ones, rounded to bfloat16 where the processor multiplies it, else to float32. Let b be
the rounded coordinates, d = a - b the rounding, and e the image less its rounded part (all relative to a centre).
Then

    q.g = b.b' + b.d' + d.b' + e.e' <= b.b' + |b| |d'| + |d| |b'| + |e| |e'|

by Cauchy-Schwarz, and the right side is one product of R + 3 columns. Three more subtract |g|^2 / 2, so that the
product is an upper bound on (|q|^2 - distance^2) / 2, rounded monotonically. The k best bounds are measured first,
then every image with a bound that reaches the k-th measured distance.

Directions are orthonormal to rounding in float64: the principal ones are rounded to bytes, so that projections are
products of bytes, too, and the inverse Cholesky factor of their Gram matrix makes them orthonormal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedassay.similarity.parallel import parallel_map
from fedassay.similarity.precision import full_float32
from fedassay.support.processor import instruction_sets

RANK = 250  # directions; with the six further columns a product of 256
SAMPLE = 512  # gallery images that give the first principal directions
REFINED = 4096  # gallery images that improve them by one step of subspace iteration
BOUNDS = 2**23  # bounds that a thread holds at a time
ROWS = 512  # queries that a thread answers at a time
GROUP = 32  # bounds represented by their maximum in the first selection
LONGEST = 2**15  # values of a vector: squared distances stay under 2^31
EXACT = 1024  # products of two bytes, of at most 2^14, with a sum that float32 holds: up to 2^24
TOGETHER = 512  # gallery images gathered at a time
_WIDTH = 64
_INDEX_BITS = 31
_NOWHERE = np.iinfo(np.int64).max


@cache
def _multiplies_bytes() -> bool:
    """Whether the processor multiplies bytes fast, and this torch does so without rounding.

    The product of the extremes is tested, because a library restricted to older instruction sets
    (ONEDNN_MAX_CPU_ISA) adds pairs of products up in 16 bits, which hold no more than 32,767.
    """
    if "vnni" not in instruction_sets() or not hasattr(torch, "_int_mm"):
        return False
    extremes = torch.tensor([-128, 127], dtype=torch.int8).repeat(32)[:, None].repeat(1, 256)
    exact = extremes.double() @ extremes.double().T
    return torch.equal(torch._int_mm(extremes, extremes.T.contiguous()).double(), exact)


def is_suited(gallery: NDArray[Any], device: str | torch.device) -> bool:
    """Whether a search of this gallery on this device is one for this file."""
    return 0 < math.prod(gallery.shape[1:]) <= LONGEST and torch.device(device).type == "cpu"


@cache
def _coordinate_type() -> torch.dtype:
    return torch.bfloat16 if "bf16" in instruction_sets() else torch.float32


@dataclass(frozen=True)
class PixelGallery:
    """A gallery made ready.

    Attributes:
        values: Pixels less 128, (M, D) int8.
        squares: Their squared norms, (M,) int64.
        directions: (D, R + 1) int8, the directions before they are made orthonormal, and the centre.
        against_centre: Products of the directions with the centre, (R + 1,) float64.
        orthonormal: (R, R) float64; products with the directions times it are coordinates.
        columns: (M, R + 6), the gallery's side of the product that bounds.
        largest: The largest distance of an image from the centre.
    """

    values: Tensor
    squares: Tensor
    directions: Tensor
    against_centre: Tensor
    orthonormal: Tensor
    columns: Tensor
    largest: float


def prepare(gallery: NDArray[np.uint8]) -> PixelGallery:
    """Makes a gallery (M, D) ready for `search`."""
    with full_float32():
        return _prepare(signed(gallery))


def _prepare(values: Tensor) -> PixelGallery:
    squares = _squares(values)
    directions = _directions(values)
    gram = _products(directions.T.contiguous(), directions).double()
    lower = torch.linalg.cholesky(gram[:-1, :-1])
    orthonormal = torch.linalg.solve_triangular(lower, torch.eye(len(lower), dtype=torch.float64), upper=False).T
    parts = [
        _coordinates(
            values[start : start + 4096], squares[start : start + 4096], directions, gram[-1], orthonormal
        )
        for start in range(0, len(values), 4096)
    ]
    columns = torch.cat([_gallery_side(*part) for part in parts])
    largest = max(float(part[0].max()) for part in parts) ** 0.5
    return PixelGallery(values, squares, directions, gram[-1], orthonormal.contiguous(), columns, largest)


def search(
    queries: NDArray[np.uint8], gallery: PixelGallery, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The k images of the gallery nearest to each query, nearest first.

    Args:
        queries: (N, D).
        gallery: Gallery of the same D.
        k: At most the images of the gallery.

    Returns:
        Indices and squared distances, each (N, k); equal distances by rising index.
    """
    values = signed(queries)

    def part(start: int) -> NDArray[np.int64]:
        return _search_some(values[start : start + ROWS], gallery, k)

    with full_float32():
        keys = parallel_map(part, range(0, len(values), ROWS), device="cpu")
    found = np.concatenate([np.empty((0, k), np.int64), *keys])
    return found & ((1 << _INDEX_BITS) - 1), found >> _INDEX_BITS


def signed(pixels: NDArray[np.uint8]) -> Tensor:
    """Pixels less 128, as int8: their bytes with the highest bit turned over. Zeros fill the last block of 64."""
    values = np.bitwise_xor(pixels, np.uint8(128)).view(np.int8)
    fill = -values.shape[1] % _WIDTH
    return torch.from_numpy(np.pad(values, ((0, 0), (0, fill))) if fill else values)


def _products(left: Tensor, right: Tensor) -> Tensor:
    """Products of rows (n, D) and columns (D, m) of bytes: (n, m) int32, exact."""
    if _multiplies_bytes():
        return torch._int_mm(left, right)
    total = torch.zeros((len(left), right.shape[1]), dtype=torch.int32)
    for start in range(0, left.shape[1], EXACT):
        part = slice(start, start + EXACT)
        total += torch.mm(left[:, part].float(), right[part].float()).int()
    return total


def _against_one(query: Tensor, theirs: Tensor) -> Tensor:
    """Products of one image (D,) of bytes with others (n, D), bytes in float32: (n,) int32, exact."""
    floats, starts = query.float(), range(0, len(query), EXACT)
    parts = torch.empty((len(starts), len(theirs)))
    for number, start in enumerate(starts):
        part = slice(start, start + EXACT)
        torch.mv(theirs[:, part], floats[part], out=parts[number])
    return parts.sum(dim=0, dtype=torch.int32)


def _squares(values: Tensor) -> Tensor:
    """Squared norms, exact: sums of up to 1,024 squares of bytes are whole numbers that float32 holds."""
    width = math.gcd(values.shape[1], 1024)
    squares = torch.empty(len(values), dtype=torch.int64)
    for start in range(0, len(values), 256):
        rows = values[start : start + 256]
        sums = rows.float().view(-1, width).square_().sum(dim=1)
        squares[start : start + 256] = sums.view(len(rows), -1).long().sum(dim=1)
    return squares


def _directions(values: Tensor) -> Tensor:
    """Bytes near the gallery's leading principal directions, and its centre as the last column."""
    rank = min(RANK, values.shape[1])
    few = values[:: -(-len(values) // SAMPLE)].float()
    centre = few.mean(dim=0).round()
    few -= centre
    # Fewer images than directions: any other directions complete them.
    basis = torch.randn((values.shape[1], rank), generator=torch.Generator().manual_seed(0))
    _, vectors = torch.linalg.eigh(few @ few.T)
    known = min(rank, len(few))
    basis[:, :known] = basis[:, :known] * 1e-3 + few.T @ vectors[:, -known:].flip(1)
    basis = torch.nn.functional.normalize(basis, dim=0)
    kind = _coordinate_type()
    some = values[:: -(-len(values) // REFINED)].to(kind) - centre.to(kind)
    improved = (some.T @ (some @ basis.to(kind))).float()
    scale = float(improved.abs().max())
    improved, _ = torch.linalg.qr(improved + 1e-6 * max(scale, 1.0) * basis)
    scaled = improved * (127 / improved.abs().amax(dim=0))
    return torch.cat([scaled, centre[:, None]], dim=1).round().to(torch.int8)


def _coordinates(
    values: Tensor, squares: Tensor, directions: Tensor, against_centre: Tensor, orthonormal: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Squared norms, rounded coordinates, and norms of rounding and rest, of images relative to the centre."""
    products = _products(values, directions).double()
    centred = products[:, :-1] - against_centre[:-1]
    exact = centred @ orthonormal
    squared = squares - 2 * products[:, -1] + against_centre[-1]
    rounded = exact.to(_coordinate_type())
    rounding = torch.linalg.vector_norm(exact - rounded, dim=1)
    # The rounding error of float64 is a share of 1e-13 of the squared norm.
    rest = (squared - exact.square().sum(dim=1) + rounding.square()).clamp_(min=0) + 1e-9 * squared
    return squared, rounded, rounding, rest.sqrt_()


def _up(numbers: Tensor) -> Tensor:
    """Rounded to the type of the coordinates, and not below."""
    return (numbers * (1 + 2.0**-7)).to(_coordinate_type())


def _gallery_side(squared: Tensor, rounded: Tensor, rounding: Tensor, rest: Tensor) -> Tensor:
    size = torch.linalg.vector_norm(rounded.double(), dim=1)
    columns = [_up(rounding), _up(size), _up(rest)]
    left = squared / -2
    for _ in range(3):
        columns.append(left.to(_coordinate_type()))
        left = left - columns[-1]
    return torch.cat([rounded, torch.stack(columns, dim=1)], dim=1)


def _query_side(rounded: Tensor, rounding: Tensor, rest: Tensor) -> Tensor:
    size = torch.linalg.vector_norm(rounded.double(), dim=1)
    ones = torch.ones((len(rounded), 3), dtype=rounded.dtype)
    return torch.cat([rounded, torch.stack([_up(size), _up(rounding), _up(rest)], dim=1), ones], dim=1)


def _search_some(values: Tensor, gallery: PixelGallery, k: int) -> NDArray[np.int64]:
    """Keys of the k nearest, (n, k), rising: the squared distance, then the index in the lowest bits."""
    squares = _squares(values)
    squared, *parts = _coordinates(
        values, squares, gallery.directions, gallery.against_centre, gallery.orthonormal
    )
    columns = _query_side(*parts)
    # Rounding of the sum in float32, with room; distances are whole numbers, so a quarter more costs nothing.
    slack = 0.25 + (columns.shape[1] + 16) * 2.0**-22 * gallery.largest * (squared.sqrt() + gallery.largest)
    best = np.full((len(values), k), _NOWHERE)
    span = max(BOUNDS // ROWS, GROUP * 2 * k)
    for first in range(0, len(gallery.values), span):
        bounds = _ordered(columns @ gallery.columns[first : first + span].T)
        likely = None
        if first == 0:  # no distance is known yet
            likely = bounds >= _kth_or_less(bounds, min(k, bounds.shape[1]))[:, None]
            _measure(values, squares, _places(likely), first, gallery, best)
        farthest = torch.from_numpy(np.where(best[:, -1] == _NOWHERE, np.inf, best[:, -1] >> _INDEX_BITS))
        limit = _ordered(((squared - farthest) / 2 - slack).to(columns.dtype))
        limit = np.where(limit == 0, _ordered(torch.tensor(-0.0).to(columns.dtype)), limit)  # the lesser zero
        reached = bounds >= limit[:, None]
        if likely is not None:
            reached &= ~likely
        _measure(values, squares, _places(reached), first, gallery, best)
    return best


def _ordered(numbers: Tensor) -> NDArray[Any]:
    """Numbers that are compared as these are: bfloat16 as its bits, which NumPy compares twenty times faster."""
    if numbers.dtype != torch.bfloat16:
        return numbers.numpy()
    bits: NDArray[np.int16] = numbers.view(torch.int16).numpy()
    # The bits of negative numbers fall with their size, those behind the sign turned over.
    ordered: NDArray[np.int16] = bits ^ ((bits >> 15) & 0x7FFF)
    return ordered


def _kth_or_less(bounds: NDArray[Any], k: int) -> NDArray[Any]:
    """For each row a number that at least k of its entries reach, and few more: (rows,)."""
    rows, columns = bounds.shape
    groups = columns // GROUP // 64 * 64
    if groups >= 2 * k:
        each = columns // groups
        bounds = bounds[:, : groups * each].reshape(rows, each, groups).max(axis=1)
    return np.partition(bounds, bounds.shape[1] - k, axis=1)[:, -k]


def _places(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of true entries: the first of each row (rows + 1,), and the columns, row by row."""
    flags = mask.reshape(-1)
    whole = len(flags) // 8 * 8
    # Eight entries at a time, since most are false.
    some = np.flatnonzero(flags[:whole].view(np.uint64))
    inside = np.flatnonzero(flags[:whole].reshape(-1, 8)[some].reshape(-1))
    flat = np.concatenate([some[inside >> 3] * 8 + (inside & 7), np.flatnonzero(flags[whole:]) + whole])
    ends = np.searchsorted(flat, np.arange(len(mask) + 1) * mask.shape[1])
    return ends, flat - np.repeat(np.arange(len(mask)) * mask.shape[1], np.diff(ends))


def _measure(
    values: Tensor,
    squares: Tensor,
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    first: int,
    gallery: PixelGallery,
    best: NDArray[np.int64],
) -> None:
    """Measures pairs of queries and images of the gallery from `first` on, and keeps the best in `best`."""
    ends, column = places[0].tolist(), places[1] + first
    index, k = torch.from_numpy(column), best.shape[1]
    products = torch.empty(len(column), dtype=torch.int32)
    gathered = torch.empty((TOGETHER, values.shape[1]), dtype=torch.int8)
    in_floats = None if _multiplies_bytes() else torch.empty(gathered.shape)
    for query, (start, end) in enumerate(pairwise(ends)):
        for at in range(start, end, TOGETHER):
            until = min(at + TOGETHER, end)
            theirs = gathered[: until - at]
            torch.index_select(gallery.values, 0, index[at:until], out=theirs)
            if in_floats is None:
                torch._int_mm(values[query : query + 1], theirs.T, out=products[None, at:until])
            else:
                products[at:until] = _against_one(values[query], in_floats[: until - at].copy_(theirs))
    own = np.repeat(squares.numpy(), np.diff(places[0]))
    distance = gallery.squares.numpy()[column] + own - 2 * products.numpy().astype(np.int64)
    keys = (distance << _INDEX_BITS) + column
    for query, (start, end) in enumerate(pairwise(ends)):
        if end > start:
            both = np.concatenate([best[query], keys[start:end]])
            both.sort()
            best[query] = both[:k]
