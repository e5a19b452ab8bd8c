"""What a claim allows of label histograms is the best private release of counts, and private at that."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedassay.audits.message.histogram_gain import allowed_histograms


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_counts_have_two_sided_geometric_noise(epsilon: float) -> None:
    """P(z) = (1 - a) / (1 + a) a^|z| with a = exp(-epsilon), so that neighbours differ by exp(epsilon)."""
    rng = np.random.default_rng(0)
    counts = np.tile([1000.0, 1000.0], (200_000, 1))
    shares = allowed_histograms(counts, epsilon, rng)
    # With one class of a known count the share tells the noise of the other.
    ratio = shares[:, 0] / shares[:, 1]
    tail = math.exp(-epsilon)
    equal = (1 - tail) / (1 + tail)
    # Both noises are equal with the sum of squares of the probabilities.
    expected = equal**2 * (1 + 2 * tail**2 / (1 - tail**2))
    assert np.mean(ratio == 1.0) == pytest.approx(expected, abs=4 * math.sqrt(expected / len(counts)))


def test_nothing_is_allowed_to_be_no_histogram() -> None:
    shares = allowed_histograms(np.zeros((500, 3)), 0.05, np.random.default_rng(1))
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def test_a_larger_claim_allows_closer_histograms() -> None:
    counts = np.random.default_rng(2).integers(5, 60, (400, 6)).astype(float)
    true = counts / counts.sum(axis=1, keepdims=True)
    far = [
        float(np.abs(allowed_histograms(counts, epsilon, np.random.default_rng(3)) - true).sum(axis=1).mean())
        for epsilon in (0.1, 0.5, 2.0, 8.0, 40.0)
    ]
    assert far == sorted(far, reverse=True)
    assert far[-1] == pytest.approx(0.0, abs=1e-6)
