"""The smallest leak that a run would have found, as a finding without a leak states it.

An audit says how runs are put together from the trials of its controls, and what its test says of one; see
`fedassay.audits.stats.detection`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from fedassay.audits.stats.detection import ControlTrials, detection_limit, shift_of_all
from fedassay.records.facts import Thing
from fedassay.records.record import Limit
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Matrix

SHIFT_DRAWS = 59
"""Fewest runs for a bound: none of them may miss the shift."""


class Runs(Protocol):
    """Runs of the audited size that are put together from the trials of both controls."""

    @property
    def sizes(self) -> tuple[int, ControlTrials, ControlTrials]:
        """Places of a run, and trials of the negative and of the positive control."""
        ...

    def finds(self, silent: Ints, leaking: Ints, count: int) -> bool:
        """Whether the verdict's test finds a leak in a run with the first `count` places leaking."""
        ...

    def finds_shift(self, shift: float, rng: np.random.Generator) -> bool:
        """Whether it finds a silent run, which `rng` draws, in which every place is closer by `shift`."""
        ...


def limit_of(
    runs: Runs, seeds: Seeds, *, shifts: Matrix, unit: str, of: Thing, planted: str, reach: int
) -> Callable[[], Limit | str]:
    """Computes the limit of detection of these runs, or says why there is none.

    A total leak of a source has to be found, caused in the way that the source can cause it: no more places leak
    than it has vectors. A shift of all places alike is shown beside that and is no limit: a source of few vectors
    does not cause it.

    Args:
        runs: Rule that puts runs together and tests them.
        seeds: Names what is drawn.
        shifts: Gains of every trial alike that are tried, rising.
        unit: Unit of the figures.
        of: The leak.
        planted: Origin of a planted leak.
        reach: Vectors of the source: places that it can give away at most.
    """

    def compute() -> Limit | str:
        places, negative, positive = runs.sizes
        found = detection_limit(places, negative, positive, runs.finds, seeds.numpy("share"))
        most = min(reach, places)
        if found.share is None or found.share >= 1 or found.share * places > most + 1e-9:
            if found.share is None:
                whole = f"of {found.draws} runs in which {places} leak as the positive control does, {found.found}"
                return f"a run of this size cannot tell: {whole} would have been found"
            return (
                f"a run of this size cannot tell: {found.share * places:.0f} of {places} {of}s would have to leak "
                f"to be found, and what was attacked can give away {most}"
            )
        shift = shift_of_all(shifts, runs.finds_shift, seeds.numpy("shift"), draws=SHIFT_DRAWS)
        return Limit(
            metric="share",
            value=found.share,
            n=places,
            shift=shift,
            shift_metric="" if shift is None else unit,
            words=f"{found.share:.1%} of the {of}s given away as in the positive control would have been found. "
            f"{found.caveat}".strip(),
            of=of,
            planted=planted,
        )

    return compute
