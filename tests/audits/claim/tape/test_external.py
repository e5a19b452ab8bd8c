"""Mechanisms of other libraries on known inputs: what refutes a promise, and that an honest one is left alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.audits.claim.tape import external
from fedassay.audits.claim.tape.external import broken_promise
from fedassay.methods.feddiff.magnitudes import pydp_means
from fedassay.methods.feddiff.pydp_law import drawn_means
from fedassay.privacy.tape import ExternalMechanism, Key, NoiseMechanism, taped
from fedassay.support.seeds import Seeds

Floats = NDArray[np.float64]
COLUMNS, BOUNDS = 64, (0.0, 16.0)


def _sealed(
    mechanism: Callable[[Floats], Floats], epsilon: float, library: str = "somebody's"
) -> ExternalMechanism:
    key = Key("client/0", 0, "magnitude_mean", part="mean")
    return ExternalMechanism(key, library, epsilon, BOUNDS, np.zeros(COLUMNS), mechanism)


def _pydp(epsilon: float) -> Callable[[Floats], Floats]:
    return lambda values: pydp_means(values, epsilon, BOUNDS)


def _law(epsilon: float) -> Callable[[Floats], Floats]:
    draws = np.random.default_rng(4)
    return lambda values: drawn_means(values, epsilon, BOUNDS, draws)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.1, 6.4, 64.0])
def test_the_law_of_pydp_keeps_its_promise(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five runs at each epsilon, as of PyDP itself below: the law is held to PyDP in `tests/methods/feddiff`."""
    draws = np.random.default_rng(4)

    def reference(column: Floats, share: float, bounds: tuple[float, float]) -> float:
        return float(drawn_means(column[:, None], share, bounds, draws)[0])

    monkeypatch.setitem(external._REFERENCES, "PyDP", reference)
    entry = _sealed(_law(epsilon / COLUMNS), epsilon, "PyDP")
    assert [broken_promise(entry, np.random.default_rng(seed)) for seed in range(5)] == [""] * 5


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 6.4, 64.0])
def test_pydp_keeps_its_promise(epsilon: float) -> None:
    entry = _sealed(_pydp(epsilon / COLUMNS), epsilon, "PyDP")
    assert [broken_promise(entry, np.random.default_rng(seed)) for seed in range(5)] == [""] * 5


def test_a_mechanism_without_noise_is_found() -> None:
    entry = _sealed(lambda values: values.mean(axis=0), 64.0)
    assert "no noise" in broken_promise(entry, np.random.default_rng(0))


@pytest.mark.long
def test_an_epsilon_that_is_not_split_over_the_columns_is_found() -> None:
    entry = _sealed(_pydp(10.0), 10.0)
    assert "on known inputs" in broken_promise(entry, np.random.default_rng(0))


@pytest.mark.long
@pytest.mark.parametrize("factor", [2.0, COLUMNS])
def test_a_small_epsilon_that_is_exceeded_is_found_where_the_library_is_known(factor: float) -> None:
    entry = _sealed(_pydp(factor * 0.1 / COLUMNS), 0.1, "PyDP")
    assert "not those of PyDP" in broken_promise(entry, np.random.default_rng(0))


def test_half_the_noise_is_found() -> None:
    # Found 31 times of 40. PyDP takes no seed; its law does.
    entry = _sealed(_law(4.0), 2.0 * COLUMNS)
    found = ["on known inputs" in broken_promise(entry, np.random.default_rng(seed)) for seed in range(5)]
    assert sum(found) >= 3


def test_a_third_of_the_noise_of_pydp_itself_is_found() -> None:
    """Its law is found in 40 of 40 runs so far below its promise."""
    entry = _sealed(_pydp(6.0), 2.0 * COLUMNS)
    assert "on known inputs" in broken_promise(entry, np.random.default_rng(0))


@pytest.mark.long
def test_a_tight_mechanism_is_accused_no_more_often_than_said() -> None:
    """A Laplace mechanism that spends its whole epsilon, two hundred times at the level of one in ten thousand."""
    draws = np.random.default_rng(1)

    def tight(values: Floats) -> Floats:
        return np.asarray(values.sum(axis=0) + draws.laplace(0, BOUNDS[1] / 1.0, values.shape[1]), np.float64)

    entry = _sealed(tight, 1.0 * COLUMNS)
    accused = sum(bool(broken_promise(entry, np.random.default_rng(seed))) for seed in range(200))
    assert accused <= 1


