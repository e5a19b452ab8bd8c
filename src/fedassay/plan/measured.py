"""Costs corrected by the stages of runs that were timed: those of the shipped plans (`measured.json`).

A cost formula gives how work grows, and its constant may be off. The ratio of measured to expected seconds is
averaged over the timed stages of the same unit of work, those of a like size counting most, and those of a plan of
the same name alone. Where this machine timed the same unit itself, its own stages count (`fedassay.plan.here`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

FILE = Path(__file__).with_name("measured.json")

LEAST = 0.01
"""Seconds below which a cost counts as this."""
_LIKE = 0.2
"""Distance between sizes, in natural logarithms, at which a stage counts e^(-1/2) as much."""
_MOST = 3.0
"""Largest correction by other plans, in natural logarithms: with more, plans unlike those are off further."""


class Stage(NamedTuple):
    """A stage of a cell, or the mean over the cells of a plan that are alike.

    Attributes:
        unit: The work: method, an attack with its verdicts, an audit by itself, or preparation.
        of: Method of the cell; backbone for preparation.
        private: Whether its epsilon is finite; for preparation, whether a network is trained.
        expected: Seconds by the cost formula.
        took: Measured seconds on one thread.
        plan: Name of the plan.
    """

    unit: str
    of: str
    private: bool
    expected: float
    took: float
    plan: str = ""


def corrected(stage: Stage, timed: Sequence[Stage] | None = None) -> float:
    """Return the seconds of a stage: those of its formula, corrected by timed stages of its unit.

    Those of a plan of this name count alone, if it has any on this method. Where none on this method was timed,
    those on all methods count, except for a method itself. Where none at all was, the formula stands.

    Args:
        stage: Its `took` is not read.
        timed: Of its unit; by default those of shipped plans.
    """
    timed = shipped().get(stage.unit, ()) if timed is None else timed
    alike = [each for each in timed if each.private == stage.private] or timed
    own = [each for each in alike if each.of == stage.of]
    same = [each for each in own if stage.plan and each.plan == stage.plan]
    alike = same or (own if stage.unit == "method" else own or alike)
    expected = max(LEAST, stage.expected)
    if not alike:
        return expected
    sizes, took = np.log(np.maximum(LEAST, [(each.expected, each.took) for each in alike])).T
    apart = ((sizes - np.log(expected)) / _LIKE) ** 2 / 2
    weights = np.exp(apart.min() - apart)
    ratio = (weights * (took - sizes)).sum() / weights.sum()
    return float(expected * np.exp(ratio if same else np.clip(ratio, -_MOST, _MOST)))


def known(stage: Stage, timed: Sequence[Stage] | None = None) -> bool:
    """Whether this stage of the plan of this name was timed; arguments as for `corrected`."""
    timed = shipped().get(stage.unit, ()) if timed is None else timed
    return any((*each[:3], each.plan) == (*stage[:3], stage.plan) for each in timed)


@cache
def shipped() -> dict[str, list[Stage]]:
    """Timed stages of shipped plans, by unit."""
    found: dict[str, list[Stage]] = {}
    for name, rows in json.loads(FILE.read_text(encoding="utf-8")).items():
        for row in rows:
            found.setdefault(row[0], []).append(Stage(*row)._replace(plan=name.rpartition("/")[2]))
    return found
