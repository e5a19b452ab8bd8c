"""The limit of detection: the smallest leak that a run of this size finds with a stated probability.

The limit does not use the audited result: its power says nothing that its p-value does not (Hoenig and Heisey, The
American Statistician 2001). A run is put together from the trials of both controls. Of n trials a share q leaks as
the positive control does and the rest is silent as the negative one, and the verdict's own test is asked. In each
draw trials are replaced in one nested order and the smallest share that is found is kept; the limit is the upper
confidence bound of the 95th percentile of these, by order statistics, free of any distribution.

The controls are samples themselves: another hundred of their trials would give another limit. So every draw first
resamples both controls, and only then draws its run from them (the bootstrap's prediction of a run to come;
Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 6.3.3). The percentile then covers both
chances, and a leak at the limit is found with the stated probability on average over controls. This assumes that
trials of a control, or the named units that several of them share, are independent draws from the law of the run's
own trials. It shows no value that a control has not shown: with m units the spread of a run is short by about 1 /
m, and a tail that m trials never reached is not in it. A leak at the limit is then found less often than stated
(tests/calibration measures how much). No resampling of m units can show values that none of them showed, so the
limit states how rare those are (`Detection.unseen`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import binom

from fedassay.support.types import Ints, Matrix

DRAWS = 93
"""Fewest runs with the second largest of their smallest shares for a bound (Wilks 1941): more would take time in
every finding to bring it closer to the percentile, and 59 would leave it to the single worst run."""
POWER = 0.95
CONFIDENCE = 0.95


Finds = Callable[[Ints, Ints, int], bool]
"""Whether the verdict's test finds a leak in a run put together: the negative control's trial for each place, the
positive control's trial for each place, and how many places, the first ones, take the positive one."""


@dataclass(frozen=True)
class Detection:
    """Detection by a run of this size.

    Attributes:
        share: The smallest share of leaking trials that is found with probability `POWER`, an upper confidence
            bound; None where not even a run that leaks everywhere is found.
        found: Draws in which a run that leaks everywhere was found.
        draws: Draws in all.
        unseen: Share of trials up to which values may be of a kind that no trial of the smaller control showed, at
            the level 1 - `CONFIDENCE`: 1 - .05^(1 / m) of m independent units (Clopper and Pearson 1934).
    """

    share: float | None
    found: int
    draws: int
    unseen: float

    @property
    def caveat(self) -> str:
        """Return a sentence on the effect of heavy tails on the limit."""
        return (
            f"The limit knows only values that its control trials showed: larger ones in {self.unseen:.2g} of "
            "all trials may have stayed unseen, and would make it larger."
        )


ControlTrials = int | Ints
"""Trials of a control: how many, if all are independent, or the unit that each belongs to, shape (m,)."""


def detection_limit(
    places: int,
    negative: ControlTrials,
    positive: ControlTrials,
    finds: Finds,
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
) -> Detection:
    """The smallest share of `places` that a test finds.

    Args:
        places: Trials of the audited run, n.
        negative: Trials of the negative control.
        positive: Trials of the positive control.
        finds: The verdict's test.
        rng: Draws trials and their order.
        draws: Runs that are put together.

    Raises:
        ValueError: There are no trials, or too few draws for the confidence bound to exist (`fewest_draws`).
    """
    trials = tuple(part if isinstance(part, int) else len(part) for part in (negative, positive))
    if min(places, *trials) < 1:
        raise ValueError(f"{places} places, {trials[0]} and {trials[1]} trials given; allowed: 1 or more of each")

    def run() -> Callable[[int], bool]:
        silent, leaking = drawn_trials(negative, places, rng), drawn_trials(positive, places, rng)
        return partial(finds, silent, leaking)

    limit, found = _limit_of(run, places, draws)
    unseen = 1 - (1 - CONFIDENCE) ** (1 / min(_units(negative), _units(positive)))
    return Detection(None if np.isinf(limit) else limit / places, found, draws, unseen)


def _units(control: ControlTrials) -> int:
    """Independent units of a control."""
    return control if isinstance(control, int) else len(np.unique(control))


def drawn_trials(control: ControlTrials, places: int, rng: np.random.Generator) -> Ints:
    """A trial for each place of a run, shape (places,), with replacement from a resample of the control.

    Args:
        control: Its trials.
        places: Trials of the run.
        rng: Resamples the control, and draws from it.
    """
    if isinstance(control, int):
        resampled = rng.integers(control, size=control)
    else:
        units, unit = np.unique(control, return_inverse=True)
        chosen = rng.integers(len(units), size=len(units))
        resampled = np.concatenate([np.flatnonzero(unit == each) for each in chosen])
    return np.asarray(resampled[rng.integers(len(resampled), size=places)])


