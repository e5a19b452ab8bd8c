"""The all-pairs SSIM search, against a double loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from skimage import data

from fedassay.similarity import ssim_search
from fedassay.similarity.precision import full_float32
from fedassay.similarity.ssim import moments, ssim, window_side
from fedassay.similarity.ssim_bound import dct_basis, pair_bounds, windows
from fedassay.similarity.ssim_search import most_similar, ssim_matrix, top_k


def double_loop(x: NDArray[np.uint8], y: NDArray[np.uint8]) -> NDArray[np.float64]:
    return np.array([ssim(np.repeat(one[None], len(y), axis=0), y) for one in x]).reshape(len(x), len(y))


def best_of(values: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    return np.argsort(-values, axis=1, kind="stable")[:, :k]


def textures(seed: int, number: int, height: int, width: int, channels: int) -> NDArray[np.uint8]:
    """Smooth patches with noise of varying strength, flat ones and exact duplicates among them."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij"))
    waves = np.sin(np.einsum("nck,kij->nijc", rng.normal(0, 4, (number, channels, 2)), grid))
    strength = rng.choice([0, 4, 60], (number, 1, 1, 1))
    images = 127 + 100 * waves + strength * rng.normal(size=waves.shape)
    images[rng.random(number) < 0.1] = rng.choice([0, 200, 255])
    source = rng.integers(0, number, number)
    repeated = rng.random(number) < 0.3
    images[repeated] = images[source[repeated]]
    return np.clip(np.rint(images), 0, 255).astype(np.uint8)


def photographs() -> NDArray[np.uint8]:
    """120 tiles of 16x16 from scikit-image's photographs."""
    pictures = [data.astronaut()[:160, 160:320], data.chelsea()[:160, :160], data.coffee()[:160, :160]]
    stack = np.stack(pictures).reshape(3, 10, 16, 10, 16, 3).swapaxes(2, 3)
    return stack.reshape(300, 16, 16, 3)[::5][:60].repeat(2, axis=0)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    height=st.integers(3, 11),
    width=st.integers(3, 11),
    channels=st.sampled_from([1, 3]),
    queries=st.integers(1, 9),
    gallery=st.integers(1, 12),
    k=st.integers(1, 4),
    query_block=st.integers(1, 9),
    gallery_block=st.integers(1, 12),
)
def test_search_equals_the_double_loop(
    seed: int,
    height: int,
    width: int,
    channels: int,
    queries: int,
    gallery: int,
    k: int,
    query_block: int,
    gallery_block: int,
) -> None:
    images = textures(seed, queries + gallery, height, width, channels)
    x, y = images[:queries], images[queries:]
    k = min(k, gallery)
    values = double_loop(x, y)
    found = top_k(x, y, k, query_block=query_block, gallery_block=gallery_block)
    expected = best_of(values, k)
    np.testing.assert_array_equal(found.indices, expected)
    np.testing.assert_array_equal(found.values, np.take_along_axis(values, expected, axis=1))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    side=st.integers(7, 10),
    channels=st.sampled_from([1, 3]),
    degree=st.integers(0, 12),
)
def test_bounds_are_never_below_the_value(seed: int, side: int, channels: int, degree: int) -> None:
    x, y = textures(seed, 6, side, side, channels), textures(seed + 1, 7, side, side, channels)
    window = window_side(side, side)
    with full_float32():
        bounds = pair_bounds(
            windows(moments(x, window), window, degree), windows(moments(y, window), window, degree)
        ).numpy()
    values = double_loop(x, y)
    assert np.all(bounds >= values - 2e-6)
    if degree == 12:
        np.testing.assert_allclose(bounds, values, rtol=0, atol=1e-3)


@pytest.mark.parametrize("side", [3, 5, 7])
def test_dct_basis_is_orthonormal_and_begins_with_the_constant(side: int) -> None:
    basis = dct_basis(side)
    torch.testing.assert_close(basis @ basis.T, torch.eye(side, dtype=torch.float64))
    torch.testing.assert_close(basis[0], torch.full((side,), side**-0.5, dtype=torch.float64))


