"""Costs corrected by the stages of runs that were timed: those of the shipped plans (`measured.json`).

A cost formula gives how work grows, and its constant may be off. The ratio of measured to expected seconds is
averaged over the timed stages of the same unit of work, those of a like size counting most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

FILE = Path(__file__).with_name("measured.json")

LEAST = 0.01
"""Seconds below which a cost counts as this."""
_LIKE = 0.3
"""Distance between sizes, in natural logarithms, at which a stage counts e^(-1/2) as much."""
_MOST = 2.5
"""Largest correction, in natural logarithms: with more, plans unlike the timed ones are off further."""


class Stage(NamedTuple):
    """A stage of a cell, or the mean over the cells of a plan that are alike.

    Attributes:
        unit: The work: method, an attack with its verdicts, an audit by itself, or preparation.
        of: Method of the cell; backbone for preparation.
        private: Whether its epsilon is finite; for preparation, whether a network is trained.
        expected: Seconds by the cost formula.
        took: Measured seconds on one thread.
    """

    unit: str
    of: str
    private: bool
    expected: float
    took: float


def corrected(unit: str, of: str, private: bool, expected: float) -> float:
    """Return the seconds of a unit of work: those of its formula, corrected by timed stages.

    Where none on this method was timed, those on all methods count, except for a method itself. Where none at all
    was, the formula stands.
    """
    return of_stages(_stages(), unit, of, private, expected)


def of_stages(stages: Mapping[str, Sequence[Stage]], unit: str, of: str, private: bool, expected: float) -> float:
    """Return `corrected` by given stages, by unit."""
    alike = [stage for stage in stages.get(unit, ()) if stage.private == private] or stages.get(unit, ())
    own = [stage for stage in alike if stage.of == of]
    alike = own if unit == "method" else own or alike
    expected = max(LEAST, expected)
    if not alike:
        return expected
    sizes, took = np.log(np.maximum(LEAST, [(stage.expected, stage.took) for stage in alike])).T
    apart = ((sizes - np.log(expected)) / _LIKE) ** 2 / 2
    weights = np.exp(apart.min() - apart)
    ratio = (weights * (took - sizes)).sum() / weights.sum()
    return float(expected * np.exp(np.clip(ratio, -_MOST, _MOST)))


@cache
def _stages() -> dict[str, list[Stage]]:
    found: dict[str, list[Stage]] = {}
    for rows in json.loads(FILE.read_text(encoding="utf-8")).values():
        for row in rows:
            found.setdefault(row[0], []).append(Stage(*row))
    return found
