"""Noise that only a secure sum carries: what rounding its shares costs, and that it is charged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest, norm

from fedassay.privacy.gaussian import calibrate_sigma, delta_of
from fedassay.privacy.mechanisms import Sums, noised_sums
from fedassay.privacy.secure_sums import SecureSum, secure_sum
from fedassay.privacy.tape import FreeNoise


def _scale(sensitivity: float) -> float:
    return calibrate_sigma(1.0, 1e-5, sensitivity)


def _divided(clients: int, coordinates: int = 1) -> SecureSum:
    return secure_sum(1.0, coordinates, clients, _scale)


def _law(count: float, scale: float, step: float) -> np.ndarray:
    """Law of a noised count rounded to multiples of `step`, at 4,000 to 4,200, shape (200 / step + 1,)."""
    at = np.arange(4000, 4200 + step, step)
    edges = np.concatenate([[-np.inf], (at[:-1] + at[1:]) / 2, [np.inf]])
    return np.diff(norm.cdf(edges, loc=count, scale=scale))


def _delta(step: float, clients: int) -> float:
    """Delta at epsilon 1 of a sum of rounded shares, of a count of 4,099 against 4,098; all others hold 4,100."""
    scale = calibrate_sigma(1.0, 1e-5, math.sqrt(3))
    share, size = scale / math.sqrt(clients), 2 ** math.ceil(math.log2(clients * (200 / step + 1)))
    others = np.fft.rfft(_law(4100, share, step), size) ** (clients - 1)
    one, zero = (np.fft.irfft(np.fft.rfft(_law(n, share, step), size) * others, size) for n in (4099, 4098))
    gaps = (np.maximum(p - math.e * q, 0).sum() for p, q in ((one, zero), (zero, one)))
    return float(max(gaps))


def test_rounding_after_the_noise_is_what_this_is_for() -> None:
    """Between 4,096 and 8,192 float16 holds multiples of 4 alone, and a hundredth of the noise drowns in them."""
    assert np.spacing(np.float16(4100)) == 4
    assert _delta(4, 100) > 0.1
    assert _delta(2.0**-3, 100) < 1e-5


@pytest.mark.parametrize("clients", [1, 3, 100, 10_000])
def test_shares_lie_on_one_grid_and_their_sum_is_exact(clients: int) -> None:
    divided = _divided(clients, 11)
    rng = np.random.default_rng(0)
    noise = divided.shares(FreeNoise(rng))
    shares = [noise.add("T", rng.uniform(0, 5000, 11), divided.scale) for _ in range(min(clients, 300))]
    for share in shares:
        np.testing.assert_array_equal(share / divided.grid, np.rint(share / divided.grid))
    forwards, backwards = sum(shares), sum(reversed(shares))
    np.testing.assert_array_equal(forwards, backwards)
    whole = sum((share / divided.grid).astype(np.int64) for share in shares)
    np.testing.assert_array_equal(np.asarray(forwards) / divided.grid, whole)


@pytest.mark.parametrize("clients", [1, 4, 64])
def test_the_sum_carries_the_whole_noise(clients: int) -> None:
    divided = _divided(clients)
    noise = divided.shares(FreeNoise(np.random.default_rng(1), (4000,)))
    totals = sum(noise.add("T", np.float64(3.3), divided.scale) for _ in range(clients))
    exact = clients * np.rint(3.3 / divided.grid) * divided.grid
    assert np.shape(totals) == (4000,)
    assert kstest((totals - exact) / divided.scale, "norm").pvalue > 1e-3


def test_rounding_is_charged() -> None:
    """Neighbours whose statistic moves by the sensitivity stay within what is charged, wherever they lie."""
    divided = _divided(3, 8)
    rng = np.random.default_rng(2)
    noise = divided.shares(FreeNoise(rng))
    furthest = 0.0
    for _ in range(500):
        value, step = rng.uniform(0, 9, 8), rng.standard_normal(8)
        # A vanishing scale shows the rounded statistic itself.
        one, other = (noise.add("T", x, 1e-300) for x in (value, value + step / np.linalg.norm(step)))
        furthest = max(furthest, float(np.linalg.norm(one - other)))
    assert 1.0 < furthest <= divided.sensitivity
    assert divided.scale == _scale(divided.sensitivity) > _scale(1.0)
    assert divided.scale == pytest.approx(_scale(1.0), rel=1e-6)
    assert delta_of(divided.sensitivity / divided.scale, 1.0) <= 1e-5 * (1 + 1e-9)


def test_what_carries_no_noise_is_left_alone() -> None:
    divided = _divided(5)
    exact = Sums(np.array([7.0, 3.0]), np.full((2, 2), 0.3), np.eye(2) / 3)
    released = noised_sums(
        exact, (0.0, divided.scale, divided.scale), divided.shares(FreeNoise(np.random.default_rng(0))), full=True
    )
    np.testing.assert_array_equal(released.counts, exact.counts)
    assert np.array_equal(released.second, released.second.T)


def test_a_statistic_beyond_the_exact_range_is_clipped() -> None:
    divided = _divided(1000)
    noise = divided.shares(FreeNoise(np.random.default_rng(0)))
    limit = 2.0**52 * divided.grid / 1000
    assert limit > 2**21 * divided.scale
    assert float(noise.add("T", np.float64(1e300), divided.scale)) == pytest.approx(limit, rel=1e-5)
