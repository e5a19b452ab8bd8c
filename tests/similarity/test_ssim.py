"""PSNR and SSIM per pair, against scikit-image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from skimage import data
from skimage.metrics import structural_similarity
from sklearn.datasets import load_digits

from fedassay.similarity.ssim import ssim, window_side


def reference(x: NDArray[Any], y: NDArray[Any], **options: Any) -> NDArray[np.float64]:
    span = 255 if x.dtype == np.uint8 else 1.0
    axis = -1 if x.ndim == 4 else None
    pairs = zip(x, y, strict=True)
    return np.array([structural_similarity(a, b, data_range=span, channel_axis=axis, **options) for a, b in pairs])


def noise(seed: int, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def photographs(size: int) -> NDArray[np.uint8]:
    """Crops of scikit-image's photographs, some nearly alike, some dark, bright or flat."""
    pictures = [data.astronaut(), data.chelsea(), data.coffee()]
    crops = [p[top : top + size, 40 : 40 + size] for p in pictures for top in (0, 7, 120)]
    crops += [np.zeros_like(crops[0]), np.full_like(crops[0], 255), crops[0] // 16, 240 + crops[1] // 17]
    return np.stack(crops)


def test_photographs_agree_with_skimage() -> None:
    images = photographs(48)
    left, right = np.triu_indices(len(images))
    np.testing.assert_allclose(
        ssim(images[left], images[right]), reference(images[left], images[right]), rtol=0, atol=1e-9
    )


def test_cifar_agrees_with_skimage(shared_data: Path) -> None:
    with np.load(shared_data / "cifar10_subset.npz") as file:
        images = file["x_test"][:80]
    np.testing.assert_allclose(
        ssim(images[:40], images[40:]), reference(images[:40], images[40:]), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_digits_agree_with_skimage(dtype: type) -> None:
    images = (load_digits().images[:60] / 16).astype(dtype)
    np.testing.assert_allclose(
        ssim(images[:30], images[30:]), reference(images[:30], images[30:]), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("shape", [(3, 3), (4, 9), (5, 6), (6, 32), (7, 7)])
def test_small_images_use_the_window_skimage_advises(shape: tuple[int, int]) -> None:
    x, y = noise(0, 6, *shape, 3), noise(1, 6, *shape, 3)
    side = window_side(*shape)
    assert side % 2 == 1
    assert side <= min(shape) < side + 2 or side == 7
    np.testing.assert_allclose(ssim(x, y), reference(x, y, win_size=side), rtol=0, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 14), st.integers(3, 14), st.sampled_from([1, 3, 4]), st.integers(1, 5), st.integers(0, 99))
def test_invariants(height: int, width: int, channels: int, number: int, seed: int) -> None:
    x, y = noise(seed, number, height, width, channels), noise(seed + 1, number, height, width, channels)
    values = ssim(x, y)
    assert np.all(np.abs(values) <= 1)
    np.testing.assert_array_equal(values, ssim(y, x))
    np.testing.assert_array_equal(values, ssim(x, y, batch=2))
    np.testing.assert_allclose(ssim(x, x), 1, atol=1e-12)
    np.testing.assert_allclose(ssim(x / 255, y), values, atol=1e-12)  # the scale does not matter


def test_no_images_give_no_values() -> None:
    empty = np.zeros((0, 8, 8, 3), np.uint8)
    assert ssim(empty, empty).shape == (0,)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (noise(0, 2, 8, 8, 3), noise(0, 3, 8, 8, 3), "as many images"),
        (noise(0, 2, 8, 8, 3), noise(0, 2, 8, 8, 1), "sizes differ"),
        (noise(0, 2, 8, 2), noise(0, 2, 8, 2), "at least 3x3"),
        (noise(0, 8), noise(0, 8), r"\(N, H, W\)"),
        (noise(0, 2, 0, 8), noise(0, 2, 0, 8), "empty side"),
        (noise(0, 2, 8, 8).astype(np.int64), noise(0, 2, 8, 8), "int64"),
        (noise(0, 2, 8, 8).astype(np.float32), noise(0, 2, 8, 8), r"lie in \[0, 1\]"),
        (np.full((2, 8, 8), np.nan), noise(0, 2, 8, 8), r"lie in \[0, 1\]"),
    ],
)
def test_wrong_images_are_refused(x: NDArray[Any], y: NDArray[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ssim(x, y)
