"""What an accuracy is worth: the largest class, and the mean over classes."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.data.evaluation import against_chance


def test_a_model_that_names_the_largest_class_reaches_its_share_and_half_when_balanced() -> None:
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    found = against_chance(labels == 0, labels)
    assert found == {
        "majority_share": 0.625,
        "balanced_accuracy": 0.5,
        "specificity": 1.0,
        "sensitivity": 0.0,
    }


def test_of_several_classes_there_is_no_sensitivity() -> None:
    labels = np.array([0, 1, 1, 2])
    found = against_chance(np.array([True, True, False, True]), labels)
    assert found["majority_share"] == pytest.approx(0.5)
    assert found["balanced_accuracy"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert "sensitivity" not in found


def test_without_records_nothing_is_claimed() -> None:
    empty = against_chance(np.zeros(0, np.bool_), np.zeros(0, np.int64))
    assert empty == {"majority_share": 0.0, "balanced_accuracy": 0.0}
