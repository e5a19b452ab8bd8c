"""The distance between feature densities: zero for equal ones, a shift's size, comparable over scales."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.methods.fedpft.method import density_gap


def test_a_shift_is_found_in_standard_deviations() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 4000)
    scale = np.array([1.0, 100.0, 0.01])
    reference = rng.standard_normal((8000, 3)) * scale
    same = rng.standard_normal((8000, 3)) * scale
    floor = density_gap(same, labels, reference, labels)
    shifted = density_gap(same + 0.5 * scale, labels, reference, labels)
    assert floor is not None
    assert shifted is not None
    assert floor < 0.05
    assert shifted == pytest.approx(0.5, abs=0.05)


def test_classes_are_kept_apart() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 500)
    features = rng.standard_normal((1000, 2)) + 5 * labels[:, None]
    assert density_gap(features, 1 - labels, features, labels) == pytest.approx(5, rel=0.1)
    assert density_gap(features, labels, features, labels) == 0


def test_constant_features_and_small_classes_are_left_out() -> None:
    features = np.column_stack([np.arange(20.0), np.ones(20)])
    labels = np.repeat([0, 1], [15, 5])
    assert density_gap(features + np.array([0, 9]), labels, features, labels) == 0
    assert density_gap(features[15:], labels[15:], features, labels) is None
