"""Functions of records as black boxes: missing noise, too little of it, honest noise, and memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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


def test_arguments_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(fedassay.PlanError, match="reruns: given 1; allowed: 2 or more"):
        fedassay.audit_function(_sum(1.0), _records(), classes=2, output=tmp_path, reruns=1)


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
