"""Roles are disjoint by record and by image; shares, strata and seeds are kept."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedassay.data import DataRequest, ImageSet, LoadedData, load
from fedassay.data.roles import Role, Roles, split_roles
from fedassay.data.sampling import apportion, stratified_sample
from fedassay.support.errors import PlanError

_MAKERS = {"ImageSet", "replace"}
_SHARES: dict[Role, float] = {"private": 0.4, "attacker": 0.3, "public": 0.1, "test": 0.2}


def _images(values: NDArray[np.integer], labels: NDArray[np.integer]) -> ImageSet:
    """One record per value; equal values are identical images."""
    images = np.zeros((len(values), 8, 8, 1), dtype=np.uint8)
    images[:, 0, 0, 0], images[:, 0, 1, 0] = values % 256, values // 256
    return ImageSet(images, labels.astype(np.int64), tuple(str(c) for c in range(int(labels.max()) + 1)))


def _bytes(images: ImageSet) -> set[bytes]:
    return {image.tobytes() for image in images.images}


def _sets(roles: Roles) -> list[ImageSet]:
    return [roles.private, roles.attacker, roles.public, roles.test]


@given(
    values=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=2, max_size=120),
    weights=st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(lambda w: sum(w) > 0),
    seed=st.integers(0, 2**32),
)
def test_no_record_and_no_image_is_in_two_roles(
    values: list[tuple[int, int]], weights: list[float], seed: int
) -> None:
    columns = np.array(values)
    train = _images(columns[:, 0], columns[:, 1])
    parts = [weight / sum(weights) for weight in weights]  # the fifth is nobody's
    shares: dict[Role, float] = dict(zip(_SHARES, parts[:4], strict=True))
    roles = split_roles(LoadedData(train, None, ""), shares, np.random.default_rng(seed))
    taken = np.concatenate([roles.indices[role] for role in _SHARES])
    assert len(np.unique(taken)) == len(taken)
    for number, one in enumerate(_sets(roles)):
        for other in _sets(roles)[number + 1 :]:
            assert not _bytes(one) & _bytes(other)
    for role, images in zip(_SHARES, _sets(roles), strict=True):
        assert np.array_equal(images.images, train.images[roles.indices[role]])
        assert np.array_equal(images.labels, train.labels[roles.indices[role]])
        if shares[role] == 0:
            assert len(images) == 0
    assert roles.duplicates == len(train) - len(_bytes(train))
    if np.isclose(sum(shares.values()), 1):
        assert len(taken) == len(train)


def test_shares_and_strata() -> None:
    data = load(DataRequest("digits", None, None, None, 0, Path(".")))
    roles = split_roles(data, _SHARES, np.random.default_rng(0))
    for role, images in zip(_SHARES, _sets(roles), strict=True):
        assert abs(len(images) - _SHARES[role] * 1797) <= 1.5
        expected = np.bincount(data.train.labels) * _SHARES[role]
        assert np.abs(np.bincount(images.labels) - expected).max() < 1.01
    assert (roles.duplicates, roles.dropped) == (0, 0)


def test_small_shares_of_small_classes_add_up() -> None:
    labels = np.repeat(np.arange(40), 9)
    train = _images(np.arange(360), labels)
    roles = split_roles(LoadedData(train, None, ""), {"public": 0.05}, np.random.default_rng(0))
    assert len(roles.public) == 18


@pytest.mark.long
def test_only_what_is_given_a_role_has_one() -> None:
    """What is computed of `public` records is kept as public, so that nothing else may say that of itself."""
    data = LoadedData(_images(np.arange(60), np.arange(60) % 3), None, "test")
    assert data.train.role is None
    roles = split_roles(data, {**_SHARES, "test": 0.1, "control": 0.1}, np.random.default_rng(0))
    for role in get_args(Role):
        assert getattr(roles, role).role == role
        assert getattr(roles, role).take(np.arange(2)).role == role
    with_test = split_roles(replace(data, test=data.train), {"private": 1.0}, np.random.default_rng(0))
    assert with_test.test.role == "test"
    givers = {
        path.name
        for path in (Path(__file__).resolve().parents[2] / "src" / "fedassay").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in _MAKERS
        if any(word.arg == "role" for word in call.keywords)
    }
    assert givers == {"roles.py"}


def test_seeded() -> None:
    data = load(DataRequest("digits", None, None, None, 0, Path(".")))
    one, same, other = (split_roles(data, _SHARES, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert one.private.digest() == same.private.digest() != other.private.digest()


def test_the_official_test_set_is_the_test_role_without_training_images() -> None:
    train = _images(np.arange(100), np.arange(100) % 2)
    test = _images(np.array([500, 7, 501, 93, 502, 502]), np.array([0, 1, 1, 1, 0, 0]))
    roles = split_roles(LoadedData(train, test, ""), {"private": 0.5, "attacker": 0.5}, np.random.default_rng(0))
    assert roles.indices["test"].tolist() == [0, 2, 4, 5]
    assert roles.test.labels.tolist() == [0, 1, 0, 0]
    assert roles.dropped == 2
    with pytest.raises(PlanError, match=r"data\.split\.test: 0\.2 given.*official test set"):
        split_roles(LoadedData(train, test, ""), _SHARES, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"private": 0.7, "test": 0.4}, r"sum to 1\.1; allowed: at most 1"),
        ({"private": -0.1}, r"data\.split\.private: -0\.1 given"),
        ({"private": float("nan")}, r"data\.split\.private: nan given"),
        ({"secret": 0.1}, r"'secret' given; allowed: private, attacker, public, test"),
    ],
)
def test_wrong_shares_are_refused(shares: dict[Role, float], message: str) -> None:
    train = _images(np.arange(10), np.arange(10) % 2)
    with pytest.raises(PlanError, match=message):
        split_roles(LoadedData(train, None, ""), shares, np.random.default_rng(0))


@given(
    sizes=st.lists(st.integers(0, 500), min_size=1, max_size=30),
    weights=st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(lambda w: sum(w) > 0.01),
)
def test_apportion_keeps_rows_whole_and_quotas_near(sizes: list[int], weights: list[float]) -> None:
    shares = np.array(weights) / sum(weights)
    counts = apportion(np.array(sizes), shares)
    assert counts.min() >= 0
    assert counts.sum(axis=1).tolist() == sizes
    assert np.abs(counts - np.outer(sizes, shares)).max() < 1 + 1e-6
    assert counts[:, shares == 0].sum() == 0


@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=200),
    size=st.integers(0, 250),
    seed=st.integers(0, 2**32),
)
def test_stratified_sample_has_the_size_asked_for(labels: list[int], size: int, seed: int) -> None:
    array = np.array(labels)
    chosen = stratified_sample(array, size, np.random.default_rng(seed))
    assert len(chosen) == min(size, len(array))
    assert np.all(np.diff(chosen) > 0)
    counts = np.bincount(array[chosen], minlength=6)
    assert np.abs(counts - np.bincount(array, minlength=6) * min(1, size / len(array))).max() < 2


@given(
    values=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(0, 20)), min_size=2, max_size=80),
    seed=st.integers(0, 2**32),
)
def test_no_group_and_no_image_is_in_two_roles(values: list[tuple[int, int, int]], seed: int) -> None:
    columns = np.array(values)
    train = replace(_images(columns[:, 0], columns[:, 1]), groups=columns[:, 2].astype(np.int64))
    roles = split_roles(LoadedData(train, None, ""), _SHARES, np.random.default_rng(seed))
    sets = _sets(roles)
    assert sum(len(part) for part in sets) == len(train)
    for number, one in enumerate(sets):
        for other in sets[number + 1 :]:
            assert one.groups is not None
            assert other.groups is not None
            assert not set(one.groups.tolist()) & set(other.groups.tolist())
            assert not _bytes(one) & _bytes(other)
    assert roles.duplicates == len(train) - len(_bytes(train))


def test_groups_of_one_record_each_change_nothing() -> None:
    data = load(DataRequest("digits", None, None, 300, 0, Path(".")))
    alone = replace(data, train=replace(data.train, groups=np.arange(300)[::-1].copy()))
    one, other = (split_roles(part, _SHARES, np.random.default_rng(3)) for part in (data, alone))
    for role in _SHARES:
        assert np.array_equal(one.indices[role], other.indices[role])


@pytest.mark.long
def test_an_attacker_holds_no_near_duplicate_of_a_private_photograph() -> None:
    from fedassay.similarity.ssim_search import most_similar

    data = load(DataRequest("photographs", None, None, None, 0, Path(".")))
    roles = split_roles(data, _SHARES, np.random.default_rng(0))
    nearest = most_similar(roles.private.images[::4], roles.attacker.images).values
    assert nearest.max() < 0.97
    assert np.median(nearest) < 0.5
    for role, images in zip(_SHARES, _sets(roles), strict=True):
        assert abs(len(images) - _SHARES[role] * len(data.train)) < 0.03 * len(data.train)
        assert (np.bincount(images.labels, minlength=10) > 0).all()
