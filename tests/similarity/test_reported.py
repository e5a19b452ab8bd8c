"""What reports print is scikit-image's, and what searches compute agrees with it."""

from __future__ import annotations

import numpy as np
import pytest
from quick_similarity import psnr
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from fedassay.similarity import reported
from fedassay.similarity.metrics import PSNR_CAP, Similarity
from fedassay.similarity.ssim import ssim


def _images(n: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(8, 8, 1), (5, 9, 3), (32, 32, 3)])
def test_reported_values_are_scikit_images_and_ours(shape: tuple[int, int, int]) -> None:
    x, y = _images(6, shape, 0), _images(6, shape, 1)
    y[0] = x[0]
    found = Similarity(None, "").measure(x, y)
    side = min(7, shape[0])
    for row in range(1, 6):
        assert found["psnr"][row] == pytest.approx(peak_signal_noise_ratio(x[row], y[row]), abs=1e-9)
        expected = structural_similarity(x[row], y[row], channel_axis=-1, win_size=side)
        assert found["ssim"][row] == pytest.approx(expected, abs=1e-9)
    assert found["psnr"][0] == PSNR_CAP
    np.testing.assert_allclose(found["ssim"], ssim(x, y), atol=1e-9)
    np.testing.assert_allclose(found["psnr"][1:], psnr(x, y)[1:], atol=1e-9)


def test_scikit_image_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skimage.metrics.structural_similarity", lambda x, _, **__: (0.0, np.full_like(x, 0.25)))
    x = _images(2, (8, 8, 1), 0)
    assert reported.reported_ssim(x, x).tolist() == [0.25, 0.25]


def test_images_of_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="image sizes differ"):
        reported.reported_psnr(_images(2, (8, 8, 1), 0), _images(2, (8, 9, 1), 0))