def test_what_a_resumed_run_no_longer_has_is_not_tested_here() -> None:
    entry = ExternalMechanism(Key("client/0", 0, "magnitude_mean"), "somebody's", 1.0, BOUNDS, np.zeros(COLUMNS))
    assert broken_promise(entry, np.random.default_rng(0)) == ""


def _own(records: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).gamma(2.0, 1.5, (records, COLUMNS)).clip(*BOUNDS)


def _run(
    mechanism: Callable[[Floats], Floats], epsilon: float, library: str, records: int = 57
) -> ExternalMechanism:
    values = _own(records)
    key = Key("client/0", 0, "magnitude_mean", part="mean")
    return ExternalMechanism(key, library, epsilon, BOUNDS, mechanism(values), mechanism, values)


def _without_noise(honest: Callable[[Floats], bool], epsilon: float) -> Callable[[Floats], Floats]:
    """PyDP where somebody may look, and plain means where nobody is expected to."""

    def mechanism(values: Floats) -> Floats:
        return _pydp(epsilon / COLUMNS)(values) if honest(values) else values.mean(axis=0)

    return mechanism


@pytest.mark.long
@pytest.mark.parametrize("library", ["PyDP", "somebody's"])
@pytest.mark.parametrize(
    "honest",
    [
        lambda values: len(np.unique(values)) <= 2,
        lambda values: len(values) in (3, 4, 1000),
        lambda values: len(values) != 57,
        lambda values: len(np.unique(values[0])) < COLUMNS,
        lambda values: not np.array_equal(values, _own(57)),
    ],
    ids=["two values", "some row counts", "not the run's row count", "tables", "not the run's inputs"],
)
def test_honesty_on_some_inputs_only_is_found(honest: Callable[[Floats], bool], library: str) -> None:
    entry = _run(_without_noise(honest, 64.0), 64.0, library)
    assert broken_promise(entry, np.random.default_rng(0))


@pytest.mark.long
@pytest.mark.parametrize(
    ("epsilon", "library"),
    [
        (64.0, "PyDP"),
        pytest.param(6.4, "somebody's", marks=pytest.mark.slow),
        pytest.param(640.0, "PyDP", marks=pytest.mark.slow),
    ],
)
def test_an_honest_run_is_left_alone(epsilon: float, library: str) -> None:
    entry = _run(_pydp(epsilon / COLUMNS), epsilon, library)
    assert broken_promise(entry, np.random.default_rng(1)) == ""


@pytest.mark.parametrize(
    "copies",
    [
        np.arange(COLUMNS) // 2,
        np.arange(COLUMNS) % (COLUMNS // 2),
        np.random.default_rng(2).permutation(COLUMNS) // 2,
        np.concatenate([[0], np.arange(COLUMNS - 1)]),
    ],
    ids=["neighbours", "halves", "pairs at random", "one pair"],
)
def test_noise_that_columns_share_is_found(copies: NDArray[np.int64]) -> None:
    draws = np.random.default_rng(3)

    def mechanism(values: Floats) -> Floats:
        noise = draws.laplace(0, BOUNDS[1] / len(values), COLUMNS)
        return np.asarray(values.mean(axis=0) + noise[copies], np.float64)

    assert "share their noise" in broken_promise(_run(mechanism, 64.0, "somebody's"), np.random.default_rng(0))


def test_the_door_keeps_what_went_in() -> None:
    values = _own(5)
    with taped() as tape:
        noise_mechanism = NoiseMechanism(Seeds(0), Key("client/0", 0, "magnitude_mean"))
        noise_mechanism.seal("mean", "PyDP", 64.0, _pydp(1.0), values, BOUNDS)
    (entry,) = tape.draws.values()
    assert isinstance(entry, ExternalMechanism)
    assert entry.values is not None
    np.testing.assert_array_equal(entry.values, values)
