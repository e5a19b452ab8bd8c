"""The smallest leak of membership that a run of this size would have found.

A run is put together from ranks: every control's members are ranked among that control's own strangers, and the
strangers of the run are ranks drawn evenly. A share of the members is as detectable as the positive control's, the
rest as the negative control's; only members are replaced, for strangers are in no release. The verdict's own test
is asked, at its own corrected level (`fedassay.audits.stats.detection`).

The limit is a true-positive rate at a low false-positive rate, and leaks of one rate are not all as easy to find.
So four shapes are planted, and the largest limit counts: a share of members as detectable as the control's, stated
as if they were certain (the control's own rate would be smaller, and a weaker control would then give the smaller
limit; certain members are found wherever those are); a share who stand at random among as many of the highest
strangers as may be false alarms; all members shifted alike; and all members spread wider, half of them below the
strangers, as likelihood ratios are. A rate is no share of the records: as many of the others as of strangers stand
above the threshold by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy.special import ndtr, ndtri

from fedassay.audits.membership.separation import Allowed, in_low_corner
from fedassay.audits.stats.below_baseline import auc_below_half
from fedassay.audits.stats.detection import DRAWS, detection_limit, drawn_trials, smallest_shift
from fedassay.audits.stats.one_run_fdp import one_run_fdp_bound
from fedassay.audits.stats.resampling import level_of
from fedassay.records.record import Limit
from fedassay.support.types import Ints, Matrix

Told = tuple[Matrix, Matrix]
"""Scores of strangers, shape (n0,), and of members, shape (n1,), of one control."""

_AREAS = np.arange(0.51, 1.0, 0.01)
_TOP = 2_000
"""Places among the highest strangers that a planted member may stand at."""
_STEP = 0.005
"""Between true-positive rates that are tried."""

SHAPES = {
    "certain": "a share of members told for certain",
    "top": "a share among the highest strangers",
    "shift": "a shift of all",
    "spread": "a wider spread of all",
}
"""Shapes of a leak that are planted."""

Moved = Callable[[Matrix, float], Matrix]

_HARDLY = 2.5
"""Standard errors between the rates of members and strangers below which the low corner shows nothing."""


@dataclass(frozen=True)
class Size:
    """The run that a limit is for.

    Attributes:
        outside: Strangers that were scored.
        inside: Members.
        tests: Number of tests in the run, for corrected levels.
        beyond: Bound that a claim allows, where more than that was to be shown; None: better than chance.
    """

    outside: int
    inside: int
    tests: int
    beyond: Allowed | None = None


def detectable(size: Size, negative: Told, positives: tuple[Told, ...], rng: np.random.Generator) -> Limit | str:
    """The limit of detection of a run; in words why there is none.

    Args:
        size: Of the run, and its test.
        negative: A control with members indistinguishable from strangers.
        positives: Controls with detectable members.
        rng: Puts runs together.
    """
    silent = percentiles(*negative, rng)
    leaking = np.concatenate([percentiles(*each, rng) for each in positives])
    finder = _Finder(size, silent, leaking, rng)
    found = detection_limit(size.inside, len(silent), len(leaking), finder, rng)
    if found.share is None:
        return (
            f"even members who are all as exposed as the control's would have been found in {found.found} of "
            f"{found.draws} runs of {size.inside} members and {size.outside} strangers: more candidates "
            "would decide"
        )
    metric, rate = _rate(min(size.outside, *(len(outside) for outside, _ in positives)))
    shift = None if size.beyond is not None else _shift(finder, silent, rng)
    what = "chance allows" if size.beyond is None else f"{size.beyond.words} allows"
    limits = {"certain": rate + found.share * (1 - rate), **(_other_shapes(finder, rate, rng) if rate else {})}
    hardest = max(limits, key=limits.__getitem__)
    listed = ", ".join(f"{value:.2g} for {SHAPES[shape]}" for shape, value in limits.items())
    return Limit(
        metric=metric,
        value=limits[hardest],
        n=size.inside,
        shift=shift,
        shift_metric="" if shift is None else "auc",
        words=f"more than {what} is found from a true-positive rate of {listed}; the largest counts",
        of="record",
        planted="member",
    )


def percentiles(outside: Matrix, inside: Matrix, rng: np.random.Generator) -> Matrix:
    """Percentile of each member among the strangers of the same release, in (0, 1); ties and gaps at random."""
    ordered = np.sort(outside)
    low, high = (np.searchsorted(ordered, inside, side=side) for side in ("left", "right"))
    rank = low + np.floor(rng.random(len(inside)) * (high - low + 1))
    return np.asarray((rank + rng.random(len(inside))) / (len(outside) + 1))


def _rate(non_members: int) -> tuple[str, float]:
    """The lowest false-positive rate that so many strangers resolve, with its name."""
    for name, rate in (("tpr_at_1pct", 0.01), ("tpr_at_10pct", 0.1)):
        if non_members >= round(1 / rate) - 1:
            return name, rate
    return "share", 0.0


def _other_shapes(finder: _Finder, rate: float, rng: np.random.Generator) -> dict[str, float]:
    """The limits of leaks of other shapes than the control's, as true-positive rates at a false-positive `rate`.

    Where a shape is not found at its largest, its largest rate stands: nothing of it may be said to be found.
    """
    top = _Finder(finder.size, finder.silent, 1 - rate * rng.random(_TOP), rng)
    share = detection_limit(finder.size.inside, len(finder.silent), _TOP, top, rng).share
    limits = {"top": rate + (1.0 if share is None else share) * (1 - rate)}
    threshold = ndtri(1 - rate)
    rates = np.arange(rate, 1.0, _STEP)[1:]
    spread = rates[rates < 0.5 - _STEP]
    shapes: dict[str, tuple[Matrix, Matrix, Moved]] = {
        "shift": (rates, threshold - ndtri(1 - rates), lambda scores, step: scores + step),
        "spread": (spread, threshold / ndtri(1 - spread), lambda scores, step: scores * step),
    }
    for shape, (reached, steps, moved) in shapes.items():
        step = smallest_shift(steps, partial(finder.moved, moved), rng, draws=DRAWS)
        limits[shape] = float(reached[-1] if step is None else reached[int(np.searchsorted(steps, step))])
    return limits


def _shift(finder: _Finder, silent: Matrix, rng: np.random.Generator) -> float | None:
    """The smallest AUC to which all members alike are shifted and are found."""
    steps = np.sqrt(2) * ndtri(_AREAS)

    def finds(step: float, own: np.random.Generator) -> bool:
        outside = np.sort(own.random(finder.size.outside))
        inside = silent[drawn_trials(len(silent), finder.size.inside, own)]
        return finder.by_area(outside, ndtr(ndtri(inside) + step))

    step = smallest_shift(steps, finds, rng, draws=DRAWS)
    return None if step is None else float(ndtr(step / np.sqrt(2)))


@dataclass
class _Finder:
    """The verdict's test on runs that are put together.

    Attributes:
        size: Of these runs.
        silent: Ranks of the negative control's members.
        leaking: Of the positive controls'.
        rng: Draws the strangers of each run.
    """

    size: Size
    silent: Matrix
    leaking: Matrix
    rng: np.random.Generator
    critical: int = field(init=False)

    def __post_init__(self) -> None:
        self.critical = _critical(self.size)
        self._drawn: Ints | None = None

    def __call__(self, silent: Ints, leaking: Ints, count: int) -> bool:
        """Whether a run is found in which the first `count` members leak."""
        if silent is not self._drawn:
            # A new run: its strangers and coins stay as they are, however many of its members leak.
            self._drawn = silent
            self._outside = np.sort(self.rng.random(self.size.outside))
            self._seed = int(self.rng.integers(2**63))
        inside = np.where(np.arange(len(silent)) < count, self.leaking[leaking], self.silent[silent])
        return self._finds(self._outside, inside, np.random.Generator(np.random.PCG64(self._seed)))

    def _finds(self, outside: Matrix, inside: Matrix, own: np.random.Generator) -> bool:
        """The verdict's test of members (n1,) against sorted strangers (n0,)."""
        if self.size.beyond is not None:
            return self._exceeds(outside, inside, self.size.beyond, own)
        if self.by_area(outside, inside):
            return True
        return _apart(outside, inside) and in_low_corner(outside, inside, own, self.size.tests)

    def moved(self, moved: Moved, step: float, rng: np.random.Generator) -> bool:
        """Whether a run is found after the normal scores of undetectable members move by a step.

        Such members' ranks are even, as the strangers' are. Those of a control are so but for its chance, and a
        control that is wide by chance would take that for a part of a wider spread.
        """
        outside, inside = np.sort(rng.random(self.size.outside)), rng.random(self.size.inside)
        return self._finds(outside, ndtr(moved(ndtri(inside), step)), rng)

    def by_area(self, outside: Matrix, inside: Matrix) -> bool:
        """Mann and Whitney's test of members (n1,) against sorted strangers (n0,)."""
        return int(np.searchsorted(outside, inside).sum()) >= self.critical

    def _exceeds(self, outside: Matrix, inside: Matrix, allowed: Allowed, own: np.random.Generator) -> bool:
        pairs = min(len(inside), self.size.outside)
        # Normal scores: the guesses that count first are of pairs that are furthest apart.
        one, zero = ndtri(inside[own.permutation(len(inside))]), ndtri(own.permutation(outside))
        gains = one[:pairs] - zero[:pairs]
        heads = own.random(pairs) < 0.5
        signed = np.where(heads, gains, -gains)
        confidence = 1 - level_of(self.size.tests)
        bound = one_run_fdp_bound(signed, heads, delta=allowed.delta, confidence=confidence)
        return (bound.epsilon or 0.0) > allowed.epsilon


