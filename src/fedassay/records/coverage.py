"""Time of one run that would decide several rows of coverage."""

from __future__ import annotations

from collections.abc import Sequence

from fedassay.records.record import Coverage


def together(rows: Sequence[Coverage]) -> float | None:
    """Return the seconds of one run that decides all of these rows; None where a part cannot be estimated.

    Work that several cells share, such as the training of an attack, is counted once.
    """
    if not rows or any(row.seconds is None or row.further_seconds is None for row in rows):
        return None
    once = [(row.seconds or 0.0) - (row.further_seconds or 0.0) for row in rows]
    return max(once) + sum(row.further_seconds or 0.0 for row in rows)