@pytest.mark.long
def test_photographs_with_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    images = photographs()
    values = double_loop(images, images)
    found = top_k(images, images, 3)
    np.testing.assert_array_equal(found.indices, best_of(values, 3))
    # Every image is there twice: both copies find the first.
    np.testing.assert_array_equal(most_similar(images, images).indices, np.arange(120) // 2 * 2)
    np.fill_diagonal(values, -np.inf)
    others = top_k(images, images, 3, exclude_self=True)
    np.testing.assert_array_equal(others.indices, best_of(values, 3))
    np.testing.assert_array_equal(others.indices[:, 0], np.arange(120) ^ 1)
    # The same without pruning.
    monkeypatch.setattr(ssim_search, "PRUNING_DEGREE", None)
    np.testing.assert_array_equal(top_k(images, images, 3).indices, found.indices)


def test_pruning_leaves_few_pairs_of_photographs_and_gives_up_on_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluated: list[int] = []
    evaluate = ssim_search._evaluate

    def count(*arguments: object) -> NDArray[np.float64]:
        evaluated.append(len(arguments[2]))  # type: ignore[arg-type]
        return evaluate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ssim_search, "_evaluate", count)
    images = photographs()[::2]
    most_similar(images[:30], images[30:])
    assert sum(evaluated) < 0.5 * 30 * 30
    evaluated.clear()
    noise = np.random.default_rng(0).integers(0, 256, (120, 9, 9), dtype=np.uint8)
    found = top_k(noise[:20], noise[20:], 1, query_block=10, gallery_block=10)
    np.testing.assert_array_equal(found.indices, best_of(double_loop(noise[:20], noise[20:]), 1))
    assert sum(evaluated) < 0.3 * 20 * 100  # the first block shows that the bound is useless here


def test_cifar_matches_the_double_loop(shared_data: Path) -> None:
    with np.load(shared_data / "cifar10_subset.npz") as file:
        x, y = file["x_test"][:6], file["x_train"][:40]
    values = double_loop(x, y)
    found = most_similar(x, y)
    np.testing.assert_array_equal(found.indices, values.argmax(axis=1))
    np.testing.assert_array_equal(found.values, values.max(axis=1))


def test_float_images_and_progress() -> None:
    images = textures(0, 20, 8, 8, 1)
    calls: list[tuple[int, int]] = []
    found = most_similar(images[:5] / 255, images[5:], progress=lambda done, total: calls.append((done, total)))
    assert calls == [(75, 75)]
    expected = double_loop(images[:5], images[5:])
    np.testing.assert_allclose(found.values, expected.max(axis=1), atol=1e-12)


def test_wrong_requests_are_refused() -> None:
    images = textures(0, 6, 8, 8, 3)
    with pytest.raises(ValueError, match="k = 7: between 1 and the 6"):
        top_k(images, images, 7)
    with pytest.raises(ValueError, match="k = 6: between 1 and the 5"):
        top_k(images, images, 6, exclude_self=True)
    with pytest.raises(ValueError, match="compares a set with itself"):
        most_similar(images[:3], images, exclude_self=True)
    with pytest.raises(ValueError, match="sizes differ"):
        most_similar(images[:, :7], images)
    with pytest.raises(ValueError, match="k = 1: between 1 and the 0"):
        most_similar(images, images[:0])
    assert most_similar(images[:0], images).indices.shape == (0,)


def test_the_matrix_of_all_pairs_is_ssim() -> None:
    x, y = textures(1, 5, 9, 10, 3), textures(2, 4, 9, 10, 3)
    np.testing.assert_allclose(ssim_matrix(x, y), double_loop(x, y), atol=1e-5)
    with pytest.raises(ValueError, match=r"size|shape"):
        ssim_matrix(x, y[:, :8])
