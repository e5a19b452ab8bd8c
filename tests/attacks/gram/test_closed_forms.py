"""What ridge regression and Gaussian heads send holds Gram matrices too: the same records come back from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gram_messages import CLASSES, KNOWLEDGE, attacked, errors, sparse, vectors
from numpy.typing import NDArray

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.attacks.gram.targets import targets
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.method import Method, MethodInput
from fedassay.exchange.gram import measure
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import Release, exact
from fedassay.exchange.ridge import regularised
from fedassay.exchange.statistics import gram_of
from fedassay.exchange.view import ThreatModel, View, view
from fedassay.methods.closed_forms.afl import AFL
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.mixtures.packed import pack_lower

Matrix = NDArray[np.float64]


def sent(fields: dict[FieldKind, Matrix], dtype: Any = np.float64, sender: str = "client/0") -> Message:
    made = {kind: MessageField(values.astype(dtype), kind, exact()) for kind, values in fields.items()}
    return Message(0, sender, SERVER, made)


def ridged(
    features: Matrix, labels: NDArray[np.int64], gamma: float, dtype: Any = np.float64, **names: Any
) -> Message:
    """As AFL sends it: W = A C^-1 and C = X^T X + gamma I."""
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    second = features.T @ features + gamma * np.eye(features.shape[1])
    weights = np.linalg.solve(second, features.T @ member).T
    return sent({"ridge_weights": weights, "regularised_gram": pack_lower(second)}, dtype, **names)


def labelled_right(result: AttackResult, features: Matrix, labels: NDArray[np.int64]) -> bool:
    found = result.vectors[0].labels
    nearest = [int(np.linalg.norm(features - vector, axis=1).argmin()) for vector in vectors(result)]
    return bool((found == labels[nearest]).all())


@pytest.mark.parametrize("gamma", [0.1, 1.0, 100.0])
@pytest.mark.parametrize(("dtype", "limit"), [(np.float64, 1e-6), (np.float32, 1e-3)])
def test_ridge_weights_and_a_regularised_moment_give_records_labels_and_counts(
    gamma: float, dtype: Any, limit: float
) -> None:
    features, labels = sparse(16)
    message = ridged(features, labels, gamma, dtype)
    result = attacked(message)
    assert errors(vectors(result), features).max() < limit
    assert labelled_right(result, features, labels)
    gram = gram_of(message, CLASSES)
    assert gram is not None
    assert measure(gram).counts.tolist() == np.bincount(labels).tolist()


def test_the_ridge_is_the_multiple_eigenvalue_or_that_of_an_inactive_feature() -> None:
    features, labels = sparse(12)
    for active in (True, False):
        features[:, 5] = 1.0 if active else 0.0
        found = regularised(ridged(features, labels, 3.7))
        assert found is not None
        assert found.certain
        assert found.gamma == pytest.approx(3.7, rel=1e-9)


def test_at_full_rank_the_ridge_is_only_bounded() -> None:
    features, labels = sparse(80, width=32)
    message = ridged(features, labels, 1.0)
    found = regularised(message)
    assert found is not None
    assert not found.certain
    assert found.gamma > 1.0
    assert gram_of(message, CLASSES) is None
    assert "the ridge is at most" in attacked(message).notes[0]


def test_a_full_client_has_the_ridge_of_a_small_one_or_of_the_plan() -> None:
    features, labels = sparse(20, width=16, zeros=0.75, seed=2)
    few, some = sparse(5, width=16, seed=1)
    full, small = ridged(features, labels, 1.0), ridged(few, some, 1.0, sender="client/1")
    for messages, gamma in (((full, small), None), ((full,), 1.0)):
        found = targets(View(messages, CLASSES, ThreatModel()), gamma=gamma, differences=True)
        np.testing.assert_allclose(found[0].candidates[0].second, features.T @ features, atol=1e-8)


@pytest.mark.parametrize("gamma", [0.1, 10.0])
def test_the_inverse_of_a_second_moment_is_one(gamma: float) -> None:
    features, labels = sparse(10)
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    inverse = np.linalg.inv(features.T @ features + gamma * np.eye(features.shape[1]))
    result = attacked(sent({"inverse_gram": inverse, "class_sums": member.T @ features}))
    assert errors(vectors(result), features).max() < 1e-6
    assert labelled_right(result, features, labels)


def test_columns_that_rounding_has_eaten_are_not_taken_for_signed_ones() -> None:
    """A large ridge leaves nothing of a feature that is hardly ever active, and its sums are anything."""
    features, labels = sparse(12)
    features[:, :8] *= 1e-5
    result = attacked(ridged(features, labels, 1e4, np.float32))
    assert result.vectors, result.notes
    assert np.median(errors(vectors(result), features)) < 1e-2


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("with_sums", [True, False])
def test_second_moments_of_classes_are_factored_one_by_one(packed: bool, with_sums: bool) -> None:
    features, labels = sparse(24)
    groups = [features[labels == label] for label in range(CLASSES)]
    moments = np.stack([pack_lower(g.T @ g) if packed else g.T @ g for g in groups])
    fields: dict[FieldKind, Matrix] = {"class_second_moments": moments}
    if with_sums:
        fields["class_sums"] = np.stack([g.sum(axis=0) for g in groups])
    result = attacked(sent(fields))
    assert errors(vectors(result), features).max() < 1e-6
    assert len(result.artifacts["sources"]) == CLASSES


def test_diagonals_of_class_moments_hold_no_gram_matrix() -> None:
    features, labels = sparse(24)
    groups = [features[labels == label] for label in range(CLASSES)]
    fields: dict[FieldKind, Matrix] = {
        "class_second_moments": np.stack([(g**2).sum(axis=0) for g in groups]),
        "class_sums": np.stack([g.sum(axis=0) for g in groups]),
        "second_moment": features.T @ features,
    }
    assert len(attacked(sent(fields)).artifacts["sources"]) == 1


def test_a_constant_feature_does_not_matter() -> None:
    """Fed3R appends a feature that is 1: B and the class sums then hold the counts."""
    features, labels = sparse(12)
    features = np.concatenate([features, np.ones((12, 1))], axis=1)
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    result = attacked(sent({"second_moment": features.T @ features, "class_sums": member.T @ features}))
    assert errors(vectors(result), features).max() < 1e-6


@pytest.mark.parametrize(
    ("method", "limit"),
    [(AFL(transport="float64"), 1e-6), (AFL(), 1e-2), (Fed3R(), 1e-2), (GHOFL(), 1e-6)],
    ids=["afl", "afl in float32", "fed3r", "gh_ofl"],
)
def test_the_methods_own_messages_give_records_away(
    make_task: Callable[..., MethodInput], method: Method, limit: float
) -> None:
    task = make_task(clients=2, records=24)
    seen = view(method.run(task).transcript, ThreatModel())
    result = GramFactorization().run(seen, KNOWLEDGE)
    features = np.concatenate([client.features for client in task.clients]).astype(np.float64)
    found = vectors(result)[:, : features.shape[1]]
    assert np.median([np.linalg.norm(found - row, axis=1).min() / np.linalg.norm(row) for row in features]) < limit


def test_components_of_few_records_with_full_covariances_give_their_records() -> None:
    """Two components of one class, of 3 and 5 records: their weights say how many, and each is a Gram matrix."""
    features, _ = sparse(8)
    groups = features[:3], features[3:]
    covariances = np.stack([np.cov(group.T, bias=True) + 1e-4 * np.eye(features.shape[1]) for group in groups])
    fields: dict[FieldKind, Matrix] = {
        "class_ids": np.array([1.0]),
        "class_counts": np.array([8.0]),
        "component_counts": np.array([2.0]),
        "mixture_weights": np.array([3.0, 5.0]) / 8,
        "mixture_means": np.stack([group.mean(axis=0) for group in groups]),
        "mixture_covariances": pack_lower(covariances),
    }
    result = attacked(sent(fields))
    assert errors(vectors(result), features).max() < 1e-3
    assert (result.vectors[0].labels == 1).all()


def test_components_that_share_records_give_them_all_together() -> None:
    """A step of maximisation under any shares: neither component is a sum of records, both together are."""
    features, _ = sparse(8)
    shares = np.random.default_rng(5).dirichlet((1, 1), len(features))
    sizes = shares.sum(axis=0)
    means = (shares.T @ features) / sizes[:, None]
    apart = features[:, None] - means
    covariances = np.einsum("nk,nki,nkj->kij", shares, apart, apart) / sizes[:, None, None]
    fields: dict[FieldKind, Matrix] = {
        "class_ids": np.array([1.0]),
        "class_counts": np.array([8.0]),
        "component_counts": np.array([2.0]),
        "mixture_weights": sizes / 8,
        "mixture_means": means,
        "mixture_covariances": pack_lower(covariances + 1e-4 * np.eye(features.shape[1])),
    }
    assert np.all(np.abs(sizes - np.rint(sizes)) > 0.05)
    result = attacked(sent(fields))
    assert errors(vectors(result), features).max() < 1e-3
    assert (result.vectors[0].labels == 1).all()


def test_components_of_no_whole_number_of_records_are_left_alone_under_noise() -> None:
    features, _ = sparse(8)
    fields: dict[FieldKind, Matrix] = {
        "class_ids": np.array([1.0]),
        "class_counts": np.array([8.0]),
        "component_counts": np.array([2.0]),
        "mixture_weights": np.array([2.6, 5.4]) / 8,
        "mixture_means": features[:2],
        "mixture_covariances": pack_lower(np.stack([np.eye(features.shape[1])] * 2)),
    }
    message = noised(sent(fields))
    assert not targets(View((message,), CLASSES, ThreatModel()), gamma=None, differences=False)


def noised(message: Message) -> Message:
    """The same message, whose means are said to be noised."""
    release = Release(
        mechanism="gaussian", adjacency="add_remove", noise_scale=(0.1,), sensitivity=(1.0,), cells=("all",)
    )
    fields = {
        name: replace(item, release=release) if item.kind == "mixture_means" else item
        for name, item in message.fields.items()
    }
    return replace(message, fields=fields)