def smallest_shift(
    shifts: Matrix, finds: Callable[[float, np.random.Generator], bool], rng: np.random.Generator, *, draws: int
) -> float | None:
    """The smallest of rising `shifts` of all trials alike that is found with probability `POWER`; None if none is.

    Args:
        shifts: Candidates, rising, shape (k,).
        finds: Whether the test finds a shift in a run drawn by the generator; one state of the generator stands
            for one run, whatever the shift.
        rng: Source of the runs.
        draws: Runs.
    """
    seeds = rng.integers(2**63, size=draws)
    misses = draws - _rank(draws)

    def often_enough(number: int) -> bool:
        """Whether a shift is found as often as the bound asks, each of the runs at that very shift.

        A test that splits its trials at random may find a run at one shift and miss it at the next larger one. So
        the first shift that each run is found at would promise too much.
        """
        missed = 0
        for seed in seeds:
            missed += not finds(float(shifts[number - 1]), np.random.Generator(np.random.PCG64(int(seed))))
            if missed > misses:
                return False
        return True

    index = _smallest(0, len(shifts), often_enough)
    return None if np.isinf(index) else float(shifts[int(index) - 1])


def shift_of_all(
    shifts: Matrix, finds: Callable[[float, np.random.Generator], bool], rng: np.random.Generator, *, draws: int
) -> float | None:
    """The smallest of rising `shifts` that every run is found at, as `smallest_shift` says; None if none is.

    Args:
        shifts: Candidates, rising, shape (k,).
        finds: As there; a run found at a shift is found at every larger one, as no test is that splits its trials.
        rng: Source of the runs.
        draws: Runs: as many as a bound takes of which none may miss (`fewest_draws`).
    """
    number = 0
    for seed in rng.integers(2**63, size=draws).tolist():
        while number < len(shifts) and not finds(
            float(shifts[number]), np.random.Generator(np.random.PCG64(seed))
        ):
            number += 1
    return float(shifts[number]) if number < len(shifts) else None


def _rank(draws: int, share: float = POWER, confidence: float = CONFIDENCE) -> int:
    """Return the rank of the bound among so many draws, in rising order from 1."""
    rank = int(binom.ppf(confidence, draws, share)) + 1
    if rank > draws:
        raise ValueError(f"{draws} draws given; allowed: {fewest_draws(share, confidence)} or more")
    return rank


def fewest_draws(share: float = POWER, confidence: float = CONFIDENCE) -> int:
    """Draws that an upper confidence bound of the percentile takes at least."""
    return int(np.ceil(np.log(1 - confidence) / np.log(share)))


def _limit_of(run: Callable[[], Callable[[int], bool]], most: int, draws: int) -> tuple[float, int]:
    """`upper_percentile` of the smallest k that each of so many runs is found at, and how many are found at all.

    The bound is one of the largest of these, so most runs need one question only: whether they are found at the
    least of the largest so far.

    Args:
        run: Makes a run: whether it is found, by k.
        most: Largest k.
        draws: Runs.
    """
    kept = draws - _rank(draws) + 1
    largest: list[float] = []
    found = 0
    for _ in range(draws):
        finds = run()
        bar = largest[0] if len(largest) == kept else 0
        if np.isinf(bar):
            found += finds(most)
            continue
        if bar and finds(int(bar)):
            found += 1
            continue
        smallest = _smallest(int(bar), most, finds)
        found += bool(np.isfinite(smallest))
        largest = sorted([*largest, smallest])[-kept:]
    return largest[0], found


def _smallest(low: int, most: int, finds: Callable[[int], bool]) -> float:
    """The smallest k above `low` and up to `most` at which `finds` turns true, by bisection; infinite if none.

    A test on nested trials is all but monotone in how many leak; where it is not, this is one of its turns. A
    search that begins just above `low` would take the first of them, which promises too much.
    """
    if low >= most or not finds(most):
        return np.inf
    return float(turning(low, most, finds))


def turning(low: int, high: int, turned: Callable[[int], bool]) -> int:
    """The smallest whole number above `low` with a monotone condition that holds at `high`, by bisection."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if turned(middle) else (middle, high)
    return high
