"""MS-SSIM against its definition, and as a metric that nothing else names."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.metrics import structural_similarity

from fedassay.contracts.metrics import pair_metrics
from fedassay.contracts.registry import every_audit, metrics
from fedassay.reports.gate.policy import Policy
from fedassay.similarity.metrics import Similarity
from fedassay.similarity.ms_ssim import _EXPONENTS, MsSsim, _of_pair


def _images(seed: int, side: int = 176) -> np.ndarray:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (2, side // 16, side // 16, 3))
    return np.clip(coarse.repeat(16, 1).repeat(16, 2) + rng.normal(0, 8, (2, side, side, 3)), 0, 255).astype(
        np.uint8
    )


def test_identical_images_have_one_and_others_less() -> None:
    images = _images(0)
    assert MsSsim.measure(images, images) == pytest.approx(1.0)
    noised = np.clip(images + np.random.default_rng(1).normal(0, 30, images.shape), 0, 255).astype(np.uint8)
    near, far = MsSsim.measure(images, noised), MsSsim.measure(images, _images(2))
    assert near is not None
    assert far is not None
    assert ((far < near) & (near < 1)).all()


def test_a_constant_shift_costs_the_luminance_of_the_coarsest_scale_alone() -> None:
    """Contrast and structure are untouched, so the whole is the coarsest factor to its exponent."""
    image = np.full((1, 176, 176, 1), 100, np.uint8)
    shifted = image + np.uint8(50)
    a, b = 100 / 255, 150 / 255
    luminance = (2 * a * b + 1e-4) / (a * a + b * b + 1e-4)
    assert MsSsim.measure(image, shifted) == pytest.approx(luminance ** _EXPONENTS[-1])


def test_one_scale_is_the_gaussian_ssim_of_scikit_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedassay.similarity.ms_ssim._EXPONENTS", (1.0,))
    a, b = _images(3)[0, ..., :1] / 255, _images(4)[0, ..., :1] / 255
    _, planes = structural_similarity(
        a[..., 0],
        b[..., 0],
        data_range=1,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        full=True,
    )

    assert _of_pair(a, b) == pytest.approx(max(0.0, planes[5:-5, 5:-5].mean()), abs=1e-9)


def test_small_images_are_not_measured() -> None:
    small = _images(0, 160)
    assert MsSsim.measure(small, small) is None
    assert "ms_ssim" not in Similarity(None, "").measure(small, small)


def test_a_registered_metric_is_measured_declared_and_bounded() -> None:
    images = _images(0)
    assert Similarity(None, "").measure(images, images)["ms_ssim"] == pytest.approx(1.0)
    assert MsSsim.facts in pair_metrics()
    assert metrics()["ms_ssim"].title == "MS-SSIM"
    assert {name for name, facts in every_audit().items() if MsSsim.facts in facts.metrics} == {
        "reconstruction",
        "inversion",
        "memorization",
    }
    assert Policy.model_validate({"name": "mine", "maximum": {"ms_ssim": 0.5}})
