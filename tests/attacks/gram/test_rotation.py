"""Signed and dense features, for an attacker with features of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gram_messages import CLASSES, KNOWLEDGE, errors, message, vectors
from numpy.typing import NDArray

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.attacks.gram.rotation import components_of
from fedassay.contracts.attack import AttackResult
from fedassay.data.records import Records
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import public
from fedassay.exchange.view import ThreatModel, View

Matrix = NDArray[np.float64]
WIDTH = 24


def signed(n: int, seed: int) -> Matrix:
    """Features made of independent heavy-tailed parts, mixed by a matrix that is always the same; none is 0."""
    mixing = np.random.default_rng(99).standard_normal((WIDTH, WIDTH))
    rng = np.random.default_rng(seed)
    return np.asarray(rng.laplace(size=(n, WIDTH)) ** 3 @ mixing + 2.0)


def records(features: Matrix) -> Records:
    images = np.zeros((len(features), 1, 1, 1), np.uint8)
    return Records("attacker", images, np.zeros(len(features), np.int64), lambda _: features.astype(np.float32))


def attack(own: Matrix | None, *messages: Message) -> AttackResult:
    knowledge = replace(KNOWLEDGE, attacker=None if own is None else records(own))
    return GramFactorization(trust=1e9).run(View(messages, CLASSES, ThreatModel()), knowledge)


def test_the_rotation_is_found_by_what_the_attackers_features_look_like() -> None:
    features, labels = signed(4, 1), np.zeros(4, np.int64)
    result = attack(signed(1500, 2), message(features, labels))
    found = errors(vectors(result), features)
    mean = np.linalg.norm(features - features.mean(axis=0), axis=1) / np.linalg.norm(features, axis=1)
    assert np.median(found) < 0.2 * np.median(mean)


def test_the_sum_and_the_second_moment_are_met() -> None:
    features, labels = signed(6, 3), np.arange(6) % 2
    found = vectors(attack(signed(1500, 2), message(features, labels)))
    np.testing.assert_allclose(found.sum(axis=0), features.sum(axis=0), atol=1e-8 * np.abs(features).sum())
    np.testing.assert_allclose(found.T @ found, features.T @ features, atol=1e-8 * (features**2).sum())


def test_agreement_of_starts_alone_is_not_believed() -> None:
    """What the attack expects of itself is what clients of its own come back at, not how well starts agree."""
    features, labels = signed(6, 3), np.zeros(6, np.int64)
    result = attack(signed(1500, 2), message(features, labels))
    found = np.median(errors(vectors(result), features))
    assert np.median(result.scores["expected_error"]) > 0.2 * found


@pytest.mark.parametrize("own", [None, signed(50, 2), signed(1500, 2)[:, :20]], ids=["none", "few", "others"])
def test_without_features_of_its_own_signed_ones_are_not_tried(own: Matrix | None) -> None:
    features = signed(6, 3) - 4.0
    result = attack(own, message(features, np.arange(6) % CLASSES))
    assert not result.vectors
    assert "signed" in result.notes[0]


def test_a_public_projection_is_applied_to_the_attackers_features() -> None:
    matrix = np.random.default_rng(5).standard_normal((WIDTH, 16))
    features, labels = signed(3, 1) @ matrix, np.zeros(3, np.int64)
    sent = Message(0, SERVER, "client/0", {"R": MessageField(matrix, "projection", public())})
    result = attack(signed(1500, 2), sent, message(features, labels))
    assert len(vectors(result)) == 3


def test_components_are_computed_once() -> None:
    own = signed(300, 2)
    assert components_of(own, 0) is components_of(own.copy(), 0)
