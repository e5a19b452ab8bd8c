"""p-values of the noise and the sampling of DP-SGD: uniform where these are as declared, small otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from fedassay.nets.dp_sgd.statistics import NoiseBlocks, sampling_p_values

SIZE, STEPS = 530, 12


def _noise(change: Callable[[int, NDArray[np.float64]], NDArray[np.float64]], seed: int) -> dict[str, float]:
    rng, blocks = np.random.default_rng(seed), NoiseBlocks(SIZE)
    for step in range(STEPS):
        blocks.add(2.5 * change(step, rng.standard_normal(SIZE)), 2.5)
    return blocks.p_values()


def test_p_values_of_honest_noise_are_uniform() -> None:
    found = [_noise(lambda _, noise: noise, seed) for seed in range(400)]
    for name in found[0]:
        assert kstest([each[name] for each in found], "uniform").pvalue > 0.01, name


def _on(part: slice, share: float) -> Callable[[int, NDArray[np.float64]], NDArray[np.float64]]:
    def change(step: int, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        noise[part] *= share
        return noise

    return change


_KEPT = np.random.default_rng(99).standard_normal(SIZE)


@pytest.mark.parametrize(
    ("change", "block"),
    [
        (_on(slice(None), 0.9), "all noise"),
        (_on(slice(200, 300), 0.75), "a window of all steps"),
        (lambda step, noise: _on(slice(100, 200), 0.4 if step == 3 else 1.0)(step, noise), "a window of a step"),
        (lambda step, noise: _KEPT, "the sum over steps"),
        (lambda step, noise: _KEPT * (-1) ** step, "the sum over steps"),
    ],
)
def test_too_little_noise_is_found(
    change: Callable[[int, NDArray[np.float64]], NDArray[np.float64]], block: str
) -> None:
    assert all(_noise(change, seed)[block] < 1e-4 for seed in range(20))


def _sampled(drawn: NDArray[np.bool_], rate: float) -> dict[str, float]:
    return sampling_p_values(drawn.sum(axis=0), drawn.sum(axis=1), rate)


@pytest.mark.long
def test_p_values_of_poisson_sampling_are_not_too_small() -> None:
    rng = np.random.default_rng(0)
    found = [_sampled(rng.random((60, 80)) < 0.2, 0.2) for _ in range(400)]
    for name in found[0]:
        values = np.array([each[name] for each in found])
        for level in (0.01, 0.05, 0.2):
            assert np.mean(values <= level) <= level + 3 * np.sqrt(level / 400), (name, level)


def test_other_sampling_is_found() -> None:
    rng = np.random.default_rng(0)
    subset = np.tile(rng.random(80) < 0.2, (60, 1))
    assert _sampled(subset, 0.2)["a record"] < 1e-10
    fixed = np.array([rng.permutation(80) < 16 for _ in range(60)])
    assert _sampled(fixed, 0.2)["batch sizes"] <= 1e-3
    together = np.repeat(rng.random((60, 1)) < 0.2, 80, axis=1)
    assert _sampled(together, 0.2)["batch sizes"] <= 1e-3
    more = rng.random((60, 80)) < 0.25
    assert _sampled(more, 0.2)["rate"] < 1e-10
    assert _sampled(rng.random((60, 80)) < 2, 1.0) == {}
