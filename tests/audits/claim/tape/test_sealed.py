"""Mechanisms of other libraries on known inputs: what refutes a promise, and that an honest one is left alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.audits.claim.tape.sealed import broken_promise
from fedassay.methods.feddiff.magnitudes import pydp_means
from fedassay.privacy.tape import Key, Sealed

Floats = NDArray[np.float64]
COLUMNS, BOUNDS = 64, (0.0, 16.0)


def _sealed(mechanism: Callable[[Floats], Floats], epsilon: float, library: str = "somebody's") -> Sealed:
    key = Key("client/0", 0, "magnitude_mean", part="mean")
    return Sealed(key, library, epsilon, BOUNDS, np.zeros(COLUMNS), mechanism)


def _pydp(epsilon: float) -> Callable[[Floats], Floats]:
    return lambda values: pydp_means(values, epsilon, BOUNDS)


@pytest.mark.parametrize("epsilon", [0.1, 6.4, 64.0])
def test_pydp_keeps_its_promise(epsilon: float) -> None:
    entry = _sealed(_pydp(epsilon / COLUMNS), epsilon, "PyDP")
    assert [broken_promise(entry, np.random.default_rng(seed)) for seed in range(5)] == [""] * 5


def test_a_mechanism_without_noise_is_found() -> None:
    entry = _sealed(lambda values: values.mean(axis=0), 64.0)
    assert "no noise" in broken_promise(entry, np.random.default_rng(0))


def test_an_epsilon_that_is_not_split_over_the_columns_is_found() -> None:
    entry = _sealed(_pydp(10.0), 10.0)
    assert "on known inputs" in broken_promise(entry, np.random.default_rng(0))


@pytest.mark.parametrize("factor", [2.0, COLUMNS])
def test_a_small_epsilon_that_is_exceeded_is_found_where_the_library_is_known(factor: float) -> None:
    entry = _sealed(_pydp(factor * 0.1 / COLUMNS), 0.1, "PyDP")
    assert "not those of PyDP" in broken_promise(entry, np.random.default_rng(0))


def test_half_the_noise_is_found() -> None:
    # PyDP's noise takes no seed, and the test misses it now and then.
    entry = _sealed(_pydp(4.0), 2.0 * COLUMNS)
    found = ["on known inputs" in broken_promise(entry, np.random.default_rng(seed)) for seed in range(5)]
    assert sum(found) >= 3


def test_a_tight_mechanism_is_accused_no_more_often_than_said() -> None:
    """A Laplace mechanism that spends its whole epsilon, two hundred times at the level of one in ten thousand."""
    draws = np.random.default_rng(1)

    def tight(values: Floats) -> Floats:
        return np.asarray(values.sum(axis=0) + draws.laplace(0, BOUNDS[1] / 1.0, values.shape[1]), np.float64)

    entry = _sealed(tight, 1.0 * COLUMNS)
    accused = sum(bool(broken_promise(entry, np.random.default_rng(seed))) for seed in range(200))
    assert accused <= 1


def test_what_a_resumed_run_no_longer_has_is_not_tested_here() -> None:
    entry = Sealed(Key("client/0", 0, "magnitude_mean"), "somebody's", 1.0, BOUNDS, np.zeros(COLUMNS))
    assert broken_promise(entry, np.random.default_rng(0)) == ""
