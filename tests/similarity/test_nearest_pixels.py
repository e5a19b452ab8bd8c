"""The search of 8-bit images, against brute force in whole numbers: the same lists, ties included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedassay.similarity import nearest, nearest_pixels
from fedassay.similarity.nearest import top_k_l2

Pixels = NDArray[np.uint8]
Lists = tuple[NDArray[np.int64], NDArray[np.int64]]


def brute(queries: Pixels, gallery: Pixels, k: int) -> Lists:
    """Indices and squared distances, exact: float64 holds every partial sum."""
    x, y = queries.astype(np.float64), gallery.astype(np.float64)
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None] - 2 * x @ y.T
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(squares, order, axis=1).astype(np.int64)


def searched(queries: Pixels, gallery: Pixels, k: int) -> Lists:
    return nearest_pixels.search(queries, nearest_pixels.prepare(gallery), k)


def photographs(number: int, side: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Smooth images: sums of a few waves, (number, 3 side^2)."""
    at = np.linspace(0, np.pi, side)
    waves = np.einsum("ui,vj->uvij", *(np.cos(np.arange(5)[:, None] * at),) * 2).reshape(25, -1)
    planes = rng.normal(0, 1 / (1 + np.arange(25)), (number, 3, 25)) @ waves
    smooth: NDArray[np.float64] = 128 + 60 * planes.reshape(number, -1)
    return smooth + rng.normal(0, 3, smooth.shape)


def as_bytes(numbers: NDArray[np.float64]) -> Pixels:
    return np.clip(np.rint(numbers), 0, 255).astype(np.uint8)


