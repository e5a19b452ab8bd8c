"""Mean Fourier magnitudes as a sum: each pair of frequencies is told once, and noise is what was declared."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.attacks.gallery.population import vectors_of
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import Release, exact
from fedassay.methods.feddiff.magnitudes import largest_norm, mean_magnitude, noised_mean
from fedassay.privacy.tape import FreeNoise

SHAPE = (8, 8, 3)
SIGMA = 40.0


def images(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


def message(mean: np.ndarray, count: int, release: Release) -> Message:
    fields = {
        "class_counts": MessageField(np.array([count, 0]), "class_counts", exact("labels")),
        "magnitude_mean": MessageField(mean, "magnitude_mean", release),
    }
    return Message(0, "client/0", SERVER, fields)


def test_pairs_of_frequencies_are_told_once() -> None:
    own = images(30)
    block = linear_blocks(message(mean_magnitude(own), 30, exact()), 2)[-1]
    assert block.equations == 3 * 34
    vectors = vectors_of(block, np.zeros((30, 1)), own)
    assert vectors is not None
    assert np.abs(vectors.sum(axis=0) - block.total).max() < 1e-8


@pytest.mark.parametrize("count", [5, 50])
def test_noise_is_of_the_sum_as_declared(count: int) -> None:
    own, noise = images(count), FreeNoise(np.random.default_rng(0))
    mean = noised_mean(own, clip=largest_norm(SHAPE), sigma=SIGMA, count=count, noise=noise)
    declared = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(SIGMA,), sensitivity=(1.0,))
    block = linear_blocks(message(mean, count, declared), 2)[-1]
    vectors = vectors_of(block, np.zeros((count, 1)), own)
    assert vectors is not None
    left = vectors.sum(axis=0) - block.total
    assert block.noise == pytest.approx([SIGMA])
    assert left.std() == pytest.approx(SIGMA, rel=4 / np.sqrt(2 * left.size))
