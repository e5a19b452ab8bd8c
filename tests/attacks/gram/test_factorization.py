"""What a factorization is made of: the nearest matrix with orthonormal columns, and answers that are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gram_messages import CLASSES, attacked, message, sparse
from numpy.typing import NDArray

from fedassay.attacks.gram import attack, factorization, remembered
from fedassay.attacks.gram.factorization import Factors, _polar
from fedassay.exchange.gram import Gram, Size

Matrix = NDArray[np.float64]
RNG = np.random.default_rng


def by_singular_values(matrix: Matrix) -> Matrix:
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left @ right)


def of_condition(rows: int, columns: int, condition: float, seed: int) -> Matrix:
    rng = RNG(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n, columns)))[0] for n in (rows, columns))
    return np.asarray((left * np.geomspace(1, 1 / condition, columns)) @ right.T)


@pytest.mark.parametrize("rows", [30, 47])
@pytest.mark.parametrize("condition", [1.0, 1e2, 1e5, 1e7, 1e9])
def test_the_nearest_matrix_is_that_of_a_singular_value_decomposition(rows: int, condition: float) -> None:
    matrix = of_condition(rows, 30, condition, seed=rows)
    found = _polar(matrix)
    assert np.abs(found.T @ found - np.eye(30)).max() < 1e-12
    # What rounding of the matrix itself leaves open grows with its condition.
    assert np.abs(found - by_singular_values(matrix)).max() < 1e-14 * max(condition, 100.0)
    assert np.sum(found * matrix) == pytest.approx(np.linalg.svd(matrix, compute_uv=False).sum(), rel=1e-12)


def test_well_conditioned_matrices_need_no_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise AssertionError("a singular value decomposition")

    matrix = of_condition(40, 30, 1e4, seed=0)
    expected = by_singular_values(matrix)
    monkeypatch.setattr(np.linalg, "svd", none)
    assert np.abs(_polar(matrix) - expected).max() < 1e-10


@pytest.mark.parametrize("matrix", [np.zeros((4, 0)), np.zeros((4, 2)), np.eye(4)[:, [0, 0]]])
def test_degenerate_matrices_have_a_nearest_one(matrix: Matrix) -> None:
    found = _polar(matrix)
    assert np.abs(found.T @ found - np.eye(matrix.shape[1])).max(initial=0) < 1e-12


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []

    def counted(gram: Gram, size: Size, rng: np.random.Generator, **limits: int) -> Factors:
        made.append(size.total)
        return factorization.factorize(gram, size, rng, **limits)

    monkeypatch.setattr(attack, "factorize", counted)
    return made


def test_equal_statistics_are_factored_once_whoever_sends_them(calls: list[int]) -> None:
    small, large = sparse(6, width=24, seed=1), sparse(9, width=24, seed=2)
    first = attacked(message(*small), message(*large, sender="client/1"))
    again = attacked(message(*large, sender="client/7"), message(*small, sender="client/8"))
    assert calls == [6, 9]
    assert np.array_equal(first.artifacts["vectors"][6:], again.artifacts["vectors"][:9])
    again.artifacts["vectors"][:] = 0
    assert np.array_equal(attacked(message(*small)).artifacts["vectors"], first.artifacts["vectors"][:6])
    assert calls == [6, 9]


@pytest.mark.parametrize("change", ["statistics", "restarts", "noise", "stream"])
def test_what_the_answer_depends_on_is_asked_anew(calls: list[int], change: str) -> None:
    features, labels = sparse(6, width=24, seed=1)
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    gram = Gram(features.T @ features, member.T @ features, member.sum(axis=0), np.arange(CLASSES), 2.0**-53)
    size = Size(6, member.sum(axis=0).astype(np.int64), 6, 0.0, 0.0, "given")

    def ask(gram: Gram, size: Size, seed: int, restarts: int) -> None:
        rng, limits = RNG(seed), {"restarts": restarts, "iterations": 50}
        remembered.once(gram, size, rng, limits, lambda: (size, attack.factorize(gram, size, rng, **limits)))

    other = replace(gram, second=gram.second + np.eye(24)) if change == "statistics" else gram
    ask(gram, size, 0, 2)
    ask(gram, size, 0, 2)
    assert len(calls) == 1
    noised = replace(size, noise=1e-6) if change == "noise" else size
    ask(other, noised, int(change == "stream"), 2 + (change == "restarts"))
    assert len(calls) == 2


def test_the_oldest_answers_go_where_there_are_too_many(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST_BYTES", 2 * 6 * 24 * 8)
    messages = [message(*sparse(6, width=24, seed=seed)) for seed in range(3)]
    for asked in (0, 1, 0, 2, 0, 1):
        attacked(messages[asked])
    assert len(calls) == 4
