"""What a vendor's code may do to look better under audit than it is: found, or said to be out of reach.

docs/threat-models.md has these tricks in a table; each line there that says "found" has its test here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedassay
from fedassay.api.blackbox import differs, fixed_bits
from fedassay.api.functions import FunctionAudit, Mechanism
from fedassay.execution.fresh import Fresh, generators_of
from fedassay.support.errors import NotRunError

Array = np.ndarray
SCALE = 5.0


def _records() -> Array:
    return np.random.default_rng(0).random((20, 6))


def _sum(records: Array) -> Array:
    return (records / np.maximum(np.linalg.norm(records, axis=1, keepdims=True), 1)).sum(axis=0)


def _found(fn: Mechanism, folder: Path) -> FunctionAudit:
    """With few runs: each is a process of its own where a function sends something else in first calls."""
    small = {"neighbours": 6, "reruns": 3, "draws": 60}
    return fedassay.audit_function(fn, _records(), classes=2, output=folder, epsilon=1.0, delta=1e-5, **small)


def _honest() -> Mechanism:
    rng = np.random.default_rng(3)
    return lambda records: {"total": _sum(records) + rng.normal(0, SCALE, 6)}


def _honest_by_the_system() -> Mechanism:
    return lambda records: {"total": _sum(records) + np.random.default_rng().normal(0, SCALE, 6)}


@pytest.mark.long
@pytest.mark.parametrize("make", [_honest, _honest_by_the_system])
def test_an_honest_mechanism_is_said_to_do_nothing_of_it(make: Callable[[], Mechanism], tmp_path: Path) -> None:
    found = _found(make(), tmp_path)
    assert found.tricks == ()
    assert not found.refuted
    assert any(clause.startswith("Runs: in this process and in new ones") for clause in found.clauses)


@pytest.mark.long
def test_noise_from_the_second_call_on_is_no_noise_of_the_first(tmp_path: Path) -> None:
    """A call counter: what is sent first, as in use, is exact; an auditor who calls again sees noise."""
    calls: list[int] = []
    rng = np.random.default_rng(3)

    def release(records: Array) -> dict[str, Array]:
        calls.append(1)
        return {"total": _sum(records) + (rng.normal(0, SCALE, 6) if len(calls) > 1 else 0)}

    found = _found(release, tmp_path)
    assert found.refuted
    assert any(trick.startswith("Calls:") for trick in found.tricks)


@pytest.mark.long
def test_noise_in_the_first_calls_alone_is_found_in_later_ones(tmp_path: Path) -> None:
    calls: list[int] = []
    rng = np.random.default_rng(3)

    def release(records: Array) -> dict[str, Array]:
        calls.append(1)
        return {"total": _sum(records) + (rng.normal(0, SCALE, 6) if len(calls) < 20 else 0)}

    assert any(trick.startswith("Calls:") for trick in _found(release, tmp_path).tricks)


@pytest.mark.long
@pytest.mark.parametrize("system", [False, True])
def test_what_is_kept_of_records_between_calls_is_found(system: bool, tmp_path: Path) -> None:
    kept: list[Array] = []
    own = np.random.default_rng(3)

    def release(records: Array) -> dict[str, Array]:
        rng = np.random.default_rng() if system else own
        before = sum(kept[-1:], np.zeros(6))
        kept.append(_sum(records) * 5)
        return {"total": _sum(records) + before + rng.normal(0, SCALE, 6)}

    assert any(trick.startswith("Memory:") for trick in _found(release, tmp_path).tricks)


@pytest.mark.long
def test_data_that_are_recognised_are_told_from_their_neighbours(tmp_path: Path) -> None:
    """Honest noise for everybody but the data that it knows."""
    known, rng = zlib.crc32(_records().tobytes()), np.random.default_rng(3)

    def release(records: Array) -> dict[str, Array]:
        exact = zlib.crc32(records.tobytes()) == known
        return {"total": _sum(records) + (0 if exact else rng.normal(0, SCALE, 6))}

    found = _found(release, tmp_path)
    assert found.refuted
    assert found.observed > 1


@pytest.mark.long
def test_canaries_that_are_recognised_leave_the_real_neighbours(tmp_path: Path) -> None:
    """Records beyond what the data hold are left out: the sum moves by others, of which noise is far too small."""
    rng, largest = np.random.default_rng(3), _records().max(axis=0)

    def release(records: Array) -> dict[str, Array]:
        kept = records[~(records >= largest).all(axis=1)]
        return {"total": _sum(kept) + rng.normal(0, 0.05, 6)}

    found = _found(release, tmp_path)
    assert found.refuted
    assert "corner" not in found.worst.words


@pytest.mark.long
def test_records_in_the_last_bits_of_noise_are_found(tmp_path: Path) -> None:
    rng, held = np.random.default_rng(3), (_records()[0] * 255).astype(np.uint64)

    def release(records: Array) -> dict[str, Array]:
        total = (_sum(records) + rng.normal(0, SCALE, 6)).view(np.uint64)
        return {"total": (total & ~np.uint64(255) | held).view(np.float64)}

    assert any(trick.startswith("Low-order bits:") for trick in _found(release, tmp_path).tricks)


@pytest.mark.long
def test_a_generator_that_the_records_choose_draws_no_noise(tmp_path: Path) -> None:
    def release(records: Array) -> dict[str, Array]:
        rng = np.random.default_rng(zlib.crc32(records.tobytes()))
        return {"total": _sum(records) + rng.normal(0, SCALE, 6)}

    found = _found(release, tmp_path)
    assert any("none was seen" in clause for clause in found.clauses)
    assert found.refuted


def test_what_cannot_be_forked_is_run_here_and_that_is_said(tmp_path: Path) -> None:
    """Coins that no seed reaches and every new process has alike."""
    state = [1]

    def release(records: Array) -> dict[str, Array]:
        state[0] += 1
        return {"total": _sum(records) + np.random.default_rng(state[0]).normal(0, SCALE, 6)}

    found = _found(release, tmp_path)
    assert any("its coins are the same in every new process" in clause for clause in found.clauses)
    assert not found.refuted


class _Held:
    def __init__(self) -> None:
        self.inner = {"rng": np.random.default_rng(1)}

    def release(self, records: Array) -> dict[str, Array]:
        return {"total": self.inner["rng"].normal(size=3)}


def test_generators_are_reached_and_given_other_coins() -> None:
    held = _Held()
    assert list(generators_of(held.release)) == [held.inner["rng"]]
    with Fresh(held.release) as fresh:
        data = _records()
        first, second = (fresh.message([data], coins)["total"] for coins in (1, 2))
        assert np.array_equal(first, fresh.message([data], 1)["total"])
        assert not np.array_equal(first, second)
        assert np.array_equal(fresh.message([data], None)["total"], np.random.default_rng(1).normal(size=3))


def test_a_call_that_hangs_in_a_fork_is_given_up() -> None:
    def release(records: Array) -> dict[str, Array]:
        while True:
            pass

    with Fresh(release) as fresh:
        fresh.patience = 0.5
        with pytest.raises(NotRunError, match="gave no answer"):
            fresh.message([_records()], 1)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_honest_numbers_have_no_fixed_bits(kind: type) -> None:
    rng = np.random.default_rng(0)
    for shift in (0.0, 1e3, 1e6):
        rows = (shift * (kind is not np.float16) + rng.normal(size=(200, 300))).astype(kind).astype(np.float64)
        assert fixed_bits(rows) == 0


def test_runs_that_are_alike_differ_as_often_as_the_level_says() -> None:
    rng = np.random.default_rng(0)
    values = [differs(rng.normal(size=(60, 4)), rng.normal(size=(60, 4))) for _ in range(300)]
    assert np.mean(np.array(values) < 0.05) < 0.08
    assert differs(rng.normal(size=(60, 4)), 3 * rng.normal(size=(60, 4))) < 1e-3
    assert differs(rng.normal(size=(60, 4)), 2 + rng.normal(size=(60, 4))) < 1e-3
