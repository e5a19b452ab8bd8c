"""Numbers of draws by a server, from counts in messages.

Without noise a histogram asks for as many draws as there were records. A noised one may ask for any number: with
little budget for many, most of them noise. The limits here are public; the number of records, which would be the
natural one, is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.transcript import MessageField
from fedassay.support.types import Ints

MAX_DRAWN = 200_000
"""Most vectors drawn where noised counts, or those of one message that is attacked, ask for more."""

MAX_IMAGES = 100_000
"""Most images drawn where noised counts ask for more; a network is trained on every one of them."""

_LARGEST = 1e12
"""Upper bound on a count, so that sums of counts are whole numbers still."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Number of draws of each class from each message.

    Attributes:
        counts: One array for each message.
        notes: Remarks where these are fewer than were asked for.
    """

    counts: tuple[Ints, ...]
    notes: tuple[str, ...]


def whole(sent: NDArray[Any]) -> Ints:
    """Counts as sent, of any shape, to whole numbers; noise below zero counts as none."""
    return np.asarray(np.rint(np.asarray(sent, np.float64)).clip(0, _LARGEST), dtype=np.int64)


def thinned(counts: Ints, most: int) -> Ints:
    """Counts of the same proportions that sum to `most`, or the counts as they are where they sum to no more."""
    total = int(counts.sum())
    if total <= most:
        return counts
    # Rounding their running sum keeps the sum exact, and no count is off by more than one.
    ends = np.rint(np.cumsum(counts.ravel()) * (most / total))
    return np.asarray(np.diff(ends, prepend=0.0).reshape(counts.shape), dtype=np.int64)


def draws(sent: Sequence[MessageField], most: int, what: str, *, above: float = 0.0) -> Draws:
    """Draw counts of each message: as many as stated, and for noised counts no more than `most` in all.

    Args:
        sent: The counts of each message, shape (P,).
        most: Draws in all, of noised counts.
        what: Name of the drawn things, for the note.
        above: Counts no larger than so many times their noise are left out.
    """
    counts, noised = [], False
    for item in sent:
        noise = max(item.release.noise_scale or (0.0,))
        noised |= noise > 0
        counts.append(np.where(item.values > above * noise, whole(item.values), 0))
    asked = sum(int(own.sum()) for own in counts)
    if not noised or asked <= most:
        return Draws(tuple(counts), ())
    ends = np.cumsum([len(own) for own in counts])[:-1]
    fewer = thinned(np.concatenate(counts), most)
    return Draws(tuple(np.split(fewer, ends)), (remark(asked, most, what),))


def remark(asked: float, most: int, what: str) -> str:
    """Remark of a run that draws fewer than noised counts ask for."""
    return f"noised counts ask for {asked:,.0f} {what}; {most:,} are drawn, in the same proportions"
