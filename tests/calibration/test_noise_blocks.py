"""The statistical question about noise: p-values of honest runs are uniform, and too little noise is found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from fedassay.audits.claim.tape.blocks import LEVEL, BlockTest, noise_in_blocks
from fedassay.audits.claim.tape.streams import standardised
from fedassay.privacy.mechanisms import Sums, noised_sums
from fedassay.privacy.tape import Door, Draw, Key, taped
from fedassay.support.seeds import Seeds

RUNS = 400


def _run(seed: int, share: float = 1.0) -> BlockTest:
    """One honest run through the door: counts, sums and a symmetric matrix; `share` of the noise in one window."""
    exact = Sums(np.zeros(4), np.ones((4, 60)), np.eye(20))
    with taped() as tape:
        noised_sums(exact, (2.0, 2.0, 2.0), Door(Seeds(seed).child("noise"), Key("client/0", 0, "s")), full=True)
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
