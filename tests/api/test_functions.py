"""Functions of records as black boxes: missing noise, too little of it, honest noise, and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedassay
from fedassay.api.functions import Mechanism


def _records() -> np.ndarray:
    return np.random.default_rng(0).random((20, 6))


def _sum(scale: float) -> Mechanism:
    """The sum of records of norm at most 1, and Gaussian noise by a generator of its own."""
    rng = np.random.default_rng(1)

    def release(records: np.ndarray) -> dict[str, np.ndarray]:
        clipped = records / np.maximum(np.linalg.norm(records, axis=1, keepdims=True), 1)
        return {"total": clipped.sum(axis=0) + rng.normal(0, scale, 6) if scale else clipped.sum(axis=0)}

    return release


@pytest.mark.long
@pytest.mark.parametrize(("scale", "refuted"), [(0.0, True), (0.1, True), (5.0, False)])
def test_a_claim_is_held_against_the_worst_neighbour(tmp_path: Path, scale: float, refuted: bool) -> None:
    """Scale 5 at sensitivity 1 gives epsilon 0.9 at delta 1e-5; scale 0.1 more than 70."""
    found = fedassay.audit_function(
        _sum(scale), _records(), classes=2, output=tmp_path, epsilon=1.0, delta=1e-5, draws=400
    )
    assert found.refuted == refuted, found.clauses
    said = " ".join(found.clauses)
    assert ("infinite if there is no noise" in said) == (scale == 0)
    assert "tested on 12 neighbours, not exact" in said
    assert "code that behaves otherwise when it is audited" in said


@pytest.mark.long
def test_memory_between_runs_is_said(tmp_path: Path) -> None:
    calls: list[int] = []

    def release(records: np.ndarray) -> dict[str, np.ndarray]:
        calls.append(len(records))
        return {"total": np.array([float(20 in calls and 19 in calls), float(len(records))])}

    found = fedassay.audit_function(release, _records(), classes=2, output=tmp_path)
    assert any(clause.startswith("Memory:") for clause in found.clauses)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"reruns": 1}, "reruns: given 1; allowed: 2 or more"),
        ({"neighbours": 1.5}, r"neighbours: given 1\.5; allowed: 1 or more"),
        ({"draws": True}, "draws: given true; allowed: 40 or more"),
        ({"epsilon": True}, "epsilon: given true; allowed: above 0, or None"),
        ({"epsilon": "2"}, "epsilon: given '2'; allowed: above 0, or None"),
        ({"delta": "1e-5"}, "delta: given '1e-5'; allowed: 0 to below 1"),
        ({"classes": 2.5}, r"classes: given 2\.5; allowed: 1 or more"),
        ({"output": None}, "output: given null; allowed: a new folder"),
        ({"fn": 3}, "fn: given 3; allowed: a function of an array"),
        ({"records": _records()[:1]}, "records: given 1; allowed: 2 or more"),
    ],
)
def test_arguments_out_of_range_are_refused(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    arguments = {"fn": _sum(1.0), "records": _records(), "classes": 2, "output": tmp_path, **given}
    with pytest.raises(fedassay.PlanError, match=says):
        fedassay.audit_function(**arguments)


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (iter(_records()), "given generator|given .*iterator"),
        ({"x": _records()}, "given dict"),
        ((_records(), np.zeros(20)), "given tuple"),
        (b"abc", "given bytes"),
        (_records() + 1j, "given ndarray of complex128"),
        (np.ma.masked_array(_records(), _records() < 0.5), "given MaskedArray of float64"),
        (np.float64(3), "given one number"),
        (np.where(_records() > 0.9, np.nan, _records()), "given NaN or infinite values"),
    ],
)
def test_records_that_are_no_numbers_are_refused(records: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(fedassay.DataError, match=f"records: ({says}); allowed: an array"):
        fedassay.audit_function(_sum(1.0), records, classes=2, output=tmp_path)


def test_a_message_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fedassay.DataError, match="the function gave NaN or infinite values"):
        fedassay.audit_function(lambda data: {"s": data.sum() * np.nan}, _records(), classes=2, output=tmp_path)


@pytest.mark.long
def test_lists_and_tensors_are_arrays(tmp_path: Path) -> None:
    for number, records in enumerate((_records().tolist(), torch.tensor(_records(), requires_grad=True))):
        output = tmp_path / str(number)
        found = fedassay.audit_function(
            _sum(0.0), records, classes=2, output=output, neighbours=1, reruns=2, draws=40
        )
        assert found.worst.moved > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("sent", "given"),
    [
        (None, "null"),
        (np.zeros(3), "array"),
        ([np.zeros(3)], "a list"),
        ({}, "a mapping"),
        ({1: np.zeros(3)}, "keys \\[1\\]"),
        ({"a": np.zeros(3), 2: np.zeros(3)}, "keys \\['a', 2\\]"),
    ],
)
def test_a_function_that_gives_no_message_is_refused(sent: object, given: str, tmp_path: Path) -> None:
    with pytest.raises(fedassay.DataError, match=f"the function gave .*{given}.*; allowed: a mapping of"):
        fedassay.audit_function(lambda records: sent, _records(), classes=2, output=tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("sent", [{"a": None}, {"a": "text"}, {"a": {"b": 1}}])
def test_a_field_that_is_no_array_is_refused(sent: object, tmp_path: Path) -> None:
    with pytest.raises(fedassay.DataError, match=r"a: given .*; allowed: an array of numbers"):
        fedassay.audit_function(lambda records: sent, _records(), classes=2, output=tmp_path)  # type: ignore[arg-type]
