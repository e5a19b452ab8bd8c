"""Time left of a step: said once a tenth of it is done, and right within a factor of two where units are alike."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.support.progress import Lines, Progress, time_left


def test_the_start_of_a_step_says_nothing_about_the_rest() -> None:
    assert time_left(60.0, 0, 100) is None
    assert time_left(60.0, 9, 100) is None
    assert time_left(60.0, 10, 100) == pytest.approx(540.0)


@pytest.mark.parametrize("seed", range(5))
def test_after_a_tenth_it_is_right_within_a_factor_of_two(seed: int) -> None:
    """Stages that take between half and one and a half of a second, and a start that takes four."""
    costs = np.random.default_rng(seed).uniform(0.5, 1.5, size=100)
    costs[0] += 4.0
    gone = np.cumsum(costs)
    for done in range(10, 100):
        said = time_left(float(gone[done - 1]), done, 100)
        left = float(gone[-1] - gone[done - 1])
        assert said is not None
        assert left / 2 <= said <= 2 * left


def test_lines_say_no_time_before_a_tenth() -> None:
    now, said = [0.0], list[str]()
    lines = Lines(said.append, every=1.0, clock=lambda: now[0])
    with Progress(lines).step("training") as advance:
        now[0] = 50.0
        advance(1, 1000)
        now[0] = 100.0
        advance(200, 1000)
    assert said == ["training 1 of 1000", "training 200 of 1000, 6:40 left"]
    Progress(lines).tell("a line")
    assert said[-1] == "a line"
