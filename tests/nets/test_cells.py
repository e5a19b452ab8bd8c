"""A backbone of cells: what it makes of images, and how many records are alone in theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedassay.backbones.base import to_input
from fedassay.nets.cells import Cells, Layout, cells_for
from fedassay.support.errors import PlanError
from fedassay.support.seeds import Seeds

Images = NDArray[np.uint8]


def drawn(count: int, seed: int = 0) -> tuple[Images, NDArray[np.int64]]:
    """Images of ten classes, each with a mean of its own, of few degrees of freedom."""
    means, basis = (
        np.random.default_rng(99).normal(size=(10, 64)),
        np.random.default_rng(98).normal(size=(12, 64)),
    )
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    rows = 128 + 20 * means[labels] + 8 * rng.normal(size=(count, 12)) @ basis + rng.normal(size=(count, 64))
    return rows.clip(0, 255).round().astype(np.uint8).reshape(-1, 8, 8, 1), labels


def features(network: Cells, images: Images) -> NDArray[np.float64]:
    with torch.inference_mode():
        return network(to_input(images)).double().numpy()


@pytest.fixture(scope="module")
def network() -> Cells:
    return cells_for(*drawn(400), 64, 5.0, Seeds(0))


def test_a_record_has_one_and_its_coordinates_in_one_cell(network: Cells) -> None:
    images, _ = drawn(200, seed=1)
    by_cell = network.layout.split(features(network, images))
    on = (by_cell != 0).any(axis=2)
    assert (on.sum(axis=1) == 1).all()
    assert np.allclose(by_cell[on][:, 0], 1, atol=1e-4)
    # The formula of the module's docstring, written out.
    rows = images.reshape(len(images), -1) / 255
    expected = rows @ network.components.T - network.lowest
    assert np.allclose(by_cell[on][:, 1:], expected, atol=1e-4)
    assert (expected >= 0).all()


def test_every_class_is_spread_over_the_cells(network: Cells) -> None:
    images, labels = drawn(4000, seed=2)
    place = (network.layout.split(features(network, images))[..., 0] > 0.5).argmax(axis=1)
    for label in range(10):
        share = np.bincount(place[labels == label], minlength=8) / (labels == label).sum()
        assert share.max() < 0.4


@pytest.mark.parametrize("records", [20, 100])
def test_a_third_of_the_cells_holds_one_record_however_many_there_are(records: int) -> None:
    alone = cells = 0
    for draw in range(5):
        network = cells_for(*drawn(600, seed=10 + draw), 64, float(records), Seeds(draw))
        images, labels = drawn(10 * records, seed=20 + draw)
        counts = network.layout.split(features(network, images))[..., 0]
        for label in range(10):
            alone += int((np.rint(counts[labels == label].sum(axis=0)) == 1).sum())
            cells += network.layout.cells
    assert 0.27 < alone / cells < 0.47  # 1/e is .37


def test_images_come_back_up_to_the_components(network: Cells) -> None:
    middle, (images, _) = (drawn(400)[0].transpose(0, 3, 1, 2) / 255).mean(axis=0).ravel(), drawn(20, seed=3)
    made = network.images(features(network, images), middle, (8, 8, 1)).reshape(20, 64) / 255
    rows = images.reshape(20, 64) / 255 - middle
    expected = middle + rows @ network.components.T @ network.components
    assert np.abs(made - expected.clip(0, 1)).max() < 0.01


def test_a_width_that_takes_no_cells_is_refused() -> None:
    assert Layout.of(4) == Layout(2, 2)
    with pytest.raises(PlanError, match="backbone of width 3"):
        Layout.of(3)
    with pytest.raises(PlanError, match="all alike"):
        cells_for(np.zeros((5, 8, 8, 1), np.uint8), np.zeros(5, np.int64), 64, 5.0, Seeds(0))
