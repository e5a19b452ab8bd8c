"""A ridge is read off a regularised second moment, or its inverse, as the algebra has it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import Release, exact
from fedassay.exchange.ridge import regularised, sums_from_weights
from fedassay.mixtures.packed import pack_lower

Matrix = NDArray[np.float64]
NOISED = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(0.01,), sensitivity=(1.0,))
GAMMA = 0.3


def _records(records: int, width: int) -> Matrix:
    return np.random.default_rng(records).standard_normal((records, width))


def _message(kind: FieldKind, values: NDArray[np.floating], release: Release | None = None) -> Message:
    return Message(0, "client/0", SERVER, {"C": MessageField(values, kind, release or exact())})


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("packed", [False, True])
def test_fewer_records_than_features_give_the_ridge(dtype: type, packed: bool) -> None:
    """gamma is the eigenvalue of multiplicity d - rank."""
    own = _records(5, 12)
    second = own.T @ own + GAMMA * np.eye(12)
    found = regularised(_message("regularised_gram", (pack_lower(second) if packed else second).astype(dtype)))
    assert found is not None
    assert found.certain
    assert found.unit == np.finfo(dtype).eps / 2
    assert found.gamma == pytest.approx(GAMMA, rel=1e-5 if dtype is np.float32 else 1e-12)
    np.testing.assert_allclose(found.without(GAMMA), own.T @ own, atol=1e-5 if dtype is np.float32 else 1e-12)


def test_an_inverse_gives_the_same() -> None:
    own = _records(5, 12)
    second = own.T @ own + GAMMA * np.eye(12)
    found = regularised(_message("inverse_gram", np.linalg.inv(second)))
    assert found is not None
    assert found.certain
    assert found.gamma == pytest.approx(GAMMA, rel=1e-9)
    np.testing.assert_allclose(found.second, second, rtol=1e-9, atol=1e-9)
    assert regularised(_message("inverse_gram", -np.eye(3))) is None
    assert regularised(_message("second_moment", second)) is None


def test_at_full_rank_the_smallest_eigenvalue_is_a_bound() -> None:
    own = _records(40, 12)
    second = own.T @ own + GAMMA * np.eye(12)
    found = regularised(_message("regularised_gram", second))
    assert found is not None
    assert not found.certain
    assert found.gamma == pytest.approx(float(np.linalg.eigvalsh(second)[0]))
    assert found.gamma > GAMMA


def test_a_feature_that_is_never_active_gives_it_at_full_rank() -> None:
    own = _records(40, 12)
    own[:, [2, 7]] = 0
    second = own.T @ own + GAMMA * np.eye(12)
    found = regularised(_message("regularised_gram", second))
    assert found is not None
    assert found.certain
    assert found.gamma == GAMMA


def test_under_noise_the_eigenvalues_within_its_reach_are_alike() -> None:
    own = 3 * _records(5, 40)
    noise = np.random.default_rng(0).standard_normal((40, 40)) * 0.01
    second = own.T @ own + GAMMA * np.eye(40) + (noise + noise.T) / np.sqrt(2)
    found = regularised(_message("regularised_gram", second, NOISED))
    assert found is not None
    assert found.certain
    assert found.gamma == pytest.approx(GAMMA, abs=0.02)


def test_class_sums_come_back_from_ridge_weights() -> None:
    own, labels = _records(9, 6), np.arange(9) % 3
    sums = np.stack([own[labels == label].sum(axis=0) for label in range(3)])
    second = own.T @ own + GAMMA * np.eye(6)
    sent = _message("ridge_weights", sums @ np.linalg.inv(second))
    found = sums_from_weights(sent, second)
    assert found is not None
    np.testing.assert_allclose(found, sums, atol=1e-12)
    assert sums_from_weights(_message("head", np.ones((3, 6))), second) is None
