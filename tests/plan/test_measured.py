"""Costs are corrected by timed stages of the same unit, those of a like size first."""

from __future__ import annotations

import pytest

from fedassay.plan.here import Here
from fedassay.plan.measured import Stage, corrected, shipped

STAGES = [
    Stage("gallery", "fedcgs", False, 1.0, 3.0),
    Stage("gallery", "fedcgs", False, 100.0, 50.0),
    Stage("gallery", "fedpft", False, 1.0, 1.0),
    Stage("gallery", "fedcgs", True, 1.0, 7.0),
]


@pytest.mark.parametrize(
    ("method", "private", "expected", "seconds"),
    [
        ("fedcgs", False, 1.0, 3.0),
        ("fedcgs", False, 100.0, 50.0),
        ("fedcgs", False, 1000.0, 500.0),
        ("fedpft", False, 2.0, 2.0),
        ("fedcgs", True, 2.0, 14.0),
        # No private run of this method was timed: those of others count.
        ("fedpft", True, 1.0, 7.0),
    ],
)
def test_the_nearest_timed_stage_corrects(method: str, private: bool, expected: float, seconds: float) -> None:
    assert corrected(Stage("gallery", method, private, expected, 0.0), STAGES) == pytest.approx(seconds, rel=1e-3)


def test_a_size_between_two_takes_from_both() -> None:
    assert corrected(Stage("gallery", "fedcgs", False, 10.0, 0.0), STAGES) == pytest.approx(10 * (3 * 0.5) ** 0.5)


def test_a_unit_that_was_never_timed_keeps_its_formula() -> None:
    assert corrected(Stage("membership", "fedcgs", False, 4.0, 0.0), []) == 4.0
    assert corrected(Stage("of another package", "fedcgs", False, 4.0, 0.0)) == 4.0


def test_a_method_is_corrected_by_its_own_stages_alone() -> None:
    other = [Stage("method", "fedcgs", False, 1.0, 3.0)]
    assert corrected(Stage("method", "fedpft", False, 1.0, 0.0), other) == 1.0


def test_stages_of_the_same_plan_count_alone_and_without_a_bound() -> None:
    timed = [*STAGES, Stage("gallery", "fedcgs", False, 1.0, 500.0, "mine")]
    assert corrected(Stage("gallery", "fedcgs", False, 2.0, 0.0, "mine"), timed) == pytest.approx(1000.0)
    assert corrected(Stage("gallery", "fedcgs", False, 1.0, 0.0, "other"), STAGES) == pytest.approx(3.0, rel=1e-3)


def test_a_correction_by_other_plans_is_bounded() -> None:
    far = [Stage("gallery", "fedcgs", False, 0.01, 1000.0)]
    assert corrected(Stage("gallery", "fedcgs", False, 1.0, 0.0), far) == pytest.approx(20.09, rel=1e-2)


def test_stages_that_this_machine_timed_count_before_shipped_ones_and_speed_corrects_these() -> None:
    here = Here(2.0, (Stage("gallery", "fedcgs", False, 1.0, 3.0),))
    assert here.seconds(Stage("gallery", "fedcgs", False, 10.0, 0.0)) == pytest.approx(30.0)
    for other in (
        Stage("gallery", "fedcgs", True, 10.0, 0.0),
        Stage("of another package", "fedcgs", False, 10.0, 0.0),
    ):
        assert here.seconds(other) == corrected(other) / 2


def test_stages_of_the_plan_come_before_those_that_this_machine_timed_of_others() -> None:
    here = Here(1.0, (Stage("method", "fedcgs", False, 1.0, 3.0, "other"),))
    assert shipped()["method"]
    own = next(each for each in shipped()["method"] if each.of == "fedcgs" and not each.private)
    assert here.seconds(own) == corrected(own)
    assert here.known(own)
    mine = own._replace(plan="mine")
    assert here.seconds(mine) == pytest.approx(3 * max(0.01, own.expected))
    assert not here.known(mine)
    assert here._replace(stages=(mine._replace(took=5.0),)).known(mine)
