"""The smallest leak that a run would have found, as a finding without a leak states it.

An audit says how runs are put together from the trials of its controls, and what its test says of one; see
`fedassay.audits.stats.detection`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.detection import Control, detection_limit, smallest_shift
from fedassay.records.record import Limit
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints

SHIFT_DRAWS = 100


class Runs(Protocol):
    """Runs of the audited size that are put together from the trials of both controls."""

    @property
    def sizes(self) -> tuple[int, Control, Control]:
        """Places of a run, and trials of the negative and of the positive control."""
        ...

    @property
    def gain(self) -> float:
        """By how much a leaking trial is closer than a silent one on average, in the unit of shifts."""
        ...

    def finds(self, silent: Ints, leaking: Ints, count: int) -> bool:
        """Whether the verdict's test finds a run whose first `count` places leak."""
        ...

    def finds_shift(self, shift: float, rng: np.random.Generator) -> bool:
        """Whether it finds a silent run, which `rng` draws, in which every place is closer by `shift`."""
        ...


def limit_of(
    runs: Runs, seeds: Seeds, *, shifts: NDArray[np.float64], unit: str, things: str
) -> Callable[[], Limit | str]:
    """Computes the limit of detection of these runs, or says why there is none.

    Args:
        runs: How runs are put together and tested.
        seeds: Names what is drawn.
        shifts: Gains of every trial alike that are tried, rising.
        unit: What these are in.
        things: What leaks, in words: `records`.
    """

    def compute() -> Limit | str:
        places, negative, positive = runs.sizes
        found = detection_limit(places, negative, positive, runs.finds, seeds.numpy("share"))
        shift = smallest_shift(shifts, runs.finds_shift, seeds.numpy("shift"), draws=SHIFT_DRAWS)
        if found.share is None:
            whole = (
                f"of {found.draws} runs in which all that was sent leaks as the positive control does, "
                f"{found.found} would have been found"
            )
            # A mean over all records is no test of the few that vectors can show, but of a leak of every one. A
            # shift beyond what the control gains is one that nothing causes.
            if shift is None or shift > runs.gain:
                return f"a run of this size cannot tell: {whole}"
            return Limit(
                metric="shift",
                value=shift,
                n=places,
                shift=shift,
                shift_metric=unit,
                words=f"{things} that are all closer by {shift:g} {unit} would have been found, but not a few: "
                f"{whole}",
            )
        return Limit(
            metric="share",
            value=found.share,
            n=places,
            shift=shift,
            shift_metric="" if shift is None else unit,
            words=f"{found.share:.1%} of the {things} given away as in the positive control would have been found",
        )

    return compute
