"""The smallest leak that generators of this size would have shown, and the number of records that would show one.

Where not even a generator that memorized everything would have been found, the same run is put together of more
records than there are. The smallest number at which a total leak is found would decide.
"""

from __future__ import annotations

import math

import numpy as np

from fedassay.audits.memorization.judging import Memory
from fedassay.audits.stats.detection import Detection, detection_limit
from fedassay.audits.stats.resampling import level_of
from fedassay.audits.stats.stratified import stratified_count
from fedassay.records.record import Limit
from fedassay.support.errors import Why
from fedassay.support.types import Ints

_HALVED = 8
"""Records of one class of a client that are halved: twice what two halves of two records take."""
_TIMES = (2, 4, 8, 16)
"""So many times the records are tried where a run would not have found a total leak."""


def planted_limit(
    memory: Memory, negative: Memory, positive: Memory, rng: np.random.Generator, *, unseen: int = 0
) -> Limit | Why:
    """The detectable share of training records, each given back as the overfitted control gives its own.

    Copies are planted among records that a generator has not seen, generation included: a planted record is given
    back as often as one that the control's generator memorized. The more records are memorized, the fewer images
    are drawn otherwise. So all other records are given back less often, and in the end as often as the control's
    generator gives back unseen records.

    Args:
        memory: Of the audited generators.
        negative: Of images made without the records they are asked about.
        positive: Of the generator that was made to remember control records.
        rng: Puts runs together.
        unseen: Records of the private distribution that no client holds.

    Returns:
        The limit; or the reason why there is none, with the number of records of a role that would give one.
    """
    found = _found(memory, negative, positive, rng)
    size = len(memory.strata[0])
    if found.share is not None and found.share < 1:
        return Limit(
            metric="share",
            value=found.share,
            n=size,
            words=f"{found.share:.1%} of {size} training records, given back as the control's generator gives "
            "back what it has learnt by heart, would have been found",
            of="training_record",
            planted="memorized",
        )
    said = (
        f"not even a generator that knows all of {size} records by heart would be found for certain "
        f"({found.found} of {found.draws} such runs); more records would decide"
    )
    for times in _TIMES:
        larger = _found(memory, negative, positive, rng, times=times)
        if larger.share is not None and larger.share < 1:
            return _more(memory, said, times, unseen)
    return Why(said)


def for_halves(memory: Memory, unseen: int) -> Why:
    """Reason why no client's records can be halved for a negative control, and the number that would do.

    Args:
        memory: Of the audited generators.
        unseen: Records of the private distribution that no client holds.
    """
    most = int(np.unique(memory.strata[0], return_counts=True)[1].max())
    said = f"too few records for a negative control; {memory.shown}"
    return _more(memory, said, math.ceil(_HALVED / most), unseen)


def _more(memory: Memory, said: str, times: int, unseen: int) -> Why:
    """Reason that so many times the records would decide: of the role that is short of them, where only one is.

    As many held-out as training records of each class are compared.
    """
    compared, trained = len(memory.strata[0]), sum(each.trained for each in memory.scores)
    if compared == trained and times * trained <= unseen:
        return Why(said, "private", trained, times * trained)
    if times * compared <= trained:
        return Why(said, "attacker", unseen, times * unseen)
    return Why(said)


def _found(
    memory: Memory, negative: Memory, positive: Memory, rng: np.random.Generator, *, times: int = 1
) -> Detection:
    """Return the detection by a run with so many times the records; for the rest see `planted_limit`."""
    strata = [np.tile(side, times) for side in memory.strata]
    silent, unseen = negative.given
    planted, others = positive.given
    # As many held-out as training records of each class are compared, so that both sides have as many places.
    ordered = rng.permutation(strata[0]), strata[1]
    size = len(strata[0])
    chance = float(np.concatenate(negative.given).mean())
    lots = rng.random((2, size))

    def finds(nobody: Ints, known: Ints, leaking: int) -> bool:
        # One index stands for a trial of each side.
        sides = silent[nobody % len(silent)], unseen[nobody // len(silent)]
        gone = lots >= _left(chance, leaking / size)
        first, second = (
            np.where(each, others[known % len(others)], side) for each, side in zip(gone, sides, strict=True)
        )
        first[:leaking] = planted[known[:leaking]]
        return stratified_count(first, second, ordered) <= level_of(memory.tests)

    return detection_limit(size, len(silent) * len(unseen), len(planted), finds, rng)


def _left(chance: float, share: float) -> float:
    """Of records that fresh images give back by chance, the share that fewer of these images still give back.

    Images fall on records independently: of `chance` = 1 - exp(-rate), the rate falls by the share that is gone.
    """
    if share >= 1 or not 0 < chance < 1:
        return max(0.0, 1 - share)
    return float((1 - (1 - chance) ** (1 - share)) / chance)
