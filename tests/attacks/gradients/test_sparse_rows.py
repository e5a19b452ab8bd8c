"""Inputs of a linear layer from its gradient: what algebra gives back, and what it must not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gradients.sparse_rows import Inputs, layer_inputs, unit_agreement
from fedassay.attacks.gradients.targets import Layer

Matrix = NDArray[np.float64]


def layer(
    records: int, units: int = 96, width: int = 40, kind: type[np.floating] = np.float32
) -> tuple[Matrix, Layer]:
    """Inputs of a layer under a rectifier, and its gradient."""
    rng = np.random.default_rng(records)
    inputs = rng.uniform(-1, 1, (records, width))
    weights, bias = rng.normal(size=(units, width)), rng.normal(size=units)
    errors = rng.normal(size=(records, units)) * (inputs @ weights.T + bias > 0)
    return inputs, Layer("0", (errors.T @ inputs).astype(kind), errors.sum(axis=0).astype(kind), (weights, bias))


def found(own: Layer, *, rounds: int = 10, known: bool = True) -> Inputs:
    def agrees(rows: Matrix) -> NDArray[np.bool_]:
        return unit_agreement(rows, own) > 0.95

    rng = np.random.default_rng(0)
    return layer_inputs(
        own.gradient, own.bias_gradient, rng, most=32, rounds=rounds, agrees=agrees if known else None
    )


def errors(rows: Matrix, inputs: Matrix) -> Matrix:
    """Relative distance of each input to the nearest row."""
    away = np.linalg.norm(inputs[:, None] - rows[None], axis=2).min(axis=1)
    return np.asarray(away / np.linalg.norm(inputs, axis=1))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("records", "kind"), [(1, np.float32), (2, np.float64), (4, np.float32), (8, np.float64)])
def test_inputs_of_every_record_come_back(records: int, kind: type[np.floating], known: bool) -> None:
    inputs, own = layer(records, kind=kind)
    result = found(own, known=known)
    assert result.complete
    assert result.rank == len(result.rows) == records
    assert errors(result.rows, inputs).max() < (1e-4 if kind is np.float32 else 1e-9)
    assert unit_agreement(result.rows, own).min() > 0.95


def test_a_common_factor_and_the_sign_change_nothing() -> None:
    inputs, own = layer(4)
    scaled = Layer("0", np.float32(-0.01) * own.gradient, np.float32(-0.01) * own.bias_gradient, own.weights)
    assert errors(found(scaled).rows, inputs).max() < 1e-4


def test_records_that_are_alone_at_two_units_come_back_where_the_rest_does_not() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.uniform(size=(12, 40))
    parts = rng.normal(size=(12, 30))
    parts[1:, :3] = 0
    own = Layer("0", parts.T @ inputs, parts.sum(axis=0), None)
    result = layer_inputs(own.gradient, own.bias_gradient, rng, most=4, rounds=1)
    assert not result.complete
    assert result.rank == 12
    assert len(result.rows) == 1
    assert errors(result.rows, inputs)[0] < 1e-9


def test_noise_gives_nothing_back() -> None:
    inputs, own = layer(4)
    noise = np.random.default_rng(1).normal(size=own.gradient.shape) * np.abs(own.gradient).max()
    noised = Layer("0", (own.gradient + noise).astype(np.float32), own.bias_gradient, own.weights)
    result = found(noised, rounds=2)
    assert not result.complete
    assert result.rank == 40 + 1
    assert len(result.rows) == 0
    assert errors(result.strongest, inputs).min() > 0.3


def test_a_client_without_records_has_no_inputs() -> None:
    result = layer_inputs(np.zeros((5, 3)), np.zeros(5), np.random.default_rng(0), most=4, rounds=1)
    assert result.rank == 0
    assert result.rows.shape == (0, 3)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_one_record_comes_back_without_a_factorization(
    kind: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    record, behind = rng.normal(size=50), np.maximum(rng.normal(size=30), 0)
    gradient = np.outer(behind, np.append(record, 1.0)).astype(kind)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("no factorization is needed")

    with monkeypatch.context() as patched:
        patched.setattr(np.linalg, "svd", refused)
        found = layer_inputs(gradient[:, :-1], gradient[:, -1], np.random.default_rng(0), most=8, rounds=8)
    assert found.rank == 1
    assert found.complete
    np.testing.assert_allclose(found.rows[0], record, rtol=1e-5 if kind is np.float32 else 1e-12)
    # A fainter second record is not taken for rounding of the first.
    other = np.outer(np.maximum(rng.normal(size=30), 0), np.append(rng.normal(size=50), 1.0))
    twice = gradient.astype(np.float64) + 1e-3 * other
    assert layer_inputs(twice[:, :-1], twice[:, -1], np.random.default_rng(0), most=8, rounds=8).rank == 2