def hard_cases(width: int, rng: np.random.Generator) -> Pixels:
    """Constants, extremes, one pixel of difference, scaled copies, negatives and plain noise."""
    base = as_bytes(photographs(40, int((width // 3) ** 0.5), rng))[:, :width]
    faint = np.zeros((20, width), np.uint8)
    faint[np.arange(20), rng.integers(0, width, 20)] = 1
    scaled = [as_bytes(128 + share * (base.astype(float) - 128)) for share in (0.01, 0.1, 0.5, 2, 100)]
    constants = np.repeat(np.arange(0, 256, 5, dtype=np.uint8)[:, None], width, axis=1)
    moved = base.copy()
    moved[:, 0] ^= 1
    noise = rng.integers(0, 256, (60, width), dtype=np.uint8)
    corners = (rng.integers(0, 2, (40, width)) * 255).astype(np.uint8)
    return np.concatenate([base, base, moved, 255 - base, faint, *scaled, constants, noise, corners])


needs_vnni = pytest.mark.skipif(not nearest_pixels._multiplies_bytes(), reason="no exact products of bytes here")
PRODUCTS = pytest.mark.parametrize(
    "by_bytes", [pytest.param(True, marks=needs_vnni), False], ids=["bytes", "float32"]
)
"""Whether bytes are multiplied as bytes, or by processors without VNNI in float32."""


@PRODUCTS
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("width", "k"), [(3 * 32 * 32, 50), (3 * 8 * 8, 7), (49, 1), (1, 3)])
def test_lists_of_hard_cases_are_those_of_brute_force(
    width: int, k: int, kind: torch.dtype, by_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_pixels, "_coordinate_type", lambda: kind)
    monkeypatch.setattr(nearest_pixels, "_multiplies_bytes", lambda: by_bytes)
    rng = np.random.default_rng(width)
    side = int((max(width, 3) // 3) ** 0.5) + 1
    gallery = np.concatenate(
        [hard_cases(3 * side * side, rng)[:, :width], as_bytes(photographs(700, side, rng))[:, :width]]
    )
    gallery = gallery[rng.permutation(len(gallery))]
    queries = np.concatenate([gallery[::9], as_bytes(photographs(20, side, rng))[:, :width]])
    for found, expected in zip(searched(queries, gallery, k), brute(queries, gallery, k), strict=True):
        np.testing.assert_array_equal(found, expected)


@PRODUCTS
def test_blocks_and_small_galleries(by_bytes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_pixels, "_multiplies_bytes", lambda: by_bytes)
    monkeypatch.setattr(nearest_pixels, "ROWS", 8)
    monkeypatch.setattr(nearest_pixels, "BOUNDS", 8 * 50)
    monkeypatch.setattr(nearest_pixels, "TOGETHER", 16)
    monkeypatch.setattr(nearest_pixels, "GROUP", 2)
    rng = np.random.default_rng(1)
    for number in (1, 2, 5, 49, 50, 51, 333):
        gallery = rng.integers(0, 3, (number, 12), dtype=np.uint8)
        queries = rng.integers(0, 3, (21, 12), dtype=np.uint8)
        k = min(5, number)
        for found, expected in zip(searched(queries, gallery, k), brute(queries, gallery, k), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert searched(gallery[:0], gallery, 3)[0].shape == (0, 3)


def test_few_distances_of_photographs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    images = as_bytes(photographs(2040, 16, rng))
    measured: list[int] = []
    measure = nearest_pixels._measure

    def counted(*given: Any) -> None:
        measured.append(len(given[2][1]))
        measure(*given)

    monkeypatch.setattr(nearest_pixels, "_measure", counted)
    searched(images[:40], images[40:], 10)
    assert 40 * 10 <= sum(measured) < 40 * 100


@pytest.mark.parametrize("width", [64, 1024, 1088, 3072, nearest_pixels.LONGEST])
def test_products_in_float32_are_exact_at_the_extremes(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of 1,024 products of -128 with itself is 2^24; above it float32 leaves out odd numbers."""
    monkeypatch.setattr(nearest_pixels, "_multiplies_bytes", lambda: False)
    rng = np.random.default_rng(5)
    rows = torch.from_numpy(rng.integers(-128, 128, (6, width), dtype=np.int8))
    rows[0], rows[1], rows[2] = -128, 127, torch.tensor([-128, 127], dtype=torch.int8).repeat(width // 2)
    rows[3] = rows[0]
    rows[3, -1] = -127  # an odd number next to the largest
    exact = (rows.long() @ rows.long().T).int()
    assert torch.equal(nearest_pixels._products(rows, rows.T), exact)
    assert all(torch.equal(nearest_pixels._against_one(row, rows.float()), exact[n]) for n, row in enumerate(rows))


def test_products_that_saturate_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As oneDNN's are without VNNI: neighbours of signed with unsigned bytes, added up in 16 bits."""

    def saturating(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        pairs = (left.int() + 128)[:, :, None] * right.int()[None]
        sums = pairs.view(len(left), -1, 2, right.shape[1]).sum(dim=2).clamp(-(2**15), 2**15 - 1).sum(dim=1)
        return (sums - 128 * right.int().sum(dim=0)).int()

    asked = nearest_pixels._multiplies_bytes.__wrapped__
    monkeypatch.setattr(nearest_pixels, "instruction_sets", lambda: ("avx2", "vnni"))

    def exact(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left.double() @ right.double()).int()

    monkeypatch.setattr(torch, "_int_mm", exact, raising=False)
    assert asked()
    monkeypatch.setattr(torch, "_int_mm", saturating)
    assert not asked()
    monkeypatch.setattr(nearest_pixels, "instruction_sets", lambda: ("avx2",))
    monkeypatch.setattr(torch, "_int_mm", lambda *_: pytest.fail("asked of a processor without VNNI"))
    assert not asked()


@PRODUCTS
def test_both_searches_agree(by_bytes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    images = as_bytes(photographs(240, 16, rng))
    monkeypatch.setattr(nearest_pixels, "_multiplies_bytes", lambda: by_bytes)
    exact = top_k_l2(images[:40], images[40:], 6)
    np.testing.assert_array_equal(exact.distances, np.sqrt(brute(images[:40], images[40:], 6)[1]))
    usual = top_k_l2(images[:40].astype(np.float32), images[40:].astype(np.float32), 6)
    np.testing.assert_array_equal(exact.indices, usual.indices)
    np.testing.assert_allclose(exact.distances, usual.distances, rtol=1e-5)


@pytest.mark.parametrize("by_bytes", [True, False])
def test_what_it_does_not_suit_is_left_to_the_other(by_bytes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_pixels, "_multiplies_bytes", lambda: by_bytes)
    assert nearest_pixels.is_suited(np.zeros((2, 8, 8, 3), np.uint8), "cpu")
    assert not nearest_pixels.is_suited(np.zeros((2, 8, 8, 3), np.uint8), "cuda")
    assert not nearest_pixels.is_suited(np.zeros((2, nearest_pixels.LONGEST + 1), np.uint8), "cpu")
    monkeypatch.setattr(nearest_pixels, "prepare", lambda _: pytest.fail("bytes against floats"))
    pixels = np.arange(12, dtype=np.uint8).reshape(4, 3)
    assert nearest.top_k_l2(pixels / 255, pixels, 1).indices.shape == (4, 1)
    assert nearest.top_k_l2(pixels, pixels / 255, 1).indices.shape == (4, 1)


@pytest.mark.slow
@PRODUCTS
def test_ten_thousand_queries_of_images(
    by_bytes: bool, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_pixels, "_multiplies_bytes", lambda: by_bytes)
    monkeypatch.setattr(nearest_pixels, "_coordinate_type", lambda: torch.bfloat16 if by_bytes else torch.float32)
    rng = np.random.default_rng(4)
    with np.load(shared_data / "cifar10_subset.npz") as file:
        test, train = file["x_test"].reshape(2500, -1), file["x_train"].reshape(12000, -1)[:4000]
    gallery = np.concatenate([train, train[:500], hard_cases(3072, rng)])
    near = as_bytes(train[:2500] + rng.normal(0, 2, (2500, 3072)))
    queries = np.concatenate([test, near, rng.integers(0, 256, (2000, 3072), dtype=np.uint8), gallery[-3000:]])
    assert len(queries) >= 10_000
    found = searched(queries, gallery, 50)
    for start in range(0, len(queries), 1000):
        expected = brute(queries[start : start + 1000], gallery, 50)
        np.testing.assert_array_equal(found[0][start : start + 1000], expected[0])
        np.testing.assert_array_equal(found[1][start : start + 1000], expected[1])
