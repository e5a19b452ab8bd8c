"""Shapes of closed forms: one matrix of the features' width, weights beside it, one matrix a class."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.shapes import shape_problem

MOMENTS: tuple[FieldKind, ...] = ("second_moment", "regularised_gram", "inverse_gram")


def problem(fields: dict[FieldKind, tuple[int, ...]], classes: int = 3) -> str | None:
    made = {kind: MessageField(np.zeros(shape), kind, exact()) for kind, shape in fields.items()}
    return shape_problem(Message(0, "client/0", "server", made), classes)


@pytest.mark.parametrize("kind", MOMENTS)
def test_moments_are_square_or_packed_and_as_wide_as_sums(kind: FieldKind) -> None:
    assert problem({kind: (5, 5), "class_sums": (3, 5)}) is None
    assert problem({kind: (15,), "ridge_weights": (3, 5)}) is None
    assert "must be (d, d)" in str(problem({kind: (5, 4)}))
    assert "of width 5, the class sums" in str(problem({kind: (5, 5), "class_sums": (3, 4)}))
    assert "of width 5, the class sums" in str(problem({kind: (15,), "ridge_weights": (3, 4)}))


def test_ridge_weights_have_a_row_a_class() -> None:
    assert "first side must be 3" in str(problem({"ridge_weights": (2, 5)}))
    assert "must have 2 sides" in str(problem({"ridge_weights": (5,)}))


def test_a_projection_is_a_matrix() -> None:
    assert problem({"projection": (8, 5)}) is None
    assert "must have 2 sides" in str(problem({"projection": (8,)}))


def test_phases_are_one_for_each_column_of_the_projection() -> None:
    assert problem({"projection": (8, 5), "phases": (5,)}) is None
    assert "of width 5: one each" in str(problem({"projection": (8, 5), "phases": (4,)}))
    assert "must have 1 sides" in str(problem({"phases": (4, 1)}))


def test_second_moments_of_classes() -> None:
    for shape in ((3, 5, 5), (3, 15), (3, 5)):
        assert problem({"class_second_moments": shape, "class_sums": (3, 5)}) is None
    assert "first side must be 3" in str(problem({"class_second_moments": (2, 15)}))
    assert "of this width" in str(problem({"class_second_moments": (3, 14), "class_sums": (3, 5)}))
    assert "of this width" in str(problem({"class_second_moments": (3, 15), "class_sums": (3, 4)}))


@pytest.mark.parametrize(
    ("parts", "weights", "words"),
    [
        ([2, 1], [0.5, 0.5, 1.0], ""),
        ([0, 3], [0.5, 0.5, 1.0], "component_counts must be at least 1, given 0"),
        ([3, 1], [0.5, 0.5, 1.0], "its first side must be 4"),
        ([2, 1], [0.0, 0.0, 1.0], "mixture_weights of a class must add up to more than 0, given 0"),
        ([2, 1], [0.5, -1.0, np.nan], "mixture_weights of a class must add up to more than 0, given nan"),
    ],
)
def test_every_class_has_components_that_hold_something(
    parts: list[int], weights: list[float], words: str
) -> None:
    held: dict[FieldKind, np.ndarray] = {
        "component_counts": np.array(parts),
        "mixture_weights": np.array(weights),
        "mixture_means": np.zeros((3, 4)),
        "mixture_covariances": np.ones((3, 4)),
        "class_counts": np.array([5, 6]),
    }
    made = {kind: MessageField(values, kind, exact()) for kind, values in held.items()}
    found = shape_problem(Message(0, "client/0", "server", made), 2)
    assert found is None if not words else words in str(found)
