"""ImageSet, the embedded data sets, `load` and its limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.data import DataRequest, ImageSet, load
from fedassay.support.errors import PlanError


def request(name: str, **given: Any) -> DataRequest:
    fields = {"root": None, "path": None, "limit": None, "seed": 0, "base": Path("."), **given}
    return DataRequest(name=name, **fields)


def _set(**changes: Any) -> ImageSet:
    fields: dict[str, Any] = {
        "images": np.zeros((4, 8, 8, 1), dtype=np.uint8),
        "labels": np.array([0, 1, 1, 0]),
        "class_names": ("a", "b"),
        "domains": np.array([0, 0, 1, 1]),
        "domain_names": ("x", "y"),
    }
    return ImageSet(**{**fields, **changes})


def test_take_keeps_records_together() -> None:
    images = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1) * np.ones((1, 8, 8, 1), dtype=np.uint8)
    taken = _set(images=images).take(np.array([2, 0]))
    assert taken.images[:, 0, 0, 0].tolist() == [2, 0]
    assert taken.labels.tolist() == [1, 0]
    assert taken.domains is not None
    assert taken.domains.tolist() == [1, 0]
    assert len(_set().take(np.array([], dtype=np.int64))) == 0
    assert len(_set().take(np.array([True, False, True, False]))) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"images": np.zeros((4, 8, 8, 1))},
        {"images": np.zeros((4, 8, 8), dtype=np.uint8)},
        {"labels": np.array([0, 1, 1])},
        {"labels": np.array([0, 1, 2, 0])},
        {"labels": np.array([0, 1, -1, 0])},
        {"labels": np.array([0, 1, 1, 0], dtype=np.int32)},
        {"domains": np.array([0, 1, 2, 0])},
    ],
)
def test_what_is_no_image_set_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|names are given"):
        _set(**wrong)


def test_the_digest_covers_images_labels_and_domains() -> None:
    changed = [
        _set(),
        _set(images=np.ones((4, 8, 8, 1), dtype=np.uint8)),
        _set(labels=np.array([1, 1, 1, 0])),
        _set(domains=None),
    ]
    assert len({images.digest() for images in changed}) == len(changed)
    assert _set().digest() == _set().digest()


def test_digits_are_the_sources_exactly() -> None:
    from sklearn.datasets import load_digits

    data = load(request("digits"))
    source = load_digits()
    assert data.test is None
    assert data.train.images.shape == (1797, 8, 8, 1)
    assert (data.train.images.min(), data.train.images.max()) == (0, 255)
    back = np.rint(data.train.images[..., 0].astype(float) * 16 / 255)
    assert np.array_equal(back, source.images)
    assert np.array_equal(data.train.labels, source.target)


def test_lfw_subset_is_the_source_within_half_a_grey_level() -> None:
    from skimage.data import lfw_subset

    data = load(request("lfw_subset"))
    assert data.train.images.shape == (200, 25, 25, 1)
    assert np.bincount(data.train.labels).tolist() == [100, 100]
    assert np.abs(data.train.images[..., 0] / 255 - lfw_subset()).max() <= 0.5 / 255 + 1e-9
    # Faces are all detail; patches of background are mostly smooth.
    detail = np.abs(np.diff(data.train.images[..., 0].astype(float), axis=2)).mean(axis=(1, 2))
    assert np.median(detail[:100]) > 2 * np.median(detail[100:])


def test_limit_is_stratified_seeded_and_in_order() -> None:
    whole = load(request("digits")).train
    one, same, other = (load(request("digits", limit=200, seed=seed)).train for seed in (1, 1, 2))
    assert len(one) == 200
    assert one.digest() == same.digest() != other.digest()
    shares = np.bincount(whole.labels) * 200 / len(whole)
    assert np.abs(np.bincount(one.labels) - shares).max() < 1
    assert len(load(request("digits", limit=5000)).train) == 1797


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": 0}, "data.limit: 0 given; allowed: 1 or more"),
        ({"path": Path("x.npz")}, "data.path: x.npz given, but data set digits takes none of root, path"),
        ({"root": Path("r")}, "data.root: r given"),
        ({"size": 3}, "data.size: 3 given"),
    ],
)
def test_keys_that_a_data_set_does_not_take_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        load(request("digits", **given))


def test_an_unknown_data_set_lists_those_there_are() -> None:
    with pytest.raises(PlanError, match=r"'digit'.*cifar10.*digits.*image_folder.*lfw_subset.*npz.*svhn"):
        load(request("digit"))
