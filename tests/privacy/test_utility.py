"""`fedassay account --utility`: what noise will leave, told before any data are touched, is what it leaves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from click.testing import CliRunner

from fedassay.cli import cli
from fedassay.contracts.method import MethodInput
from fedassay.contracts.registry import declared
from fedassay.execution.expected import Size, errors_of, expected, freedom
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.sensitivities import shared_sums
from fedassay.privacy.tape import Draw, Layout, scaled_noise, taped
from fedassay.support.errors import PlanError

SIZE = Size(records=100, width=64, classes=10, clients=3)


@pytest.mark.parametrize(
    ("layout", "shape"), [("entries", (4, 7)), ("symmetric", (3, 6, 6)), ("mirrored", (6, 6))]
)
def test_the_expected_norm_of_noise_is_the_norm_of_noise(layout: Layout, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    norms = [float(np.sum(scaled_noise(shape, layout, 2.0, rng) ** 2)) for _ in range(4000)]
    assert np.mean(norms) == pytest.approx(4 * freedom(shape, layout), rel=0.03)


@pytest.mark.parametrize("method", ["fedcgs", "fedncm", "one_shot_ridge"])
def test_the_error_is_that_of_the_real_mechanism_on_real_records(
    method: str, make_task: Callable[..., MethodInput]
) -> None:
    """The made-up records' scale is the real run's, and so is the noise that its messages hold."""
    (told,) = expected(SIZE, [8.0], 1e-5, [method])
    task = make_task(clients=3, records=300, epsilon=8.0)
    with taped() as tape:
        declared("method", method).component().run(task)
    draws = [draw for draw in tape.draws.values() if isinstance(draw, Draw) and draw.scale]
    assert {draw.scale for draw in draws} == {told.sigma}
    errors = dict(errors_of(draws))
    assert errors.keys() == dict(told.errors).keys()
    for part, error in errors.items():
        own = [draw for draw in draws if draw.key.part == part]
        noise = np.linalg.norm(sum(draw.out - draw.exact for draw in own))
        measured = noise / np.linalg.norm(sum(draw.exact for draw in own))
        assert measured == pytest.approx(error, rel=0.35 if part == "counts" else 0.1)
        # Of other records of norm 1 the statistic is about as long; of counts it is as long.
        assert dict(told.errors)[part] == pytest.approx(error, rel=0.5)


def test_the_scale_is_the_closed_form() -> None:
    (told,) = expected(SIZE, [2.0], 1e-5, ["fedcgs"])
    moved = shared_sums(64, adjacency="add_remove", classes=10).sensitivity
    assert told.sigma == pytest.approx(calibrate_sigma(2.0, 1e-5, moved))
    assert told.adjacency == "add_remove"


def test_more_records_and_a_larger_epsilon_leave_more() -> None:
    few, loose = expected(SIZE, [0.5, 50.0], 1e-5, ["fedncm"])
    many = expected(Size(1000, 64, 10, 3), [0.5], 1e-5, ["fedncm"])[0]
    assert dict(many.errors)["sums"] == pytest.approx(dict(few.errors)["sums"] / 10, rel=0.05)
    assert few.accuracy < 0.3
    assert loose.accuracy > few.accuracy + 0.2
    assert loose.accuracy <= loose.plain + 0.05
    assert few.plain == loose.plain


@pytest.mark.long
def test_what_trains_networks_says_why_there_is_no_figure() -> None:
    (told,) = expected(Size(4, 4, 2, 2), [1.0], 1e-5, ["fedavg"])
    assert told.why
    assert math.isnan(told.sigma)


def test_the_command() -> None:
    options = [
        "--utility",
        "--epsilon",
        "1",
        "--records",
        "50",
        "--width",
        "32",
        "--classes",
        "2",
        "--method",
        "fedcgs",
    ]
    done = CliRunner().invoke(cli, ["account", *options, "--json"], standalone_mode=False)
    assert done.exception is None, done.exception
    (row,) = json.loads(done.output)
    assert set(row["errors"]) == {"counts", "sums", "second"}
    said = CliRunner().invoke(cli, ["account", *options], standalone_mode=False).output
    assert "the largest class: 0.50" in said
    assert f"fedcgs at 1 (add_remove): error counts {row['errors']['counts']:.2g}" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--utility", "--epsilon", "0"], "--epsilon: given 0"),
        (["--utility", "--epsilon", "inf"], "--epsilon: given inf"),
        (["--utility", "--delta", "1"], "--delta: given 1"),
        (["--epsilon", "1"], "--epsilon goes with --utility"),
        (["--utility", "--method", "none"], "method 'none' is not known"),
    ],
)
def test_bad_input_is_one_error(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(cli, ["account", *arguments], standalone_mode=False)
    assert isinstance(done.exception, PlanError)
    assert words in str(done.exception)
