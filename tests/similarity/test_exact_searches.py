"""Every pruned search returns the lists of brute force: ten thousand random and adversarial queries each.

Ties, duplicates, constants, scaled copies, denormal numbers, and images at both ends of the range. The search of
8-bit images is in `test_nearest_pixels`.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.similarity import nearest
from fedassay.similarity.nearest import top_k_l2
from fedassay.similarity.ssim import ssim
from fedassay.similarity.ssim_search import top_k

Array = NDArray[np.float64]


def vectors(number: int, width: int, rng: np.random.Generator) -> Array:
    """Correlated ones, with copies of some, multiples of them, constants, corners and numbers next to zero."""
    mixing = rng.normal(size=(12, width))
    base = rng.normal(size=(number, 12)) @ mixing + rng.normal(0, 0.3, (number, width))
    eighth = number // 8
    base[eighth : 2 * eighth] = base[:eighth]
    base[2 * eighth : 3 * eighth] = base[:eighth] * rng.choice([1e-3, 0.5, 2.0, 1 + 1e-6], (eighth, 1))
    base[3 * eighth : 4 * eighth] = rng.integers(-2, 3, (eighth, 1))
    base[4 * eighth : 5 * eighth] = rng.choice([0.0, 1e-42, 1e-39, 1e-30, -1e-20], (eighth, width))
    base[5 * eighth : 6 * eighth] = rng.choice([-1.0, 1.0], (eighth, width))
    return base.astype(np.float32).astype(np.float64)


def check_distances(queries: Array, gallery: Array, k: int, scale: float) -> None:
    """The k smallest distances, each that of the index beside it; `scale` is what float32 rounds."""
    found = top_k_l2(queries, gallery, k)
    for start in range(0, len(queries), 500):
        part = slice(start, start + 500)
        x = queries[part]
        squares = (x**2).sum(axis=1)[:, None] + (gallery**2).sum(axis=1)[None] - 2 * x @ gallery.T
        # Near pairs cancel in float64 as well.
        for row, column in np.argwhere(squares < 1e-4 * scale**2):
            squares[row, column] = ((x[row] - gallery[column]) ** 2).sum()
        distances = np.sqrt(np.maximum(squares, 0))
        expected = np.sort(distances, axis=1)[:, :k]
        of_indices = np.take_along_axis(distances, found.indices[part], axis=1)
        for given in (found.distances[part], of_indices):
            np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6 * scale)
        assert all(len(set(row)) == k for row in found.indices[part].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 1100])
def test_ten_thousand_vectors(width: int) -> None:
    rng = np.random.default_rng(width)
    assert (width > 2 * nearest.RANK) == (width == 1100)  # only these are reduced
    gallery = vectors(1200, width, rng)
    queries = np.concatenate(
        [vectors(7000, width, rng), gallery, gallery[:900] * (1 + 1e-6), gallery[:900] + 1e-6]
    )
    assert len(queries) >= 10_000
    check_distances(queries, gallery, 10, np.sqrt(width) * float(np.abs(gallery).max()))


@pytest.mark.parametrize("scale", [1e-30, 1e-19, 1e18])
def test_vectors_whose_squares_leave_float32(scale: float) -> None:
    rng = np.random.default_rng(5)
    gallery, queries = rng.normal(size=(200, 30)) * scale, rng.normal(size=(20, 30)) * scale
    check_distances(queries.astype(np.float32), gallery.astype(np.float32), 5, 10 * scale)


def images(number: int, side: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Smooth ones on [0, 1], copies, contrasts, constants, corners, numbers next to zero, and noise."""
    at = np.linspace(0, np.pi, side)
    waves = np.einsum("ui,vj->uvij", *(np.cos(np.arange(4)[:, None] * at),) * 2).reshape(16, side, side)
    base = 0.5 + 0.2 * np.einsum("nk,kij->nij", rng.normal(size=(number, 16)) / (1 + np.arange(16)), waves)
    eighth = number // 8
    base[eighth : 2 * eighth] = base[:eighth]
    base[2 * eighth : 3 * eighth] = 0.5 + (base[:eighth] - 0.5) * rng.choice([1e-3, 0.5, 1.5], (eighth, 1, 1))
    base[3 * eighth : 4 * eighth] = rng.choice([0.0, 0.25, 1.0], (eighth, 1, 1))
    base[4 * eighth : 5 * eighth] = rng.choice([0.0, 1e-42, 1e-39, 1e-30], (eighth, side, side))
    base[5 * eighth : 6 * eighth] = rng.integers(0, 2, (eighth, side, side))
    base[6 * eighth : 7 * eighth] = rng.random((eighth, side, side))
    return np.clip(base, 0, 1).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float", "bytes"])
def test_ten_thousand_images_by_ssim(kind: str) -> None:
    rng = np.random.default_rng(7)
    gallery, queries = images(64, 12, rng), images(10_000, 12, rng)
    queries[-64:] = gallery
    if kind == "bytes":
        gallery, queries = (np.rint(255 * each).astype(np.uint8) for each in (gallery, queries))
    found = top_k(queries, gallery, 4)
    every = np.stack([ssim(queries, np.broadcast_to(one, queries.shape)) for one in gallery], axis=1)
    order = np.argsort(-every, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_array_equal(found.values, np.take_along_axis(every, order, axis=1))