def _critical(size: Size) -> int:
    """The fewest pairs of a member above a non-member that the test of the whole curve rejects."""
    low, high = 0, size.outside * size.inside + 1
    while high - low > 1:
        middle = (low + high) // 2
        above, rest = divmod(middle, size.outside)
        # `above` members score above every non-member, one member above `rest` of them, all other members below.
        inside = np.full(size.inside, -1.0) - np.arange(size.inside) / (size.inside + 1)
        inside[:above] = size.outside + np.arange(above) / (above + 1)
        if rest:
            inside[above] = rest - 0.5
        rejects = 2 * auc_below_half(inside, np.arange(size.outside, dtype=np.float64)) <= level_of(size.tests)
        low, high = (low, middle) if rejects else (middle, high)
    return high


def _apart(outside: Matrix, inside: Matrix) -> bool:
    """Whether any threshold parts members and sorted strangers enough for a test of half of them to see it."""
    ordered = np.sort(inside)
    thresholds = np.concatenate([outside, ordered])
    one = 1 - np.searchsorted(ordered, thresholds, side="left") / len(ordered)
    zero = 1 - np.searchsorted(outside, thresholds, side="left") / len(outside)
    both = (one * len(ordered) + zero * len(outside)) / (len(ordered) + len(outside))
    spread = np.sqrt(np.maximum(both * (1 - both), 1e-12) * (1 / len(ordered) + 1 / len(outside)))
    return bool(((one - zero) / spread).max() >= _HARDLY)
