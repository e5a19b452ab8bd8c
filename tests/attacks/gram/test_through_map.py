"""Random Fourier features give their records away exactly, whatever the features behind them are like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gram_messages import CLASSES, KNOWLEDGE, errors, message, vectors
from numpy.typing import NDArray

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.attacks.gram.through_map import through_map
from fedassay.contracts.attack import AttackResult
from fedassay.data.records import Records
from fedassay.exchange.gram import measure
from fedassay.exchange.message import Message
from fedassay.exchange.public_map import PublicMap, fourier_features
from fedassay.exchange.statistics import gram_of
from fedassay.exchange.view import ThreatModel, View

Matrix = NDArray[np.float64]
WIDTH = 12


def dense(n: int, seed: int) -> Matrix:
    """Gaussian features, of which even a rotation that looks like the attacker's own says nothing."""
    return np.random.default_rng(seed).normal(size=(n, WIDTH))


def attacker(n: int = 400) -> Records:
    features = dense(n, 99).astype(np.float32)
    return Records("attacker", np.zeros((n, 1, 1, 1), np.uint8), np.zeros(n, np.int64), lambda _: features)


def attack(known: PublicMap, *messages: Message) -> AttackResult:
    view = View((*known.broadcast(["client/0"]), *messages), CLASSES, ThreatModel())
    return GramFactorization().run(view, replace(KNOWLEDGE, attacker=attacker()))


def mapped(known: PublicMap, features: Matrix) -> Matrix:
    return np.concatenate([known(features), np.ones((len(features), 1))], axis=1)


@pytest.mark.parametrize("bandwidth", [3.0, 15.0])
@pytest.mark.parametrize(("dtype", "limit"), [(np.float64, 1e-9), (np.float32, 1e-3)])
def test_records_and_labels_come_back(bandwidth: float, dtype: type, limit: float) -> None:
    known = fourier_features(WIDTH, 64, bandwidth, np.random.default_rng(0))
    features, labels = dense(6, 1), np.array([0, 0, 1, 1, 2, 2])
    truth = mapped(known, features)
    result = attack(known, message(truth, labels, dtype=dtype, leave_out=("N",)))
    found = vectors(result)
    assert errors(found, truth).max() < limit
    nearest = np.linalg.norm(found[:, None] - truth, axis=2).argmin(axis=1)
    np.testing.assert_array_equal(result.vectors[0].labels, labels[nearest])
    # The larger error says itself how large it is.
    assert result.scores["expected_error"].max() < 100 * limit


def _through(known: PublicMap, features: Matrix, *, noise: float = 0.0, told: bool = True) -> object:
    sent = message(known(features), np.zeros(len(features), np.int64))
    view = View((*(known.broadcast(["client/0"]) if told else ()), sent), CLASSES, ThreatModel())
    gram = gram_of(sent, CLASSES)
    assert gram is not None
    gram = replace(gram, noise=noise)
    return through_map(gram, measure(gram), view, attacker())


def test_where_the_map_does_not_pin_records_down_none_is_claimed() -> None:
    features = dense(6, 1)
    known = fourier_features(WIDTH, 64, 3.0, np.random.default_rng(0))
    assert _through(known, features) is not None
    narrow = fourier_features(WIDTH, WIDTH + 5, 3.0, np.random.default_rng(0))
    assert _through(narrow, features) is None
    assert _through(PublicMap(known.matrix), features) is None  # linear maps leave a rotation
    assert _through(known, features, told=False) is None
    assert _through(known, features, noise=0.1) is None


def test_features_of_another_map_are_not_found() -> None:
    """A flat that no mapped feature lies in is not met by chance."""
    known, other = (fourier_features(WIDTH, 64, 3.0, np.random.default_rng(seed)) for seed in (0, 1))
    sent = message(other(dense(5, 1)), np.zeros(5, np.int64))
    gram = gram_of(sent, CLASSES)
    assert gram is not None
    view = View((*known.broadcast(["client/0"]), sent), CLASSES, ThreatModel())
    assert through_map(gram, measure(gram), view, attacker()) is None
