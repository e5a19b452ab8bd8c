"""Euclidean neighbours and memorization scores, against brute force in float64."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from fedassay.similarity import nearest
from fedassay.similarity.memorization import memorization_scores
from fedassay.similarity.nearest import stream_top_k_l2, top_k_l2


def all_distances(queries: NDArray[Any], gallery: NDArray[Any]) -> NDArray[np.float64]:
    x, y = queries.astype(np.float64), gallery.astype(np.float64)
    squares = np.square(x[:, None] - y[None])
    return np.sqrt(squares.sum(axis=tuple(range(2, squares.ndim))))


def nearest_of(distances: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(1, 40),
    queries=st.integers(0, 9),
    gallery=st.integers(1, 90),
    k=st.integers(1, 5),
    block=st.integers(1, 9),
    rank=st.sampled_from([512, 8]),
)
def test_search_equals_brute_force(
    seed: int, size: int, queries: int, gallery: int, k: int, block: int, rank: int
) -> None:
    # Small whole numbers: distances are exact, and many are equal.
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 3, (queries, size)), rng.integers(0, 3, (gallery, size))
    k = min(k, gallery)
    distances = all_distances(x, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "RANK", rank)  # 8 reduces vectors longer than 16
        patch.setattr(nearest, "BOUNDS", 4 * gallery)
        found = top_k_l2(x, y, k, query_block=block)
    expected = np.sort(distances, axis=1)[:, :k]
    np.testing.assert_allclose(found.distances, expected, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(
        np.take_along_axis(distances, found.indices, axis=1), expected, rtol=1e-6, atol=1e-5
    )
    assert all(len(set(row)) == k for row in found.indices)


def test_ties_take_the_lowest_index() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(6, 20))
    gallery = kinds[rng.integers(0, 6, 400)]  # each vector about 66 times
    found = top_k_l2(kinds, gallery, 10)
    np.testing.assert_array_equal(found.indices, nearest_of(all_distances(kinds, gallery), 10))
    assert np.all(found.distances == 0)
    np.testing.assert_array_equal(top_k_l2(kinds, gallery, 10, query_block=1).indices, found.indices)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_near_pairs_do_not_cancel(offset: float) -> None:
    rng = np.random.default_rng(1)
    gallery = (offset + rng.normal(size=(300, 64))).astype(np.float32)
    queries = gallery[:40] + np.float32(1e-2) * rng.normal(size=(40, 64)).astype(np.float32)
    found = top_k_l2(queries, gallery, 3)
    expected = np.sort(all_distances(queries, gallery), axis=1)[:, :3]
    np.testing.assert_array_equal(found.indices[:, 0], np.arange(40))
    # The mean of the gallery is subtracted in float32: half a unit in the last place of the values.
    np.testing.assert_allclose(found.distances, expected, rtol=1e-4, atol=1e-6 * (1 + offset))


def test_reduced_search_of_images(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.load(shared_data / "cifar10_subset.npz") as file:
        x, y = file["x_test"][:60], file["x_train"][:1100]
    measured: list[int] = []
    measure = nearest._measure

    def count(*arguments: Any) -> Any:
        measured.append(len(arguments[1]))
        return measure(*arguments)

    monkeypatch.setattr(nearest, "_measure", count)
    found = top_k_l2(x, y, 20)
    distances = np.stack([all_distances(one[None], y)[0] for one in x])
    np.testing.assert_array_equal(found.indices, nearest_of(distances, 20))
    np.testing.assert_allclose(found.distances, np.sort(distances, axis=1)[:, :20], rtol=1e-5)
    assert sum(measured) < 60 * 100  # of 1,100 distances a query


def test_blocks_are_taken_one_at_a_time() -> None:
    digits = load_digits().data
    assert next(stream_top_k_l2(iter([digits[:0]]), digits, 4)).indices.shape == (0, 4)
    drawn = 0

    def blocks() -> Iterator[NDArray[np.float64]]:
        nonlocal drawn
        for start in range(0, 100, 25):
            drawn += 1
            yield digits[start : start + 25]

    found = []
    for number, block in enumerate(stream_top_k_l2(blocks(), digits, 4), start=1):
        assert drawn == number
        found.append(block.indices)
    whole = top_k_l2(digits[:100], digits, 4)
    np.testing.assert_array_equal(np.concatenate(found), whole.indices)
    np.testing.assert_array_equal(whole.indices[:, 0], np.arange(100))


def test_wrong_requests_are_refused() -> None:
    vectors = np.zeros((4, 3))
    with pytest.raises(ValueError, match="k = 5: between 1 and the 4"):
        top_k_l2(vectors, vectors, 5)
    with pytest.raises(ValueError, match="2 in queries, 3 in the gallery"):
        top_k_l2(vectors[:, :2], vectors, 1)
    with pytest.raises(ValueError, match="gallery: values that are not finite"):
        top_k_l2(vectors, np.full((4, 3), np.nan), 1)
    with pytest.raises(ValueError, match="queries: values that are not finite"):
        top_k_l2(np.full((4, 3), np.inf), vectors, 1)


def digits_as_images() -> NDArray[np.uint8]:
    return np.rint(load_digits().images * (255 / 16)).astype(np.uint8)


def test_memorization_score_is_the_formula() -> None:
    images = digits_as_images()
    generated, training = images[:50], images[50:400]
    found = memorization_scores(generated, training, n=20, alpha=0.25)
    distances = np.sort(all_distances(generated / 255, training / 255), axis=1)
    expected = distances[:, 0] / (0.25 * distances[:, :20].mean(axis=1))
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    np.testing.assert_allclose(found.distance, distances[:, 0], rtol=1e-5)
    assert found.neighbours == 20
    assert np.all(found.scores <= 4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(2, 60), st.integers(2, 70))
def test_scores_lie_between_zero_and_two(seed: int, number: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    training = rng.integers(0, 256, (number, 5, 5), dtype=np.uint8)
    generated = np.concatenate([training[:3], rng.integers(0, 256, (4, 5, 5), dtype=np.uint8)])
    found = memorization_scores(generated, training, n=n)
    assert found.neighbours == min(n, number)
    assert np.all((found.scores >= 0) & (found.scores <= 2 * (1 + 1e-6)))


def test_copies_and_duplicates() -> None:
    images = digits_as_images()
    training = images[:200].copy()
    near = np.clip(training[7].astype(int) + 1, 0, 255).astype(np.uint8)
    found = memorization_scores(np.stack([training[7], near, images[500]]), training)
    assert found.nearest[:2].tolist() == [7, 7]
    assert found.scores[0] == 0
    assert found.scores[1] < 0.2
    assert found.scores[2] > 1
    # Fifty copies in the training set hide the near copy, though not the exact one.
    training[50:99] = training[7]
    hidden = memorization_scores(np.stack([training[7], near]), training)
    assert hidden.scores.tolist() == [0, pytest.approx(2)]


def test_memorization_streams_blocks() -> None:
    images = digits_as_images()
    calls: list[tuple[int, int]] = []
    whole = memorization_scores(images[:90], images[90:300])
    parts = memorization_scores(
        (images[start : start + 30] / 255 for start in (0, 30, 60)),
        images[90:300],
        progress=lambda done, total: calls.append((done, total)),
    )
    np.testing.assert_allclose(parts.scores, whole.scores, rtol=1e-6)
    np.testing.assert_array_equal(parts.nearest, whole.nearest)
    assert calls == [(30, 0), (60, 0), (90, 0)]
    assert memorization_scores(images[:0], images).scores.shape == (0,)


def test_wrong_neighbourhoods_are_refused() -> None:
    images = digits_as_images()[:10]
    with pytest.raises(ValueError, match="at least 2"):
        memorization_scores(images, images, n=1)
    with pytest.raises(ValueError, match="with 1 training images"):
        memorization_scores(images, images[:1])
    with pytest.raises(ValueError, match="alpha"):
        memorization_scores(images, images, alpha=0)
    with pytest.raises(ValueError, match="sizes differ"):
        memorization_scores(images[:, :7], images)
