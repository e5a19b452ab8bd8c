"""Partitions: every record at exactly one client, and what each kind promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedassay.data import ImageSet
from fedassay.data.partition import Partition, partition
from fedassay.support.errors import PlanError


def _images(labels: NDArray[np.integer], domains: NDArray[np.integer] | None = None) -> ImageSet:
    return ImageSet(
        np.zeros((len(labels), 8, 8, 1), dtype=np.uint8),
        labels.astype(np.int64),
        tuple(str(c) for c in range(10)),
        None if domains is None else domains.astype(np.int64),
        () if domains is None else tuple("abcdef"),
    )


@pytest.mark.long
@given(
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=200),
    count=st.integers(1, 30),
    alpha=st.floats(1e-4, 1e3),
    min_records=st.integers(0, 8),
    kind=st.sampled_from(["iid", "dirichlet"]),
    seed=st.integers(0, 2**32),
)
def test_every_record_once_and_min_records_met(
    labels: list[int], count: int, alpha: float, min_records: int, kind: Partition, seed: int
) -> None:
    images = _images(np.array(labels))
    rng = np.random.default_rng(seed)
    if count * min_records > len(labels):
        with pytest.raises(PlanError, match="private records"):
            partition(images, kind, count, rng, alpha=alpha, min_records=min_records)
        return
    parts = partition(images, kind, count, rng, alpha=alpha, min_records=min_records)
    assert len(parts) == count
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert min(len(part) for part in parts) >= min_records
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)
    if kind == "iid":
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(
    labels=st.lists(st.integers(0, 9), min_size=10, max_size=100),
    count=st.integers(1, 10),
    seed=st.integers(0, 2**32),
)
def test_disjoint_labels_share_no_class(labels: list[int], count: int, seed: int) -> None:
    images = _images(np.array(labels))
    present = len(set(labels))
    if count > present:
        with pytest.raises(PlanError, match=rf"allowed: 1 to {present}"):
            partition(images, "disjoint_labels", count, np.random.default_rng(seed))
        return
    parts = partition(images, "disjoint_labels", count, np.random.default_rng(seed))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    classes = [set(images.labels[part].tolist()) for part in parts]
    assert sum(map(len, classes)) == len(set().union(*classes)) == present
    assert max(map(len, classes)) - min(map(len, classes)) <= 1


@given(
    of_record=st.lists(st.integers(0, 5), min_size=30, max_size=100),
    count=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_domains_stay_apart(of_record: list[int], count: int, seed: int) -> None:
    domains = np.array(of_record)
    images = _images(domains, domains)
    parts = partition(images, "domains", count, np.random.default_rng(seed), min_records=0)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(domains)))
    seen = [set(domains[part].tolist()) for part in parts]
    present = len(set(of_record))
    if count >= present:
        assert all(len(one) <= 1 for one in seen)
        for domain in set(of_record):
            sizes = [len(part) for part, one in zip(parts, seen, strict=True) if domain in one]
            assert max(sizes) - min(sizes) <= 1
    else:
        assert sum(map(len, seen)) == present


@given(
    labels=st.lists(st.integers(0, 9), min_size=20, max_size=200),
    count=st.integers(1, 12),
    dominant=st.integers(1, 3),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_dominant_classes_use_every_record_in_equal_parts(
    labels: list[int], count: int, dominant: int, share: float, seed: int
) -> None:
    images = _images(np.array(labels))
    dominant = min(dominant, len(set(labels)))
    parts = partition(
        images,
        "dominant_classes",
        count,
        np.random.default_rng(seed),
        dominant=dominant,
        uniform_share=share,
    )
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_dominant_classes_hold_all_but_the_uniform_share() -> None:
    images = _images(np.repeat(np.arange(10), 1000))
    parts = partition(images, "dominant_classes", 10, np.random.default_rng(0), dominant=2, uniform_share=0.2)
    for part in parts:
        largest = np.sort(np.bincount(images.labels[part], minlength=10))[::-1]
        # Of 1,000 records 800 are from two classes, which also have a fifth of the other 200.
        assert largest[:2].sum() / len(part) == pytest.approx(0.84, abs=0.03)
        assert largest[2:].min() > 5


def test_every_dominant_class_is_held_and_clients_differ_in_theirs() -> None:
    images = _images(np.repeat(np.arange(10), 240))
    parts = partition(images, "dominant_classes", 20, np.random.default_rng(0), dominant=2, uniform_share=0)
    held = [np.bincount(images.labels[part], minlength=10) for part in parts]
    for counts in held:
        assert sorted(counts[counts > 0]) == [60, 60]
    assert len({tuple(np.flatnonzero(counts)) for counts in held}) > 10


def test_dirichlet_follows_alpha() -> None:
    """Proportions have the mean and variance of the symmetric Dirichlet distribution."""
    images = _images(np.repeat(np.arange(10), 1000))
    rng = np.random.default_rng(0)
    for alpha in (0.1, 1.0, 100.0):
        shares = [
            np.bincount(images.labels[part], minlength=10) / 1000
            for _ in range(60)
            for part in partition(images, "dirichlet", 5, rng, alpha=alpha, min_records=0)
        ]
        values = np.concatenate(shares)
        assert values.mean() == pytest.approx(1 / 5)
        variance = (1 / 5) * (4 / 5) / (5 * alpha + 1)
        assert values.var() == pytest.approx(variance, rel=0.15)


def test_seeded() -> None:
    images = _images(np.arange(100) % 10)
    one, same, other = (
        np.concatenate(partition(images, "dirichlet", 5, np.random.default_rng(seed))) for seed in (0, 0, 1)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("iid", {"count": 0}, r"clients\.count: 0 given; allowed: 1 or more"),
        ("iid", {"count": -3}, r"clients\.count: -3 given"),
        ("iid", {"count": 21}, r"21 clients of at least 1 records given, but there are 20 private records"),
        ("iid", {"min_records": -1}, r"clients\.min_records: -1 given"),
        ("dirichlet", {"alpha": 0.0}, r"clients\.alpha: 0\.0 given; allowed: a number above 0"),
        ("dirichlet", {"alpha": -1.0}, r"clients\.alpha: -1\.0 given"),
        ("dirichlet", {"alpha": float("nan")}, r"clients\.alpha: nan given"),
        ("domains", {}, r"domains given, but the data set has none"),
        ("disjoint_labels", {"count": 3}, r"2 classes to give; allowed: 1 to 2"),
        ("dominant_classes", {"dominant": 3}, r"clients\.dominant: 3 given; allowed: 1 to 2"),
        ("disjoint_labels", {"min_records": 10}, r"clients\.min_records: 10 given, but .* one holds 5"),
    ],
)
def test_impossible_partitions_are_refused(kind: Partition, options: dict[str, Any], message: str) -> None:
    images = _images(np.array([0] * 15 + [1] * 5))
    given_options = {"count": 2, **options}
    with pytest.raises(PlanError, match=message):
        partition(images, kind, given_options.pop("count"), np.random.default_rng(0), **given_options)
