"""Embedded data of two domains: every class in both, or in one; no neighbours in two roles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedassay.data import DataRequest, load
from fedassay.data.images import ImageSet
from fedassay.data.loading import DataSize
from fedassay.support.registry import size_of


def _train(name: str, **given: str) -> ImageSet:
    return load(DataRequest(name, None, None, None, 0, Path(), **given)).train  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["photographs_inverted", "photographs_and_digits"])
def test_as_large_as_declared(name: str) -> None:
    train, size = _train(name), size_of("dataset", name)
    assert size == DataSize(len(train), 0, train.image_shape, train.classes)
    assert len({image.tobytes() for image in train.images}) >= len(train) - 1


@pytest.mark.long
def test_one_domain_is_the_other_in_inverted_grey() -> None:
    train, plain = _train("photographs_inverted", groups="region"), _train("photographs")
    assert train.domains is not None
    assert train.groups is not None
    assert np.array_equal(train.images[train.domains == 0], plain.images[train.domains == 0])
    changed, original = train.images[train.domains == 1], plain.images[train.domains == 1]
    assert (changed == changed[..., :1]).all()
    grey = np.rint(original @ np.array([0.299, 0.587, 0.114]))
    assert np.abs(255 - changed[..., 0] - grey).max() <= 1
    for region in np.unique(train.groups):
        assert len(set(train.domains[train.groups == region])) == 1
    shares = [train.domains[train.labels == label].mean() for label in range(10)]
    assert min(shares) > 0.35
    assert max(shares) < 0.65
    assert _train("photographs_inverted").groups is None


def test_the_other_domain_shares_no_class() -> None:
    train = _train("photographs_and_digits")
    assert train.domains is not None
    assert train.image_shape == (32, 32, 1)
    assert set(train.labels[train.domains == 0]) == set(range(10))
    assert set(train.labels[train.domains == 1]) == set(range(10, 20))
    assert train.class_names[10:] == tuple("0123456789")
