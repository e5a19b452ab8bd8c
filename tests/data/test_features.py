"""Features that were computed elsewhere: alone, with images, and beside a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.backbones import build
from fedassay.backbones.base import BackboneRequest
from fedassay.data import DataRequest, LoadedData, load
from fedassay.data.roles import split_roles
from fedassay.plan.own_images import check_images
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.plan.sizes import sizes_of
from fedassay.support.errors import DataError, FedassayError, PlanError

_RNG = np.random.default_rng(0)


def _arrays(**changes: Any) -> dict[str, Any]:
    labels = np.arange(60) % 3
    arrays = {
        "features": (_RNG.normal(size=(60, 5)) + 2 * labels[:, None]).astype(np.float32),
        "labels": labels + 7,
        "images": _RNG.integers(0, 256, (60, 8, 9, 3), np.uint8),
        "groups": np.arange(60) // 2,
        "test_features": _RNG.normal(size=(9, 5)),
        "test_labels": np.arange(9) % 3 + 7,
        "test_images": _RNG.integers(0, 256, (9, 8, 9, 3), np.uint8),
    }
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def _load(
    folder: Path, name: str = "precomputed_features", limit: int | None = None, **changes: Any
) -> LoadedData:
    np.savez(folder / "mine.npz", **_arrays(**changes))
    return load(DataRequest(name, None, None, limit, 0, folder, features=Path("mine.npz")))


def test_rows_stay_with_their_images_and_groups(tmp_path: Path) -> None:
    data = _load(tmp_path)
    with np.load(tmp_path / "mine.npz") as archive:
        assert np.array_equal(data.train.images, archive["images"])
        assert data.train.features is not None
        assert np.array_equal(data.train.features, archive["features"])
        assert data.test is not None
        assert data.test.features is not None
        assert np.array_equal(data.test.features, archive["test_features"].astype(np.float32))
        assert data.train.class_names == ("7", "8", "9")
        roles = split_roles(data, {"private": 0.5, "attacker": 0.3}, np.random.default_rng(0))
        assert roles.private.features is not None
        assert np.array_equal(roles.private.features, archive["features"][roles.indices["private"]])
    assert roles.private.groups is not None
    assert roles.attacker.groups is not None
    assert not set(roles.private.groups) & set(roles.attacker.groups)


def test_features_alone_are_records_that_differ_where_they_do(tmp_path: Path) -> None:
    features = _RNG.normal(size=(60, 5)).astype(np.float32)
    features[3] = features[0]
    data = _load(tmp_path, features=features, images=None, test_images=None, groups=None)
    assert not data.train.pictures
    assert np.array_equal(data.train.images.reshape(60, -1).view(np.float32), features)
    roles = split_roles(data, {"private": 0.5, "attacker": 0.5}, np.random.default_rng(0))
    assert roles.duplicates == 1
    assert len(roles.private) + len(roles.attacker) == 60


def test_a_limit_takes_features_and_images_of_the_same_records(tmp_path: Path) -> None:
    whole, some = (
        _load(tmp_path),
        load(DataRequest("precomputed_features", None, None, 30, 0, tmp_path, features=Path("mine.npz"))),
    )
    assert len(some.train) == 30
    assert some.train.features is not None
    assert whole.train.features is not None
    for image, row in zip(some.train.images, some.train.features, strict=True):
        place = np.flatnonzero((whole.train.images == image).all(axis=(1, 2, 3)))
        assert np.array_equal(whole.train.features[place[0]], row)


_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no features": ({"features": None}, "mine.npz: has no array features"),
    "no labels": ({"labels": None}, "has no array labels"),
    "images of other records": (
        {"images": np.zeros((59, 8, 9, 3), np.uint8)},
        r"images has shape \(59, 8, 9, 3\), but features has 60 rows",
    ),
    "labels of other records": (
        {"labels": np.arange(61) % 3},
        r"labels has shape \(61,\), but features has 60 rows",
    ),
    "groups of other records": ({"groups": np.arange(3)}, r"groups has shape \(3,\), but features has 60 rows"),
    "whole numbers": (
        {"features": np.ones((60, 5), int)},
        r"features holds int64 \(60, 5\); allowed: floating-point",
    ),
    "one axis": ({"features": np.ones(60)}, r"features holds float64 \(60,\)"),
    "not finite": (
        {"features": np.where(np.arange(300).reshape(60, 5) == 17, np.nan, 1.0)},
        r"features: row 3 holds",
    ),
    "too large": (
        {"features": np.full((60, 5), 1e300)},
        r"features: row 0 holds a value that is no finite float32",
    ),
    "float labels": ({"labels": np.ones(60)}, r"labels holds float64 \(60,\); allowed: whole numbers"),
    "float images": ({"images": np.zeros((60, 8, 9))}, r"images: holds float64; allowed: uint8"),
    "test of another width": ({"test_features": np.ones((9, 4))}, "test_features has 4 columns, features 5"),
    "half of a test set": ({"test_labels": None}, "has no array test_labels"),
    "no images": (
        {"images": np.zeros((60, 1, 20, 1), np.uint8), "test_images": np.zeros((9, 1, 20, 1), np.uint8)},
        "images are one pixel high",
    ),
    "images of one set": ({"test_images": None}, "has only one of images and test_images"),
}


@pytest.mark.parametrize("case", _WRONG)
def test_what_is_no_set_of_features_is_refused(case: str, tmp_path: Path) -> None:
    changes, message = _WRONG[case]
    with pytest.raises(DataError, match=message):
        _load(tmp_path, **changes)


_BESIDE: dict[str, tuple[dict[str, Any], str]] = {
    "too few": ({"features": np.ones((1796, 4))}, "features has 1,796 rows, but .* has 1,797 training records"),
    "a test set": ({"test_features": np.ones((5, 4))}, "has test_features, but .* has no test set"),
    "another order": ({"labels": np.arange(1797) % 10}, "labels: row 31 is of another class than that record"),
    "other images": ({"images": np.zeros((1797, 8, 8), np.uint8)}, "images are not the images of the data set"),
}


@pytest.mark.parametrize("case", _BESIDE)
def test_features_of_other_records_are_refused(case: str, tmp_path: Path) -> None:
    changes, message = _BESIDE[case]
    np.savez(tmp_path / "mine.npz", **{"features": np.ones((1797, 4)), **changes})
    with pytest.raises(DataError, match=message):
        load(DataRequest("digits", None, None, None, 0, tmp_path, features=Path("mine.npz")))


def _plan(**data: Any) -> dict[str, Any]:
    return {
        "name": "p",
        "data": {
            "name": "precomputed_features",
            "features": "mine.npz",
            "split": {"private": 0.5, "attacker": 0.4},
        }
        | data,
        "clients": {"count": 2, "partition": "iid"},
        "methods": [{"fedcgs": {}}],
    }


def _check(content: dict[str, Any], folder: Path) -> None:
    plan = parse_plan(content, "plan")
    resolve(plan, folder, "plan")
    check_images(plan, folder)


_NARROW = {"name": "precomputed_features", "features": "narrow.npz"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_plan() | {"backbone": {"name": "pixels"}}, "backbone: given, but data.features stands in its place"),
        (_plan(features=None, split={"private": 0.5, "public": 0.4}), "data.features: not given"),
        (_plan(path="x"), "data.path: x given, but data set precomputed_features takes features"),
        (_plan(name="cifar10"), "features has 60 rows, but cifar10 has 50,000 training records"),
        (_plan(attacker_from=_NARROW), "attacker_from.features: 4 columns"),
        (_plan(attacker_from={"name": "digits"}), "one given without the other"),
    ],
    ids=["backbone", "no file", "path", "rows", "width", "attacker without"],
)  # fmt: skip
def test_plans_are_refused_before_anything_runs(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **_arrays())
    narrow = _arrays(features=np.ones((60, 4)), test_features=np.ones((9, 4)))
    np.savez(tmp_path / "narrow.npz", **narrow)
    with pytest.raises(FedassayError, match=message):
        _check(content, tmp_path)


def test_sizes_are_known_without_reading_features(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **_arrays(images=None, test_images=None))
    found = sizes_of(parse_plan(_plan(), "plan"), tmp_path)
    assert not isinstance(found, str)
    assert (found.width, found.classes, found.test, found.backbone) == (5, 3, 9, 0.0)
    with pytest.raises(PlanError, match="there are features and no images"):
        _check(_plan(size=32), tmp_path)


@pytest.mark.long
def test_features_in_place_of_a_backbone_give_what_the_backbone_gives(tmp_path: Path) -> None:
    """Pixels as features, computed here and read from a file: the same messages and the same accuracy."""
    digits = load(DataRequest("digits", None, None, None, 0, tmp_path)).train
    pixels = build(BackboneRequest("pixels", None, None, (8, 8, 1), 10, None, 0, "cpu", tmp_path))
    np.savez(tmp_path / "mine.npz", features=pixels.extract(digits.images), labels=digits.labels)
    plan: dict[str, Any] = {
        "name": "p",
        "data": {"name": "digits", "limit": 300, "split": {"private": 0.5, "attacker": 0.2, "test": 0.3}},
        "methods": ["fedcgs"],
    }
    computed = fedassay.run(plan | {"backbone": {"name": "pixels"}}, tmp_path / "a", base=tmp_path)
    given = plan | {"data": plan["data"] | {"features": "mine.npz"}}
    read = fedassay.run(given, tmp_path / "b", base=tmp_path)
    assert not computed.errors
    assert not read.errors
    assert read.record.cells[0].utility == computed.record.cells[0].utility


@pytest.mark.long
def test_what_needs_images_says_so_and_the_rest_is_audited(tmp_path: Path) -> None:
    labels = np.arange(240) % 3
    features = np.maximum(_RNG.normal(size=(240, 6)) + np.eye(3, 6)[labels], 0).astype(np.float32)
    np.savez(tmp_path / "mine.npz", features=features, labels=labels)
    plan: dict[str, Any] = {
        "name": "p",
        "data": {"name": "precomputed_features", "features": "mine.npz"},
        "clients": {"count": 2, "partition": "iid"},
        "methods": [{"fedcgs": {"epsilon": [10.0]}}, "fedavg"],
        "attacks": ["message_algebra", "feature_diffusion", "feature_inversion"],
        "audits": ["reconstruction", "inversion", "message", "dp_claim"],
    }
    run = fedassay.run(plan, tmp_path / "out", base=tmp_path)
    fedcgs, fedavg = run.record.cells
    reasons = {(finding.audit, finding.attack): finding for finding in fedcgs.findings}
    without = "needs images, and data.features brought features alone"
    assert without in str(reasons["reconstruction", "feature_diffusion"].reason)
    assert without in str(reasons["inversion", "feature_inversion"].reason)
    assert {finding.verdict for finding in fedcgs.findings if finding.audit == "dp_claim"} == {"sound"}
    assert any(finding.audit == "message" and finding.verdict != "not_run" for finding in fedcgs.findings)
    assert [error.message for error in run.errors if error.stage == "method"] == [
        "this needs images, and data.features brought features alone; allowed: images beside them"
    ]
    assert fedavg.utility == {}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "none: features computed elsewhere" in page
    assert "The network that computed the features is taken to be public" in page
    assert "small_cnn" not in page
