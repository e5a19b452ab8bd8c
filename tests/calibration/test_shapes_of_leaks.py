"""A limit of detection holds for the leak that somebody may have: at the limit each shape of it is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from fedassay.audits.membership.detection_limit import SHAPES, Size, detectable
from fedassay.audits.membership.separation import above_chance_p
from fedassay.records.record import Limit

Matrix = NDArray[np.float64]
TESTS = 50
RUNS = 400
LEAST = 371
"""With fewer of 400 runs found .95 lies above the interval of Clopper and Pearson."""
SIZES = [(200, 400, 0.01), (300, 300, 0.01), (668, 668, 0.01), (300, 80, 0.1)]
"""Members, as many strangers as there are; those of each control; the share of false alarms that is stated."""


@cache
def limit_for(size: int, control: int) -> Limit:
    rng = np.random.default_rng(0)
    negative = (rng.normal(size=control), rng.normal(size=control))
    positive = (rng.normal(size=control), rng.normal(5.0, size=control))
    found = detectable(Size(size, size, TESTS), negative, (positive,), rng)
    assert isinstance(found, Limit), found
    return found


def certain(inside: Matrix, rate: float, alarms: float, rng: np.random.Generator) -> Matrix:
    told = round((rate - alarms) / (1 - alarms) * len(inside))
    return np.where(np.arange(len(inside)) < told, 10.0 + rng.random(len(inside)), inside)


def top(inside: Matrix, rate: float, alarms: float, rng: np.random.Generator) -> Matrix:
    told = round((rate - alarms) / (1 - alarms) * len(inside))
    return np.where(np.arange(len(inside)) < told, ndtri(1 - alarms * rng.random(len(inside))), inside)


def shift(inside: Matrix, rate: float, alarms: float, rng: np.random.Generator) -> Matrix:
    del rng
    return np.asarray(inside + ndtri(1 - alarms) - ndtri(1 - rate))


def spread(inside: Matrix, rate: float, alarms: float, rng: np.random.Generator) -> Matrix:
    del rng
    return np.asarray(inside * (ndtri(1 - alarms) / ndtri(1 - rate)))


LEAKS: dict[str, Callable[[Matrix, float, float, np.random.Generator], Matrix]] = {
    "certain": certain,
    "top": top,
    "shift": shift,
    "spread": spread,
}


def test_every_shape_is_asked() -> None:
    assert set(LEAKS) == set(SHAPES)


@pytest.mark.long
@pytest.mark.parametrize("shape", LEAKS)
@pytest.mark.parametrize(("size", "control", "alarms"), SIZES)
def test_a_leak_of_each_shape_is_found_at_the_limit(shape: str, size: int, control: int, alarms: float) -> None:
    limit = limit_for(size, control)
    assert limit.metric == {0.01: "tpr_at_1pct", 0.1: "tpr_at_10pct"}[alarms]
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(RUNS):
        outside, inside = rng.normal(size=size), LEAKS[shape](rng.normal(size=size), limit.value, alarms, rng)
        hits += above_chance_p(outside, inside, rng, TESTS) <= 0.05 / TESTS
    assert hits >= LEAST, (limit.value, hits)


@pytest.mark.long
@pytest.mark.parametrize("size", [100, 300])
def test_the_largest_limit_of_the_shapes_counts(size: int) -> None:
    limit = limit_for(size, 80)
    stated = [float(each.split(" for ")[0].split()[-1]) for each in limit.words.split(", ") if " for " in each]
    assert len(stated) == len(SHAPES)
    assert limit.value == pytest.approx(max(stated), abs=0.005)
    assert limit.value > stated[0], "told for certain is the easiest to find"
