"""The generated points of figure 1 of Yu et al. 2026."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedassay.data.circle import RADIUS, images_of, points_of
from fedassay.data.loading import DataRequest, load
from fedassay.data.partition import partition
from fedassay.support.errors import PlanError


def _request(seed: int = 0, root: Path | None = None) -> DataRequest:
    return DataRequest("circle", root, None, None, seed, Path())


def test_points_survive_their_images() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (50, 2))
    images = images_of(levels)
    assert images.shape == (50, 8, 8, 1)
    np.testing.assert_allclose(points_of(images), 10 * levels / 255 - 5)
    assert (images[:, :, :4, 0] == levels[:, 0, None, None]).all()
    assert (images[:, :, 4:, 0] == levels[:, 1, None, None]).all()


def test_classes_are_those_of_the_circle_and_uniform_on_the_square() -> None:
    test = load(_request()).test
    assert test is not None
    points = points_of(test.images)
    np.testing.assert_array_equal(test.labels == 0, (points**2).sum(axis=1) <= RADIUS**2)
    # Area of the circle over that of the square, within 4 standard errors of 2000 draws.
    assert (test.labels == 0).mean() == pytest.approx(np.pi * RADIUS**2 / 100, abs=0.045)
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=0.3)
    np.testing.assert_allclose(points.std(axis=0), 10 / np.sqrt(12), rtol=0.05)


def test_clients_hold_the_halves_by_the_first_coordinate() -> None:
    train = load(_request()).train
    left, right = partition(train, "domains", 2, np.random.default_rng(0))
    first = points_of(train.images)[:, 0]
    assert len(left) == len(right) == 40
    assert first[left].max() <= first[right].min()


def test_the_seed_draws_the_points() -> None:
    one, same, other = (load(_request(seed)).train.images for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_it_takes_no_file(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="none of root, path"):
        load(_request(root=tmp_path))
