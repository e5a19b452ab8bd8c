"""Sensitive attributes beside the records: read, numbered alike in both sets, and refused where they are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.data import DataRequest, LoadedData, load
from fedassay.data.records import Records, joined, records_digest
from fedassay.data.roles import split_roles
from fedassay.support.errors import DataError, PlanError

_RNG = np.random.default_rng(0)
_X = _RNG.integers(0, 256, size=(12, 9, 10), dtype=np.uint8)
_Y = np.arange(12) % 3
_SEX = np.array(["m", "f", "m", "x"] * 3)


def _load(name: str, path: Path, *names: str, key: str = "path", **given: Any) -> LoadedData:
    fields = {"root": None, "path": None, "limit": None, "seed": 0, "base": path.parent, key: path, **given}
    return load(DataRequest(name, attributes=names, **fields))


def _saved(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "mine.npz", **arrays)
    return folder / "mine.npz"


def test_values_are_numbered_alike_in_both_sets(tmp_path: Path) -> None:
    sets = {"x": _X[:8], "y": _Y[:8], "x_test": _X[8:], "y_test": _Y[8:], "age": np.arange(8)}
    path = _saved(tmp_path, **sets, sex=_SEX[:8], sex_test=_SEX[8:])
    data = _load("npz", path, "sex", "label")
    assert data.test is not None
    assert tuple(data.train.attributes) == ("sex", "label")
    for part, names in ((data.train, _SEX[:8]), (data.test, _SEX[8:])):
        assert np.array_equal(np.array(["f", "m", "x"])[part.attributes["sex"]], names)
        assert np.array_equal(part.attributes["label"], part.labels)


def test_features_bring_attributes(tmp_path: Path) -> None:
    features = _RNG.normal(size=(12, 5)).astype(np.float32)
    path = _saved(tmp_path, features=features, labels=_Y, smoker=_RNG.random(12) < 0.5, ill=_Y)
    data = _load("precomputed_features", path, "smoker", key="features")
    assert set(data.train.attributes) == {"smoker"}
    images = tmp_path / "images.npz"
    np.savez(images, x=_X, y=_Y, sex=_SEX)
    beside = _load("npz", images, "sex", "smoker", features=path)
    assert tuple(beside.train.attributes) == ("sex", "smoker")
    assert np.array_equal(beside.train.attributes["smoker"], data.train.attributes["smoker"])


def test_the_class_is_an_attribute_of_every_data_set() -> None:
    data = load(DataRequest("digits", None, None, 100, 0, Path(), attributes=("label",)))
    assert np.array_equal(data.train.attributes["label"], data.train.labels)
    kept = load(DataRequest("digits", None, None, None, 0, Path(), attributes=("label",), classes=("3", "7")))
    assert set(kept.train.attributes["label"]) == {0, 1}


def test_they_stay_with_their_records(tmp_path: Path) -> None:
    data = _load("npz", _saved(tmp_path, x=_X, y=_Y, code=np.arange(12)), "code")
    roles = split_roles(data, {"private": 0.5, "test": 0.25}, np.random.default_rng(0))
    for role in ("private", "test"):
        part = getattr(roles, role)
        assert len(part)
        assert np.array_equal(part.images, data.train.images[part.attributes["code"]])
    whole = Records("all", _X[..., None], _Y, lambda images: images, None, {"code": np.arange(12)})
    some = joined("some", [whole.take(np.array([4, 2])), whole.take(np.array([9]))])
    assert some.attributes["code"].tolist() == [4, 2, 9]
    assert some.relabelled(np.zeros(3)).attributes["code"].tolist() == [4, 2, 9]
    bare = Records("all", _X[..., None], _Y, lambda images: images)
    assert "code" not in joined("some", [whole, bare]).attributes
    assert records_digest(whole, False) != records_digest(bare, False)
    assert data.train.digest() != _load("npz", tmp_path / "mine.npz").train.digest()


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({}, DataError, "data.attributes: sex given; mine.npz has no array sex"),
        ({"sex": np.arange(11)}, DataError, r"data.attributes: .* has shape \(11,\)"),
        ({"sex": np.linspace(0, 1, 12)}, DataError, "data.attributes: .* holds float64"),
    ],
    ids=["missing", "too short", "no whole numbers"],
)
def test_what_is_no_attribute_is_refused(
    arrays: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        _load("npz", _saved(tmp_path, x=_X, y=_Y, **arrays), "sex")
    features = _saved(tmp_path, features=_RNG.normal(size=(12, 4)), labels=_Y, **arrays)
    with pytest.raises((DataError, PlanError), match=r"data\.attributes"):
        _load("precomputed_features", features, "sex", key="features")


def test_a_data_set_that_knows_none_says_so() -> None:
    with pytest.raises(PlanError, match=r"data\.attributes: sex given, and .* has no such array"):
        load(DataRequest("digits", None, None, None, 0, Path(), attributes=("sex",)))


def test_the_test_set_must_have_them_too(tmp_path: Path) -> None:
    path = _saved(tmp_path, x=_X[:8], y=_Y[:8], x_test=_X[8:], y_test=_Y[8:], sex=_SEX[:8])
    with pytest.raises(PlanError, match=r"data\.attributes: sex given"):
        _load("npz", path, "sex")
