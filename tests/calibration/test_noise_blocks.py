"""The statistical question about noise: p-values of honest runs are uniform, and too little noise is found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from fedassay.audits.claim.tape.blocks import LEVEL, BlockTest, noise_in_blocks
from fedassay.audits.claim.tape.streams import standardised
from fedassay.privacy.mechanisms import Sums, noised_sums
from fedassay.privacy.tape import Draw, Key, NoiseMechanism, taped
from fedassay.support.seeds import Seeds

RUNS = 400


def _run(seed: int, share: float = 1.0) -> BlockTest:
    """One honest run: counts, sums and a symmetric matrix; `share` of the noise in one window."""
    exact = Sums(np.zeros(4), np.ones((4, 60)), np.eye(20))
    with taped() as tape:
        noised_sums(
            exact, (2.0, 2.0, 2.0), NoiseMechanism(Seeds(seed).child("noise"), Key("client/0", 0, "s")), full=True
        )
    found = {key.part: standardised(draw) for key, draw in tape.draws.items() if isinstance(draw, Draw)}
    found["sums"][100:200] *= share
    tested = noise_in_blocks(list(found.items()))
    assert tested is not None
    return tested


def test_p_values_of_honest_runs_are_uniform() -> None:
    p = np.array([_run(seed).p for seed in range(RUNS)])
    assert kstest(p, "uniform").pvalue > 0.01
    assert (p <= LEVEL).sum() <= 3


@pytest.mark.parametrize("seed", range(20))
def test_half_of_the_noise_in_one_window_is_found(seed: int) -> None:
    found = _run(seed, share=0.5)
    assert found.p <= LEVEL
    assert found.block == "window 2 of sums"


def test_normal_variance_in_another_shape_is_found() -> None:
    signs = np.random.default_rng(0).choice([-1.0, 1.0], 2000)
    found = noise_in_blocks([("signs", signs)])
    assert found is not None
    assert found.p <= LEVEL


def _p(*statistics: np.ndarray) -> float:
    found = noise_in_blocks([(f"statistic {number}", values) for number, values in enumerate(statistics)])
    assert found is not None
    return found.p


@pytest.mark.parametrize("sizes", [(30,), (1000,), (500, 500, 20), (4000,)])
def test_p_values_of_normals_are_uniform(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    p = np.array([_p(*(rng.standard_normal(size) for size in sizes)) for _ in range(300)])
    assert kstest(p, "uniform").pvalue > 0.01
    assert (p <= 0.01).sum() <= 9


def _autoregressive(rng: np.random.Generator, count: int) -> np.ndarray:
    values = rng.standard_normal(count)
    for place in range(1, count):
        values[place] = 0.3 * values[place - 1] + np.sqrt(1 - 0.09) * values[place]
    return values


def _halves(rng: np.random.Generator, count: int, again: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    half = rng.standard_normal(count // 2)
    return np.concatenate([half, again(half)])


DEPENDENT: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "autoregressive": _autoregressive,
    "repeated half": lambda rng, count: _halves(rng, count, lambda half: half),
    "negated half": lambda rng, count: _halves(rng, count, lambda half: -half),
    "mirrored half": lambda rng, count: _halves(rng, count, lambda half: half[::-1]),
    "every number twice": lambda rng, count: np.repeat(rng.standard_normal(count // 2), 2),
}


@pytest.mark.parametrize("count", [1000, 10_000])
@pytest.mark.parametrize("kind", DEPENDENT)
def test_noise_that_depends_on_itself_is_found(kind: str, count: int) -> None:
    for seed in range(3):
        found = noise_in_blocks([("sums", DEPENDENT[kind](np.random.default_rng(seed), count))])
        assert found is not None
        assert found.p <= LEVEL
        assert "products" in found.block


def test_noise_that_another_statistic_repeats_is_found() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    assert _p(values, -values) <= LEVEL


@pytest.mark.parametrize(("share", "count"), [(0.9, 1000), (0.93, 1000), (0.97, 10_000)])
def test_too_little_noise_is_found_nearly_as_often_as_by_the_best_test(share: float, count: int) -> None:
    """0.72 and 0.48 of the time where windows, shape and sizes had one share each."""
    rng = np.random.default_rng(6)
    best = chi2.cdf(chi2.ppf(LEVEL, count) / share**2, count)
    found = np.mean([_p(share * rng.standard_normal(count)) <= LEVEL for _ in range(300)])
    assert found >= 0.9 * best - 2 * np.sqrt(best * (1 - best) / 300)


def test_another_shape_beyond_the_first_thousand_numbers_is_found() -> None:
    rng = np.random.default_rng(7)
    values = np.concatenate([rng.standard_normal(1000), rng.laplace(0, 1 / np.sqrt(2), 3000)])
    found = noise_in_blocks([("sums", values)])
    assert found is not None
    assert found.p <= LEVEL
    assert "shape" in found.block
