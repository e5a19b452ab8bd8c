"""Members that the gallery lacks: their mean is taken off, and their spread is that of records like them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery import answers
from fedassay.attacks.gallery.answers import Answer, answer, kept_of
from fedassay.attacks.gallery.population import Known, Population, known_of
from fedassay.attacks.gallery.system import System, system_of
from fedassay.data.records import Records
from fedassay.exchange.blocks import LinearBlock

Matrix = NDArray[np.float64]

CLASSES, WIDTH = 3, 8
NONE = np.zeros((0, 1, 1, 1), np.uint8)


def _records(count: int, seed: int, width: int = WIDTH) -> tuple[Matrix, NDArray[np.int64]]:
    """Features with a large mean, a long axis and a mean of each class; labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    spread = np.random.default_rng(7).normal(size=(width, width)) * np.linspace(2, 0.1, width)
    means = 3 + np.random.default_rng(8).normal(size=(CLASSES, width))
    return means[labels] + rng.normal(size=(count, width)) @ spread, labels


def _blocks(features: Matrix, labels: NDArray[np.int64], *, ridge: bool = False) -> list[LinearBlock]:
    """Counts and sums of each class, and products of all and of each class."""
    inside = np.eye(CLASSES)[labels]
    exact, one = np.zeros(CLASSES), np.zeros(1)
    second = features.T @ features + (5.0 * np.eye(features.shape[1]) if ridge else 0)
    products = np.einsum("nc,na,nb->cab", inside, features, features)
    return [
        LinearBlock("counts", "ones", 1, True, inside.sum(axis=0)[:, None], exact, exact),
        LinearBlock("sums", "features", 1, True, inside.T @ features, exact, exact),
        LinearBlock("second", "features", 2, False, second, one, one, free_ridge=ridge),
        LinearBlock("products", "features", 2, True, products, exact, exact),
    ]


def _system(blocks: list[LinearBlock]) -> System:
    features, labels = _records(20, 1)
    own = Population(features, NONE, labels)
    known = [known_of(block, blocks, own) for block in blocks]
    found = system_of(blocks, features, NONE, labels, missing=5.0, known=known)
    assert found is not None
    return found


@pytest.mark.parametrize("ridge", [False, True])
def test_products_by_the_kernel_are_those_of_whole_sums(ridge: bool) -> None:
    made = _system(_blocks(*_records(30, 2), ridge=ridge))
    each = np.eye(made.size)
    columns = [np.concatenate([part.forward(weights).ravel() for part in made.parts]) for weights in each]
    naive = np.asarray(columns) @ np.asarray(columns).T
    scale = np.abs(naive).max()
    np.testing.assert_allclose(made.kernel(np.arange(made.size)), naive, atol=1e-9 * scale)
    np.testing.assert_allclose(made.lengths(), naive.diagonal(), atol=1e-9 * scale)
    weights = np.random.default_rng(3).normal(size=made.size)
    np.testing.assert_allclose(made.apply(weights), naive @ weights, atol=1e-8 * scale)


def test_a_message_of_as_many_mean_records_is_nothing() -> None:
    """The mean is taken off the message as often as its counts say."""
    features, labels = _records(20, 1)
    made = _system(_blocks(features, labels))
    # The candidates are the population here, so that their own message is the sum of their means.
    for part in made.parts:
        scale = max(1.0, float(np.abs(part.rows).max()) ** part.power)
        assert float(np.abs(part.total).max()) < 1e-9 * scale * len(features)


def test_records_are_counted_by_the_message_or_by_whoever_knows() -> None:
    features, labels = _records(20, 1)
    blocks = _blocks(features, labels)
    sums = blocks[1]
    own = Population(features, NONE, labels)
    found = known_of(sums, blocks, own)
    assert isinstance(found, Known)
    np.testing.assert_array_equal(found.counts, np.bincount(labels, minlength=CLASSES))
    assert known_of(sums, blocks[1:], own) is None
    sizes = np.array([4, 5, 6])
    told = known_of(sums, blocks[1:], Population(features, NONE, labels, sizes))
    assert told is not None
    np.testing.assert_array_equal(told.counts, sizes)
    whole = known_of(blocks[2], blocks, own)
    assert whole is not None
    assert whole.counts.tolist() == [20.0]


def _auc(scores: Matrix, members: NDArray[Any]) -> float:
    return float(np.mean(scores[members][:, None] > scores[~members][None]))


def test_a_fifth_of_the_members_are_told_better_by_what_is_known_of_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rectified features; the attack is not told what the gallery lacks."""
    mixed = np.random.default_rng(7).normal(size=(48, 48)) / np.sqrt(48)

    def measured(seed: int) -> float:
        rng = np.random.default_rng(10 + seed)
        labels = rng.integers(0, CLASSES, 400)
        features = np.maximum(rng.normal(size=(400, 48)) @ mixed + 1, 0)
        members, held = np.arange(400) < 100, np.r_[0:20, 100:400]
        rows = held.astype(np.uint32).view(np.uint8).reshape(-1, 2, 2, 1)
        looks = {row.tobytes(): feature for row, feature in zip(rows, features[held], strict=True)}
        own = Records("c", rows, labels[held], lambda images: np.stack([looks[row.tobytes()] for row in images]))
        blocks = _blocks(features[members], labels[members])[:3]
        found = answer([blocks], features[held], kept_of(own, 120), None, 1.0)
        assert isinstance(found, Answer)
        return _auc(found.weights[:120], members[held][:120])

    known = [measured(seed) for seed in range(4)]
    monkeypatch.setattr(answers, "known_of", lambda *_: None)
    unknown = [measured(seed) for seed in range(4)]
    assert np.mean(known) > np.mean(unknown) + 0.05, (known, unknown)
