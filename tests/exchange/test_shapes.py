"""Shapes of closed forms: one matrix of the features' width, weights beside it, one matrix a class."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.exchange.message import FieldKind, Message, MessageField
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
