"""Gram factorization on synthetic features whose truth is known, and on digits through the real methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from gram_messages import CLASSES, KNOWLEDGE, attacked, errors, message, sparse, vectors
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import Message, MessageField
from fedassay.exchange.view import ThreatModel, View, view
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.privacy.symmetric import symmetric_noise
from fedassay.support.errors import NotRunError

Matrix = NDArray[np.float64]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"packed": True},
        {"leave_out": ("N",)},
        {"leave_out": ("N", "A")},
    ],
    ids=["full", "packed", "counts hidden", "second moment alone"],
)
@pytest.mark.parametrize("n", [5, 16])
def test_sparse_features_come_back(n: int, how: Mapping[str, Any]) -> None:
    features, labels = sparse(n)
    result = attacked(message(features, labels, **how))
    assert errors(vectors(result), features).max() < 1e-6
    assert result.scores["records"].tolist() == [n]
    source = result.vectors[0]
    assert source.name == "gram_factorization"
    assert (source.rows == -1).all()
    assert set(source.senders) == {"client/0"}
    if "A" in how.get("leave_out", ()):
        assert (source.labels == -1).all()
    else:
        for vector, label in zip(vectors(result), source.labels, strict=True):
            nearest = np.argmin(np.linalg.norm(features - vector, axis=1))
            assert labels[nearest] == label


@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e-5), (np.float16, 3e-2)])
def test_rounding_in_transport_costs_its_own_size(dtype: type, limit: float) -> None:
    features, labels = sparse(12)
    result = attacked(message(features / 20, labels, dtype=dtype, leave_out=("N",)))
    found = errors(vectors(result), features / 20)
    assert found.max() < limit
    # What the attack says of itself is the right order of magnitude.
    assert 0.05 < np.median(result.scores["expected_error"]) / np.median(found) < 20


def test_one_class_and_repeated_records() -> None:
    features, labels = sparse(12, zeros=0.7)
    features[3], labels = features[2], np.zeros_like(labels)
    for left_out in ((), ("N",)):
        result = attacked(message(features, labels, leave_out=left_out))
        assert errors(vectors(result), features).max() < 1e-6
        assert result.scores["rank"].tolist() == [11]


def test_few_zeros_are_enough() -> None:
    features, labels = sparse(8, width=128, zeros=0.1)
    assert errors(vectors(attacked(message(features, labels))), features).max() < 1e-6


def test_dense_features_are_reported_as_not_recovered() -> None:
    """Without zeros the factorization is not unique: the attack must know that it has failed."""
    rng = np.random.default_rng(0)
    features, labels = 1 + rng.random((16, 64)), np.zeros(16, np.int64)
    result = attacked(message(features, labels), trust=1e9)
    found = errors(vectors(result), features)
    assert np.median(found) > 0.05
    assert np.median(result.scores["expected_error"]) > 0.3 * np.median(found)
    assert result.scores["expected_error"].min() > 1e-3


def test_the_sum_over_clients_hides_nothing_while_records_are_few() -> None:
    features, labels = sparse(24)
    clients = [message(features[i::4], labels[i::4], secure=True, sender=f"client/{i}") for i in range(4)]
    result = attacked(*clients)
    assert set(result.vectors[0].senders) == {"aggregate"}
    assert errors(vectors(result), features).max() < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_records_that_others_took_the_place_of_are_not_made_up(dtype: type) -> None:
    """A difference of either sign is no second moment, though independent runs may well agree on vectors of it."""
    features, labels = sparse(48, width=96)
    for swapped in (1, 4, 8):
        messages = (
            message(features[first : first + 40], labels[first : first + 40], number=number, dtype=dtype)
            for number, first in ((0, 0), (1, swapped))
        )
        result = attacked(*messages)
        assert result.artifacts["target"].max() == 1
        assert "records came and others went" in str(result.artifacts["reasons"][2])


def test_what_came_between_two_messages_comes_back_whatever_stayed() -> None:
    features, labels = sparse(80, width=48)
    first, second = (message(features[:n], labels[:n], number=r) for r, n in ((0, 74), (1, 80)))
    for messages in ((first, second), (message(features, labels), message(features[:74], labels[:74], number=1))):
        result = attacked(*messages, max_records=40)
        assert errors(vectors(result), features[74:]).max() < 1e-6
        assert result.vectors[0].labels.tolist() == sorted(labels[74:])
    assert "records are above max_records" in result.notes[0]
    with_none = attacked(first, second, differences=False, max_records=40)
    assert not with_none.vectors


def test_means_with_full_covariances_are_second_moments() -> None:
    features, labels = sparse(20)
    groups = [features[labels == label] for label in range(CLASSES)]
    for ddof in (0, 1):
        fields = {
            "counts": MessageField(np.array([len(group) for group in groups]), "class_counts", exact()),
            "means": MessageField(np.stack([group.mean(axis=0) for group in groups]), "class_means", exact()),
            "covariances": MessageField(
                np.stack([np.cov(group.T, ddof=ddof) for group in groups]), "class_covariances", exact()
            ),
        }
        result = attacked(Message(0, "client/0", "server", fields))
        assert errors(vectors(result), features).max() < 1e-6


def test_noise_hides_the_records_and_is_named() -> None:
    features, labels = sparse(8)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    plain = message(features, labels)
    rng = np.random.default_rng(0)
    release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(0.8,), sensitivity=(1.7,))
    noise = {"N": rng.normal(0, 0.8, 4), "A": rng.normal(0, 0.8, (4, 96)), "B": symmetric_noise(96, 0.8, rng)}
    for said in (release, exact()):  # declared, or only to be seen in the spectrum
        fields = {
            name: MessageField(item.values + noise[name], item.kind, said) for name, item in plain.fields.items()
        }
        result = attacked(Message(0, "client/0", "server", fields))
        assert not result.vectors
        assert result.scores["recovered"].tolist() == [0]
        assert "stands out from noise" in result.notes[0]


def test_little_noise_is_averaged_out() -> None:
    """A relative error below what the raw eigenvectors would give."""
    features, labels = sparse(8)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    plain = message(features, labels)
    noise = symmetric_noise(96, 0.01, np.random.default_rng(0))
    release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(0.01,), sensitivity=(1.7,))
    fields = {**plain.fields, "B": MessageField(plain.fields["B"].values + noise, "second_moment", release)}
    result = attacked(Message(0, "client/0", "server", fields))
    assert np.median(errors(vectors(result), features)) < 0.12


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (np.random.default_rng(0).normal(size=(6, 32)), "signed"),
        (sparse(20)[0], "above max_records 18"),
    ],
)
def test_what_cannot_be_done_is_said(features: Matrix, reason: str) -> None:
    result = attacked(message(features, np.arange(len(features)) % CLASSES), max_records=18)
    assert not result.vectors
    assert reason in result.notes[0]
    assert np.isnan(result.scores["recovered"]).all()


def test_a_view_without_second_moments_is_not_attacked() -> None:
    counts = {"N": MessageField(np.array([1, 2, 3, 4]), "class_counts", exact())}
    with pytest.raises(NotRunError, match="no second moment"):
        GramFactorization().run(View((Message(0, "client/0", "server", counts),), 4, ThreatModel()), KNOWLEDGE)


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(1, 10))
def test_the_order_of_records_and_features_means_nothing(seed: int, n: int) -> None:
    features, labels = sparse(n, width=64, seed=seed)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(n), rng.permutation(64)
    mixed = features[rows][:, columns]
    found = vectors(attacked(message(mixed, labels[rows])))
    assert errors(found[:, np.argsort(columns)], features).max() < 1e-6
    assert errors(vectors(attacked(message(features, labels))), features).max() < 1e-6


def test_the_same_seed_gives_the_same_bits() -> None:
    features, labels = sparse(10)
    first, second = (attacked(message(features, labels)) for _ in range(2))
    np.testing.assert_array_equal(vectors(first), vectors(second))


@pytest.mark.parametrize("hidden", ["none", "counts", "all"])
def test_fedcgs_on_digits(make_task: Callable[..., MethodInput], hidden: str) -> None:
    task = make_task(clients=3, records=24)
    outcome = FedCGS.model_validate({"secure_aggregation": hidden}).run(task)
    result = GramFactorization().run(view(outcome.transcript, ThreatModel()), KNOWLEDGE)
    features = np.concatenate([client.features for client in task.clients]).astype(np.float64)
    assert np.median(errors(vectors(result), features)) < 1e-6


def test_fedpft_with_one_full_component_on_digits(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=1, records=20, labels_of=[0, 1])
    method = FedPFT.model_validate({"components": 1, "covariance": "full", "transport": "float32"})
    result = GramFactorization().run(view(method.run(task).transcript, ThreatModel()), KNOWLEDGE)
    features = task.clients[0].features.astype(np.float64)
    found = vectors(result)
    assert len(found) == len(features)
    assert np.median(errors(found, features)) < 0.05
