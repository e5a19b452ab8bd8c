"""How many records there are, where rounding leaves that open."""

from __future__ import annotations

import numpy as np
import pytest
from gram_messages import CLASSES, attacked, errors, sparse, vectors
from numpy.typing import NDArray

from fedassay.exchange.gram import Gram, measure, sizes
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import exact

Matrix = NDArray[np.float64]
UNIT = 2.0**-24


def lifted(n: int, seed: int, by: float) -> tuple[Matrix, NDArray[np.int64], Matrix, Matrix]:
    """Features, labels, class sums and a float32 second moment with one eigenvalue above the others' rounding.

    Accumulation in float32 does that to features that have much in common: its errors are not independent.
    """
    features, labels = sparse(n, seed=seed)
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    sums = (member.T @ features).astype(np.float32).astype(np.float64)
    second = (features.T @ features).astype(np.float32).astype(np.float64)
    lowest = -float(np.linalg.eigvalsh(second)[0])
    along = np.random.default_rng(seed).standard_normal(len(second))
    along /= np.linalg.norm(along)
    return features, labels, sums, second + by * lowest * np.outer(along, along)


def gram_of(sums: Matrix | None, second: Matrix) -> Gram:
    return Gram(second, sums, None, np.arange(CLASSES), UNIT)


@pytest.mark.parametrize("n", [8, 16, 32])
@pytest.mark.parametrize("by", [2.0, 4.0, 8.0])
def test_an_eigenvalue_that_rounding_lifts_is_no_record(n: int, by: float) -> None:
    for seed in range(3):
        _, labels, sums, second = lifted(n, seed, by)
        found = measure(gram_of(sums, second))
        assert found.counted == "from_sums"
        assert found.counts.tolist() == np.bincount(labels, minlength=CLASSES).tolist()
        assert found.total == found.rank == n


def test_without_sums_every_open_rank_is_offered() -> None:
    _, _, _, second = lifted(16, 0, 8.0)
    assert 16 in [size.total for size in sizes(gram_of(None, second))]


def test_records_come_back_whatever_rank_rounding_suggests() -> None:
    for seed in range(3):
        features, _, sums, second = lifted(16, seed, 8.0)
        fields = {
            "A": MessageField(sums.astype(np.float32), "class_sums", exact()),
            "B": MessageField(second.astype(np.float32), "second_moment", exact()),
        }
        result = attacked(Message(0, "client/0", SERVER, fields))
        assert errors(vectors(result), features).max() < 1e-3


def test_exact_statistics_leave_one_rank() -> None:
    features, labels = sparse(12)
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    for sums in (member.T @ features, None):
        assert len(sizes(Gram(features.T @ features, sums, None, np.arange(CLASSES), 2.0**-53))) == 1
