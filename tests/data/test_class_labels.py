"""Labels of candidates are matched with the classes of a model by name, by number, or by the order of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedassay.data.class_labels import Classes
from fedassay.support.errors import DataError


@pytest.mark.parametrize(
    ("names", "labels", "found"),
    [
        (("cat", "dog"), ["dog", "cat", "dog"], [1, 0, 1]),
        (("dog", "cat"), ["dog", "cat"], [0, 1]),
        (("cat", "dog"), [1, 0], [1, 0]),
        (("cat", "dog"), [b"dog"], [1]),
        (("3", "7"), [7, 3, 7], [1, 0, 1]),
        (("3", "7"), [7.0, 3.0], [1, 0]),
        (("3", "7"), ["7", "3.0"], [1, 0]),
        (("False", "True"), [True, False], [1, 0]),
        (("False", "True"), [1, 0], [1, 0]),
        (("0", "1"), [True, False], [1, 0]),
        ((), [0, 1], [0, 1]),
        ((), [7, 3, 3], [1, 0, 0]),
        ((), [10, 9], [1, 0]),
        ((), ["dog", "cat"], [1, 0]),
    ],
)
def test_labels_are_classes_of_the_model(names: tuple[str, ...], labels: list[Any], found: list[int]) -> None:
    assert Classes(2, names, ordered=True).numbers(np.array(labels), "g.npz").tolist() == found


@pytest.mark.parametrize(
    ("classes", "labels", "says"),
    [
        (Classes(2, ("cat", "dog")), ["cat", "cow"], "labels cow, .*allowed: cat, dog"),
        (Classes(2, ("cat", "dog")), [1, 2], "allowed: cat, dog"),
        # Numbers that name classes are no places of rows.
        (Classes(2, ("3", "7")), [0, 1], "labels 0, 1, .*allowed: 3, 7"),
        (Classes(2), [3, 7], "labels from 3 to 7; allowed: 0 to 1"),
        (Classes(2, ordered=True), [3, 7, 9], "labels from 3 to 9; allowed: 0 to 1"),
        (Classes(2, ordered=True), ["a", "b", "c"], "labels a, b, c; allowed: 0 to 1"),
        (Classes(2, ordered=True), [0.5, 1.5, 2.5], r"labels 0\.5"),
    ],
)
def test_labels_of_other_classes_are_one_clear_error(classes: Classes, labels: list[Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        classes.numbers(np.array(labels), "g.npz")
