"""Fourier magnitude filtering: the half spectrum, its noise, and how far each mechanism is from the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

from fedassay.exchange.spectra import half_spectrum, magnitudes
from fedassay.methods.feddiff.magnitudes import (
    distances,
    kept,
    largest_norm,
    mean_magnitude,
    noised_mean,
    pydp_bounds,
    pydp_means,
)
from fedassay.methods.feddiff.pydp_law import drawn_means
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.sensitivities import magnitude_sum
from fedassay.privacy.tape import FreeNoise

Shape = tuple[int, int, int]


def _images(n: int, shape: Shape, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(32, 32, 3), (8, 8, 1), (5, 7, 2), (4, 9, 1), (1, 1, 1)])
def test_half_the_spectrum_is_the_whole_of_it(shape: Shape) -> None:
    height, width, channels = shape
    where, first, weights = half_spectrum(height, width)
    spectrum = magnitudes(_images(3, shape)).reshape(3, -1, channels)
    np.testing.assert_allclose(spectrum[:, first][:, where], spectrum, atol=1e-9)
    vectors = (spectrum[:, first] * weights[:, None]).reshape(3, -1)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), np.linalg.norm(spectrum.reshape(3, -1), axis=1))
    white = magnitudes(np.full((1, *shape), 255, np.uint8))
    assert np.linalg.norm(white) == pytest.approx(largest_norm(shape))


def test_a_colour_image_of_32_by_32_has_1542_magnitudes() -> None:
    _, first, weights = half_spectrum(32, 32)
    assert 3 * len(first) == 1542
    assert (weights == 1).sum() == 4


def test_noise_is_white_in_the_half_spectrum() -> None:
    shape = (8, 8, 1)
    where, first, weights = half_spectrum(8, 8)
    images = np.full((400, *shape), 255, np.uint8)  # magnitudes of zero, but the first
    rng = np.random.default_rng(0)
    found = np.stack(
        [
            noised_mean(images, clip=largest_norm(shape), sigma=500.0, count=400, noise=FreeNoise(rng))
            for _ in range(300)
        ]
    ).reshape(300, 64)
    assert np.array_equal(found[:, first][:, where], found)
    coordinate = int(np.flatnonzero((weights > 1) & (first > 0))[0])
    scale = 500.0 / 400 / math.sqrt(2)
    assert kstest(found[:, first[coordinate]] / scale, "norm").pvalue > 1e-3
    assert found[:, 0].mean() == pytest.approx(64, abs=4 * 500 / 400 / math.sqrt(300))
    assert found[:, 0].std() == pytest.approx(500 / 400, rel=0.15)


def test_clipping_bounds_what_an_image_adds() -> None:
    image = np.full((1, 8, 8, 1), 255, np.uint8)
    rng = np.random.default_rng(0)
    assert noised_mean(image, clip=10.0, sigma=0.0, count=1, noise=FreeNoise(rng)).max() == pytest.approx(10.0)
    assert noised_mean(image, clip=64.0, sigma=0.0, count=1, noise=FreeNoise(rng)).max() == pytest.approx(64.0)


def test_without_noise_it_is_the_mean() -> None:
    images = _images(1500, (8, 8, 1))  # more than one block
    exact = mean_magnitude(images)
    found = noised_mean(images, clip=64.0, sigma=0.0, count=1500, noise=FreeNoise(np.random.default_rng(0)))
    np.testing.assert_allclose(found, exact)
    np.testing.assert_allclose(exact, np.abs(np.fft.fft2(images / 255, axes=(1, 2))).mean(axis=0))


def _errors(images: np.ndarray, epsilon: float) -> tuple[float, float]:
    """Root mean square error of both mechanisms at one total epsilon, add_remove, delta 1e-5."""
    shape: Shape = images.shape[1:]  # type: ignore[assignment]
    exact, clip = mean_magnitude(images), largest_norm(shape)
    sensitivity = magnitude_sum(2, clip, adjacency="add_remove").sensitivity
    sigma = calibrate_sigma(epsilon, 1e-5, sensitivity)
    # The number of records is noised in the histogram, with a twentieth of the squared budget.
    rng = np.random.default_rng(0)
    count = len(images) + rng.normal(0, math.sqrt(10 / 0.05) * calibrate_sigma(epsilon, 1e-5, 1.0))
    # As the server uses it: no magnitude is negative.
    gaussian = noised_mean(images, clip=clip, sigma=sigma, count=count, noise=FreeNoise(rng)).clip(min=0)
    columns = magnitudes(images).reshape(len(images), exact.size)
    pydp = pydp_means(columns, epsilon / exact.size, pydp_bounds(images)).reshape(shape)
    return tuple(float(np.sqrt(np.mean((found - exact) ** 2))) for found in (gaussian, pydp))  # type: ignore[return-value]


@pytest.mark.long
def test_distortion_at_colour_32_by_32() -> None:
    """Epsilon 1 over 5,000 images of 32x32x3: PyDP's composed means are worth nothing."""
    rng = np.random.default_rng(0)
    flat = rng.integers(0, 256, (5000, 1, 1, 3))  # natural images hold most of their energy in low frequencies
    images = np.clip(flat + rng.normal(0, 20, (5000, 32, 32, 3)), 0, 255).astype(np.uint8)
    gaussian, pydp = _errors(images, 1.0)
    assert gaussian < 10
    assert pydp > 40 * gaussian


def test_distortion_on_digits() -> None:
    from sklearn.datasets import load_digits

    images = np.rint(load_digits().images * (255 / 16)).astype(np.uint8)[..., None]
    for epsilon in (1.0, 10.0):
        gaussian, pydp = _errors(images, epsilon)
        assert pydp > 5 * gaussian


def test_what_is_unlike_the_mean_is_dropped() -> None:
    images = _images(20, (8, 8, 1))
    images[3] = 0
    scores = distances(images, mean_magnitude(images))
    assert scores.argmax() == 3
    assert np.array_equal(np.flatnonzero(~kept(scores, 5)), [3])
    assert kept(scores, 0).all()
    assert kept(scores, 12).sum() == 18
    assert distances(images[:0], mean_magnitude(images)).shape == (0,)


@pytest.mark.parametrize(("rows", "epsilon"), [(1, 0.5), (1, 5.0), (40, 1.0)])
def test_the_law_of_pydp_is_pydps(rows: int, epsilon: float) -> None:
    """PyDP's means against as many drawn here; the ends, where means are clamped, are counted apart."""
    bounds, columns = (0.0, 16.0), 10_000
    values = np.tile(np.linspace(0, 12, rows)[:, None], (1, columns))
    theirs = pydp_means(values, epsilon, bounds)
    ours = drawn_means(values, epsilon, bounds, np.random.default_rng(0))
    assert ks_2samp(theirs, ours).pvalue > 1e-6
    for end in bounds:
        assert abs((theirs == end).mean() - (ours == end).mean()) < 0.03
