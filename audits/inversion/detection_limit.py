"""The smallest leak that a run of inverted images would have found, where none was.

Silent trials are images that know nothing of the records that the audited ones are held against; leaking trials
are those of the positive control, with their own records. Both bring their exchanges along: the test of a run that
is put together is the audit's own, the mean of its images beside the means in every exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedassay.audits.inversion.truth import ImageMatch, Pool, RecordMatch
from fedassay.audits.stats.detection import ControlTrials, drawn_trials
from fedassay.audits.stats.permutation import enough, most_higher
from fedassay.support.types import Ints, Matrix

SHIFTS = np.array([0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0])
"""Gains in dB of every image alike that are tried."""

_FIRST = 512
"""Exchanges of a run that are looked at before all others."""
_EACH = 4
"""Images of the negative control that are held against the records of every audited image."""


@dataclass(frozen=True)
class InvertedRuns:
    """Runs of inverted images.

    Attributes:
        places: Images of the audited run.
        silent: Images that know nothing of the records they are held against.
        leaking: Images of the end-to-end positive control.
        tests: Tests in the run.
        draws: Exchanges at least.
    """

    places: int
    silent: RecordMatch
    leaking: RecordMatch
    tests: int
    draws: int

    @cached_property
    def sizes(self) -> tuple[int, ControlTrials, ControlTrials]:
        """Places, and trials of both controls: of the negative one, those of one image hang together."""
        units = np.unique(self.silent.vectors, axis=0, return_inverse=True)[1].ravel()
        return self.places, units, len(self.leaking.sets)

    @cached_property
    def _silent(self) -> tuple[Matrix, Matrix]:
        return self._trials(self.silent)

    @cached_property
    def _leaking(self) -> tuple[Matrix, Matrix]:
        return self._trials(self.leaking)

    def _trials(self, matched: RecordMatch) -> tuple[Matrix, Matrix]:
        """Contribution of each image to the mean, shape (k,), and in every exchange, shape (k, exchanges)."""
        exchanged = matched.exchanged(0, enough(self.tests, self.draws))
        return matched.observed(), np.ascontiguousarray(exchanged.T)

    def finds(self, silent: Ints, leaking: Ints, count: int) -> bool:
        """Whether the test rejects where the first `count` images leak."""
        return self._rejects(silent[count:], leaking[:count], 0.0)

    def finds_shift(self, shift: float, rng: np.random.Generator) -> bool:
        """Whether it rejects where every image of a silent run is closer to its record by so many dB."""
        silent = drawn_trials(self.sizes[1], self.places, rng)
        return self._rejects(silent, silent[:0], shift)

    def _rejects(self, silent: Ints, leaking: Ints, shift: float) -> bool:
        (quiet, quiet_exchanged), (loud, loud_exchanged) = self._silent, self._leaking
        value = (quiet[silent].sum() + loud[leaking].sum()) / self.places + shift
        total, higher = quiet_exchanged.shape[1], 0
        most = most_higher(self.tests, total)
        # The first exchanges may tell that more are as high than a level allows.
        for block in (slice(_FIRST), slice(_FIRST, total)):
            sums = _summed(quiet_exchanged[:, block], silent) + _summed(loud_exchanged[:, block], leaking)
            higher += int((sums / self.places >= value - 1e-9).sum())
            if higher > most:
                return False
        return True


def _summed(exchanged: Matrix, trials: Ints) -> Matrix:
    """Sum the contributions of trials in every exchange, shape (exchanges,); copies are exchanged independently.

    Images of a run are different ones. Were a trial that is drawn twice exchanged as one, the mean would vary more
    than that of as many images does. Exchanges are alike, so a copy takes those of its trial one further on.
    """
    copies = np.bincount(trials, minlength=len(exchanged))
    total = np.zeros(exchanged.shape[1])
    for number in range(int(copies.max(initial=0))):
        # Row by row into one sum that stays in the processor's cache: faster than a copy of them all.
        part = np.zeros_like(total)
        for trial in np.flatnonzero(copies > number):
            part += exchanged[trial]
        total += np.roll(part, number)
    return total


def silent_trials(
    negative: ImageMatch, sets: Sequence[Ints], pool: Pool, rng: np.random.Generator, *, between: bool
) -> RecordMatch:
    """Images of records that no client holds, held against records of the audited images, of their class if any.

    Args:
        negative: Images of the negative control.
        sets: The records that each audited image may show.
        pool: Private and fresh records.
        rng: Draws images.
        between: See `RecordMatch`.
    """
    labels = pool.labels[negative.records]
    images: list[int] = []
    held: list[Ints] = []
    for part in sets:
        alike = np.flatnonzero(np.isin(labels, pool.labels[part]))
        usable = alike if len(alike) else np.arange(len(labels))
        images += rng.choice(usable, _EACH).tolist()
        held += [part] * _EACH
    return RecordMatch(negative.images[images], negative.vectors[images], held, pool, between)
